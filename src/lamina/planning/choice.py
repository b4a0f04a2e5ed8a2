"""Which way an op takes: the one whose operands are nearest.

The cost of a way is the time to bring each operand into the layout that it requires, and, for each axis along which the
op makes pieces, the cheapest thing that can become of them, a reduce-scatter.  Times are the planner's own lower bounds
(plans reach them), so that a hundred ways are weighed in less than a millisecond; only the winner is planned.

A way that brings no bytes to any operand is always preferred: who laid the operands out so meant it.  Ties go to the
way with the least work per device.

Where the caller says how the result shall lie, that is the stronger wish: ways are preferred whose result gets there by
splitting further or by reducing, and the time that takes is a part of their cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from lamina.planning.cost import least_seconds
from lamina.planning.plan import block_bytes
from lamina.planning.steps import block_size
from lamina.planning.topology import Topology
from lamina.rules import Factors, Way, ways
from lamina.sharding.layout import Layout


@dataclass(frozen=True, slots=True)
class Choice:
    """A way and its price: seconds for the operands, seconds for the pieces it makes, elements per device."""

    way: Way
    moving: float
    reducing: float
    work: int
    strays: bool | None = None  # must the result be gathered or exchanged to lie as wanted?  None: no wish

    @property
    def rank(self) -> tuple:
        against = self.moving > 0 if self.strays is None else self.strays
        return against, self.moving + self.reducing, self.work


def choices(
    factors: Factors,
    layouts: Sequence[Layout],
    itemsizes: Sequence[float],
    links: Topology,
    wanted: Layout | None = None,
) -> tuple[Choice, ...]:
    """Every way with its price, the best first; `wanted` is how the only result shall lie."""
    return _choices(factors, tuple(layouts), tuple(itemsizes), links, wanted)


@lru_cache(maxsize=4096)
def _choices(
    factors: Factors,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[float, ...],
    links: Topology,
    wanted: Layout | None,
) -> tuple[Choice, ...]:
    found = [_priced(way, factors, layouts, itemsizes, links) for way in ways(factors, layouts)]
    if wanted is not None:
        found = [_arriving(choice, wanted, factors.result_shapes[0], max(itemsizes), links) for choice in found]
    return tuple(sorted(found, key=lambda choice: choice.rank))


def _priced(
    way: Way, factors: Factors, layouts: Sequence[Layout], itemsizes: Sequence[float], links: Topology
) -> Choice:
    moving = 0.0
    work = 0
    for now, required, shape, itemsize in zip(layouts, way.required, factors.shapes, itemsizes, strict=True):
        moving += least_seconds(now, required, shape, itemsize, links) * _skew(required, shape)
        work += block_size(required, shape)
    largest = max(itemsizes, default=4)
    reducing = 0.0
    for result, shape in zip(way.results, factors.result_shapes, strict=True):
        count = prod(result.sizes[axis] for axis in way.made)
        bandwidth = min((links.link(axis).bandwidth for axis in way.made), default=links.default.bandwidth)
        reducing += (count - 1) / count * block_bytes(result, shape, largest) / bandwidth
        work += block_size(result, shape)
    return Choice(way, moving, reducing, work)


def _arriving(choice: Choice, wanted: Layout, shape: Sequence[int], itemsize: float, links: Topology) -> Choice:
    """The choice, with the price of bringing its result to where it is wanted."""
    (made,) = choice.way.results
    strays = any(asked[: len(has)] != has for has, asked in zip(made.dims, wanted.dims, strict=True))
    least = least_seconds(made, wanted, tuple(shape), itemsize, links) * _skew(wanted, shape)
    return replace(choice, reducing=least, strays=strays)


def _skew(layout: Layout, shape: Sequence[int]) -> float:
    """How much larger the largest block is than the mean: all wait for the device that has it.

    >>> _skew(Layout({"x": 4}, [("x",)]), (8,)), _skew(Layout({"x": 4}, [("x",)]), (2,))
    (1.0, 2.0)
    """
    size = prod(shape)
    return prod(layout.grid) * block_size(layout, tuple(shape)) / size if size else 1.0
