"""The ways in which an op can run on operands that lie somehow: each a layout per operand and per result.

Every mesh axis that matters is given one role: it splits a factor, it holds pieces that pass through, or its devices do
the same.  The roles on offer come from where the operands have the axis now; a split of a factor that must be whole is
offered the operand's other dims.  So the ways are few (the product over the axes of two or three roles each), whatever
the number of devices, and one of them is always there: nothing split, everything reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
class Pieces:
    """The axis's devices hold pieces of `operand` (of all that pass jointly), which pass through."""

    passing: Passing
    operand: int


Role = Split | Pieces | None  # None: its devices do the same


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
    sizes = layouts[0].sizes
    axes = [axis for axis, size in sizes.items() if size > 1]
    roles = [_roles(factors, layouts, axis) for axis in axes]
    found: dict[Way, None] = {}
    for chosen in islice(product(*roles), MOST_WAYS):
        assigned = dict(zip(axes, chosen, strict=True))
        for splits in _orders(factors, layouts, assigned):
            if way := _way(factors, layouts, assigned, splits):
                found.setdefault(way)
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
                    found.setdefault(Pieces(passing, passing.operands[0] if passing.jointly else operand))
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


def _orders(factors: Factors, layouts: Sequence[Layout], assigned: Mapping[str, Role]) -> Iterator[dict[str, Axes]]:
    """Which axes split each factor, major to minor: in every order that an operand has them in now."""
    groups: dict[str, Axes] = {}
    for axis, role in assigned.items():
        if isinstance(role, Split):
            groups[role.factor] = (*groups.get(role.factor, ()), axis)
    choices = [
        list(
            dict.fromkeys(
                _in_order(factors, dims, layout, f, axes)
                for dims, layout in zip(factors.operands, layouts, strict=True)
            )
        )
        if len(axes) > 1
        else [axes]
        for f, axes in groups.items()
    ]
    for orders in product(*choices):
        yield dict(zip(groups, orders, strict=True))


def _in_order(factors: Factors, dims: tuple, layout: Layout, factor: str, axes: Axes) -> Axes:
    has = next((own for entry, own in zip(dims, layout.dims, strict=True) if factor in entry), ())
    return (*(axis for axis in has if axis in axes), *(axis for axis in axes if axis not in has))


def _way(
    factors: Factors, layouts: Sequence[Layout], assigned: Mapping[str, Role], splits: Mapping[str, Axes]
) -> Way | None:
    sizes = layouts[0].sizes
    pieces = {axis: role for axis, role in assigned.items() if isinstance(role, Pieces)}
    required = []
    for operand, (dims, layout) in enumerate(zip(factors.operands, layouts, strict=True)):
        entries = [factors.axes_of(entry, splits, sizes) for entry in dims]
        if None in entries:
            return None
        own = [(axis, role.passing.op) for axis, role in pieces.items() if _holds(role, operand)]
        required.append(layout.replace([entry or () for entry in entries], own))
    reduced = {axis: op for factor, op in factors.reduced for axis in splits.get(factor, ())}
    partial = {**reduced, **{axis: role.passing.op for axis, role in pieces.items()}}
    if not _may_stand_together(set(partial.values())):
        return None
    results = []
    for dims in factors.results:
        entries = [factors.axes_of(entry, splits, sizes) for entry in dims]
        if None in entries:
            return None
        results.append(layouts[0].replace([entry or () for entry in entries], tuple(partial.items())))
    return Way(tuple(required), tuple(results), tuple(reduced))


def _holds(role: Pieces, operand: int) -> bool:
    return operand in role.passing.operands if role.passing.jointly else operand == role.operand


def _may_stand_together(ops: set[ReduceOp]) -> bool:
    """Pieces of these ops on one result: their order must not matter."""
    return len(ops) < 2 or ops <= {ReduceOp.SUM, ReduceOp.AVG}
