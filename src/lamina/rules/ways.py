"""The ways in which an op can run on operands that lie somehow: each a layout per operand and per result.

Every mesh axis that matters is given one role: it splits a factor, it holds pieces that pass through, or its devices do
the same.  The roles on offer come from where the operands have the axis now; a split of a factor that must be whole is
offered the operand's other dims.  So the ways are few (the product over the axes of two or three roles each), whatever
the number of devices, and one of them is always there: nothing split, everything reduced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product

from lamina.rules.factors import Factors, Passing
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp

MOST_WAYS = 256  # a product over five axes stays below; what is left out are the last roles, those that gather


@dataclass(frozen=True, slots=True)
class Split:
    """The axis splits a factor."""

    factor: str


@dataclass(frozen=True, slots=True)
class Passes:
    """The axis's devices hold pieces of `operand` (of all that pass jointly), which pass through."""

    passing: Passing
    operand: int


Role = Split | Passes | None  # None: its devices do the same


Pieces = tuple[tuple[str, ReduceOp], ...]  # a layout's Partial axes, in mesh order
Lying = tuple[tuple[Axes, ...], Pieces]  # its dims, and these


@dataclass(frozen=True, slots=True)
class Sketch:
    """A way before its layouts are made: most are weighed by this alone, and dropped."""

    required: tuple[Lying, ...]
    results: tuple[Lying, ...]
    made: Axes

    def way(self, layouts: Sequence[Layout]) -> Way:
        """The way, on the mesh of these layouts."""
        mesh = layouts[0]
        required = tuple(mesh.replace(*lying) for lying in self.required)
        return Way(required, tuple(mesh.replace(*lying) for lying in self.results), self.made)


@dataclass(frozen=True, slots=True)
class Way:
    """One way: how each operand must lie, and how each result then does.

    `made` are the axes along which the op itself makes pieces: a reduced factor was split.
    """

    required: tuple[Layout, ...]
    results: tuple[Layout, ...]
    made: Axes

    def __str__(self) -> str:
        return f"{' × '.join(map(str, self.required))} → {', '.join(map(str, self.results))}"


def ways(factors: Factors, layouts: Sequence[Layout]) -> list[Way]:
    """All ways on offer for operands that lie so.

    >>> matmul = Factors.of("ij,jk->ik", [(4, 6), (6, 8)], reduced={"j": ReduceOp.SUM})
    >>> x, w = Layout({"t": 2}, [(), ("t",)]), Layout({"t": 2}, [("t",), ()])
    >>> for way in ways(matmul, [x, w]):
    ...     print(way)
    [t=2] -,t × [t=2] t,- → [t=2] -,- +sum(t)
    [t=2] -,- × [t=2] -,- → [t=2] -,-
    """
    return [sketch.way(layouts) for sketch in sketches(factors, layouts)]


def sketches(factors: Factors, layouts: Sequence[Layout]) -> list[Sketch]:
    """The same ways, as sketches, each once."""
    sizes = layouts[0].sizes
    axes = [axis for axis, size in sizes.items() if size > 1]
    roles = [_roles(factors, layouts, axis) for axis in axes]
    found: dict[Sketch, None] = {}
    for chosen in islice(product(*roles), MOST_WAYS):
        splits: dict[str, Axes] = {}
        pieces: list[tuple[str, Passes]] = []
        for axis, role in zip(axes, chosen, strict=True):
            if isinstance(role, Split):
                splits[role.factor] = (*splits.get(role.factor, ()), axis)
            elif role is not None:
                pieces.append((axis, role))
        for ordered in _orders(factors, layouts, splits):
            if sketch := _sketch(factors, sizes, ordered, pieces):
                found.setdefault(sketch)
    return list(found)


def _roles(factors: Factors, layouts: Sequence[Layout], axis: str) -> list[Role]:
    found: dict[Role, None] = {}
    for operand, (dims, layout) in enumerate(zip(factors.operands, layouts, strict=True)):
        for entry, axes in zip(dims, layout.dims, strict=True):
            if axis in axes:
                for factor in _homes(factors, dims, entry, axes, axis, layout.sizes):
                    found.setdefault(Split(factor))
        if op := layout.reduce_op(axis):
            for passing in factors.passing:
                if operand in passing.operands and passing.op is op:
                    found.setdefault(Passes(passing, passing.operands[0] if passing.jointly else operand))
    return [*found, None]


def _homes(
    factors: Factors, dims: tuple, entry: tuple[str, ...], axes: Axes, axis: str, sizes: Mapping[str, int]
) -> Iterator[str]:
    """The factors that an axis of this dim may split: the one that it splits now, else those of the other dims.

    Where dims are cut and joined the result may not be able to say the split that is there now: then the others, too.
    """
    placed = factors.placed(entry, axes, sizes)
    if placed is None and entry:  # blocks cross a factor's end; the major one alone may still do
        placed = factors.placed(entry, (axis,), sizes)
    now = next((factor for factor, own in (placed or {}).items() if axis in own), None)
    if now is not None and now not in factors.whole:
        yield now
    if now is None or now in factors.whole or factors.sizes:
        others = (other[0] for other in dims if other and other != entry)
        yield from (factor for factor in others if factor in factors.kept and factor not in factors.whole)


def _orders(factors: Factors, layouts: Sequence[Layout], splits: dict[str, Axes]) -> Iterable[Mapping[str, Axes]]:
    """Which axes split each factor, major to minor: in every order that an operand has them in now."""
    if all(len(axes) == 1 for axes in splits.values()):
        return (splits,)
    choices = [
        dict.fromkeys(
            _in_order(dims, layout, factor, axes) for dims, layout in zip(factors.operands, layouts, strict=True)
        )
        if len(axes) > 1
        else (axes,)
        for factor, axes in splits.items()
    ]
    return (dict(zip(splits, orders, strict=True)) for orders in product(*choices))


def _in_order(dims: tuple, layout: Layout, factor: str, axes: Axes) -> Axes:
    has: Axes = next((own for entry, own in zip(dims, layout.dims, strict=True) if factor in entry), ())
    return (*(axis for axis in has if axis in axes), *(axis for axis in axes if axis not in has))


def _sketch(
    factors: Factors, sizes: Mapping[str, int], splits: Mapping[str, Axes], pieces: Sequence[tuple[str, Passes]]
) -> Sketch | None:
    reduced = {axis: op for factor, op in factors.reduced for axis in splits.get(factor, ())}
    partial = tuple(reduced.items())
    if pieces:
        every = {**reduced, **{axis: role.passing.op for axis, role in pieces}}
        if not _may_stand_together(set(every.values())):
            return None
        partial = tuple(every.items())
    if len(partial) > 1:
        at = list(sizes)
        partial = tuple(sorted(partial, key=lambda pair: at.index(pair[0])))
    required = []
    for operand, dims in enumerate(factors.operands):
        entries = _entries_of(factors, dims, splits, sizes)
        if entries is None:
            return None
        required.append((entries, tuple((axis, role.passing.op) for axis, role in pieces if _holds(role, operand))))
    results = []
    for dims in factors.results:
        entries = _entries_of(factors, dims, splits, sizes)
        if entries is None:
            return None
        results.append((entries, partial))
    return Sketch(tuple(required), tuple(results), tuple(reduced))


def _entries_of(
    factors: Factors, dims: tuple, splits: Mapping[str, Axes], sizes: Mapping[str, int]
) -> tuple[Axes, ...] | None:
    """The axes of each dim; None if no layout says that."""
    if not factors.sizes:
        return tuple([splits.get(entry[0], ()) if entry else () for entry in dims])
    entries = tuple([factors.axes_of(entry, splits, sizes) for entry in dims])
    return None if None in entries else entries  # type: ignore[return-value]


def _holds(role: Passes, operand: int) -> bool:
    return operand in role.passing.operands if role.passing.jointly else operand == role.operand


def _may_stand_together(ops: set[ReduceOp]) -> bool:
    """Pieces of these ops on one result: their order must not matter."""
    return len(ops) < 2 or ops <= {ReduceOp.SUM, ReduceOp.AVG}
