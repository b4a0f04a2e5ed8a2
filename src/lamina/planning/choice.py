"""Which way an op takes: the one whose operands are nearest.

The cost of a way is the time to bring each operand into the layout that it requires, and, for each axis along which the
op makes pieces, the cheapest thing that can become of them, a reduce-scatter.  Times are the planner's own lower bounds
(plans reach them), so that a hundred ways are weighed in less than a millisecond; only the winner is planned.

A way that brings no bytes to any operand is always preferred: who laid the operands out so meant it.  Ties go to the
way with the least work per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

    @property
    def rank(self) -> tuple:
        return self.moving > 0, self.moving + self.reducing, self.work


def choices(
    factors: Factors, layouts: Sequence[Layout], itemsizes: Sequence[float], links: Topology
) -> tuple[Choice, ...]:
    """Every way with its price, the best first."""
    return _choices(factors, tuple(layouts), tuple(itemsizes), links)


@lru_cache(maxsize=4096)
def _choices(
    factors: Factors, layouts: tuple[Layout, ...], itemsizes: tuple[float, ...], links: Topology
) -> tuple[Choice, ...]:
    found = [_priced(way, factors, layouts, itemsizes, links) for way in ways(factors, layouts)]
    return tuple(sorted(found, key=lambda choice: choice.rank))


def _priced(
    way: Way, factors: Factors, layouts: Sequence[Layout], itemsizes: Sequence[float], links: Topology
) -> Choice:
    moving = 0.0
    work = 0
    for now, required, shape, itemsize in zip(layouts, way.required, factors.shapes, itemsizes, strict=True):
        moving += least_seconds(now, required, shape, itemsize, links)
        work += block_size(required, shape)
    largest = max(itemsizes, default=4)
    reducing = 0.0
    for result, shape in zip(way.results, factors.result_shapes, strict=True):
        count = prod(result.sizes[axis] for axis in way.made)
        bandwidth = min((links.link(axis).bandwidth for axis in way.made), default=links.default.bandwidth)
        reducing += (count - 1) / count * block_bytes(result, shape, largest) / bandwidth
        work += block_size(result, shape)
    return Choice(way, moving, reducing, work)
