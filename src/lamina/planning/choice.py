"""Which way an op takes: the one whose operands are nearest.

The cost of a way is the time to bring each operand into the layout that it requires, and, for each axis along which the
op makes pieces, the cheapest thing that can become of them, a reduce-scatter.  Times are the planner's own lower bounds
(plans reach them), so that a hundred ways are weighed in less than a millisecond; only the winner is planned.  A way is
dropped as soon as it can't be the best, by a bound that is cheaper still.

A way that brings no bytes to any operand is always preferred: who laid the operands out so meant it.  Ties go to the
way with the least work per device.

Where the caller says how the result shall lie, that is the stronger wish: ways are preferred whose result gets there by
splitting further or by reducing, and the time that takes is a part of their cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from lamina.planning.cost import least_seconds
from lamina.planning.steps import block_size
from lamina.planning.topology import Topology
from lamina.planning.wishes import Wishes
from lamina.rules import Factors, Lying, Pieces, Sketch, Way, sketches
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp


@dataclass(frozen=True, slots=True)
class Choice:
    """A way and its price: seconds for the operands, seconds for the pieces it makes, elements per device."""

    way: Way
    moving: float
    reducing: float
    work: int
    rank: tuple


def choose(
    factors: Factors,
    layouts: Sequence[Layout],
    itemsizes: Sequence[float],
    links: Topology,
    wanted: Layout | None = None,
    wishes: Wishes | None = None,
) -> Choice:
    """The best way.  `wanted` is how the only result shall lie, `wishes` what the operands' specs ask for."""
    return _Weighing(factors, layouts, itemsizes, links, wanted, wishes).best()


def choices(
    factors: Factors,
    layouts: Sequence[Layout],
    itemsizes: Sequence[float],
    links: Topology,
    wanted: Layout | None = None,
    wishes: Wishes | None = None,
) -> tuple[Choice, ...]:
    """Every way with its price, the best first."""
    return _Weighing(factors, layouts, itemsizes, links, wanted, wishes).all()


@dataclass(frozen=True, slots=True)
class _Price:
    rank: tuple
    moving: float
    reducing: float
    work: int


class _Weighing:
    """The ways of one call.  Many ways ask the same of an operand, so each such price is found once."""

    def __init__(
        self,
        factors: Factors,
        layouts: Sequence[Layout],
        itemsizes: Sequence[float],
        links: Topology,
        wanted: Layout | None,
        wishes: Wishes | None,
    ):
        self.factors, self.layouts, self.links, self.wanted, self.wishes = factors, layouts, links, wanted, wishes
        self.itemsizes = itemsizes
        self.largest = max(itemsizes, default=4.0)
        self.sizes = layouts[0].sizes
        self.now = [(layout.dims, layout.partial) for layout in layouts]
        fastest = max(link.bandwidth for link in (links.default, *links.axes.values()))
        self.per_element = [itemsize / fastest for itemsize in itemsizes]
        self.bounds: list[dict[tuple, float]] = [{} for _ in layouts]
        self.moves: list[dict[Lying, float]] = [{now: 0.0} for now in self.now]
        self.blocks: dict[tuple, int] = {}

    def best(self) -> Choice:
        found = [(self._at_least(sketch), sketch) for sketch in sketches(self.factors, self.layouts)]
        found.sort(key=lambda pair: pair[0])  # of equals the one that was offered first
        chosen, least = None, None
        for bound, sketch in found:
            if least is not None and self._too_dear(bound, least):
                continue
            price = self._price(sketch)
            if least is None or price.rank < least.rank:
                chosen, least = sketch, price
        assert chosen is not None and least is not None, "nothing split, everything reduced is always a way"
        return self._choice(chosen, least)

    def all(self) -> tuple[Choice, ...]:
        made = [self._choice(sketch, self._price(sketch)) for sketch in sketches(self.factors, self.layouts)]
        return tuple(sorted(made, key=lambda choice: choice.rank))

    def _choice(self, sketch: Sketch, price: _Price) -> Choice:
        return Choice(sketch.way(self.layouts), price.moving, price.reducing, price.work, price.rank)

    def _price(self, sketch: Sketch) -> _Price:
        broken = self.wishes.broken(sketch.required) if self.wishes else ()
        strays, reducing, work = self._after(sketch)
        moving = 0.0
        for operand, required in enumerate(sketch.required):
            moving += self._moving(operand, required)
            work += self._block(required, self.factors.shapes[operand])
        against = moving > 0 if strays is None else strays
        return _Price((*broken, against, _rounded(moving + reducing), work), moving, reducing, work)

    # -- bounds: what needs no look at how blocks overlap -----------------------------------------------------------

    def _at_least(self, sketch: Sketch) -> float:
        """No more than the seconds until its operands are there."""
        return sum(self._bound(operand, required) for operand, required in enumerate(sketch.required))

    def _too_dear(self, bound: float, least: _Price) -> bool:
        """Is a way with this bound certainly dearer?"""
        if self.wanted is not None or self.wishes is not None:
            return False  # other things come first then
        return bound > 0 if least.moving == 0 else _rounded(bound) > _rounded(least.moving + least.reducing)

    def _bound(self, operand: int, required: Lying) -> float:
        """It depends only on which axes are used, and for what."""
        dims, partial = required
        used = frozenset([axis for entry in dims for axis in entry])
        found = self.bounds[operand].get((used, partial))
        if found is None:
            found = self._fewest(operand, used, partial) * self.per_element[operand]
            self.bounds[operand][used, partial] = found
        return found

    def _fewest(self, operand: int, wanted: frozenset[str], partial: Pieces) -> float:
        """The elements that a device receives if all overlap that is possible is there: see `bounds.elements_needed`.

        Without pieces to reduce, only an axis that splits the source and not the target makes a device lack something
        for certain.
        """
        now = self.layouts[operand]
        total = float(prod(self.factors.shapes[operand]))
        if partial or now.partial:
            if not all(op.is_linear for _, op in (*now.partial, *partial)):
                return 0.0  # where ops don't commute it depends on their order what is kept
            kept = [axis for axis, op in now.partial if (axis, op) in partial]
            wanted |= {axis for axis, op in partial if axis not in kept and op is not ReduceOp.AVG}
            pieces = self._count([axis for axis, _ in now.partial if axis not in kept])
            if pieces > 1:
                devices = self._count([axis for axis in self.sizes if axis not in kept])
                return total * max(0.0, pieces - 2 + devices / self._count(wanted)) / devices
        lost = self._count([axis for axis in now.sharded_axes if axis not in wanted])
        return total * (1 - 1 / lost) / self._count(wanted) if lost > 1 else 0.0

    # -- prices -----------------------------------------------------------------------------------------------------

    def _moving(self, operand: int, required: Lying) -> float:
        found = self.moves[operand].get(required)
        if found is not None:
            return found
        shape, target = self.factors.shapes[operand], self.layouts[0].replace(*required)
        least = least_seconds(self.layouts[operand], target, shape, self.itemsizes[operand], self.links)
        found = self.moves[operand][required] = least * _skew(target, shape) if least else 0.0
        return found

    def _after(self, sketch: Sketch) -> tuple[bool | None, float, int]:
        """Does the result stray from where it is wanted; the seconds until it is there, or is reduced; elements."""
        work = 0
        reducing = 0.0
        share = 0.0
        if sketch.made:
            count = self._count(sketch.made)
            share = (count - 1) / count / min(self.links.link(axis).bandwidth for axis in sketch.made)
        for result, shape in zip(sketch.results, self.factors.result_shapes, strict=True):
            block = self._block(result, shape)
            reducing += share * block * self.largest
            work += block
        if self.wanted is None:
            return None, reducing, work
        ((dims, _),) = sketch.results
        strays = any(asked[: len(has)] != has for has, asked in zip(dims, self.wanted.dims, strict=True))
        made, (shape,) = self.layouts[0].replace(*sketch.results[0]), self.factors.result_shapes
        least = least_seconds(made, self.wanted, tuple(shape), self.largest, self.links)
        return strays, least * _skew(self.wanted, shape), work

    def _block(self, lying: Lying, shape: Sequence[int]) -> int:
        """The elements of the largest block."""
        key = (lying[0], shape)
        found = self.blocks.get(key)
        if found is None:
            found = self.blocks[key] = prod([-(-n // self._count(a)) for n, a in zip(shape, lying[0], strict=True)])
        return found

    def _count(self, axes: Iterable[str]) -> int:
        return prod([self.sizes[axis] for axis in axes])


def _rounded(time: float) -> float:
    """Sums of the same numbers in another order must tie."""
    return float(f"{time:.9e}")


def _skew(layout: Layout, shape: Sequence[int]) -> float:
    """How much larger the largest block is than the mean: all wait for the device that has it.

    >>> _skew(Layout({"x": 4}, [("x",)]), (8,)), _skew(Layout({"x": 4}, [("x",)]), (2,))
    (1.0, 2.0)
    """
    size = prod(shape)
    return prod(layout.grid) * block_size(layout, tuple(shape)) / size if size else 1.0
