"""Which steps lead from a layout towards a target.

Only steps that can be part of a sensible route are offered: a slice or all-to-all puts axes where the target wants them
next, a gather takes away axes that the target has elsewhere, a reduction resolves pieces that the target doesn't keep.
From every layout some route exists (reduce all, gather all, slice all, unreduce all), so the search always ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Unreduce,
    may_append,
    may_reduce,
    may_remove,
    may_unreduce,
)
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]


def kept_pieces(source: Layout, target: Layout) -> dict[str, ReduceOp]:
    """The Partial axes that can stay as they are.

    An axis stays if both layouts reduce it with one op, and if that op commutes with every axis before it that has to
    be reduced or unreduced: otherwise it must be resolved first, and made anew.

    >>> S, M = ReduceOp.SUM, ReduceOp.MAX
    >>> axes = {"x": 2, "y": 2}
    >>> kept_pieces(Layout(axes, [()], {"x": S, "y": S}), Layout(axes, [()], {"y": S}))
    {'y': <ReduceOp.SUM: 'sum'>}
    >>> kept_pieces(Layout(axes, [()], {"x": S, "y": M}), Layout(axes, [()], {"y": M}))
    {}
    """
    order = [name for name, _ in source.axes]
    kept = {axis: op for axis, op in source.partial if target.reduce_op(axis) == op}
    while True:
        changing = [(a, op) for layout in (source, target) for a, op in layout.partial if a not in kept]
        clash = [
            axis
            for axis, op in kept.items()
            if any(order.index(a) < order.index(axis) and not op.commutes_with(o) for a, o in changing)
        ]
        if not clash:
            return kept
        for axis in clash:
            del kept[axis]


def moves(layout: Layout, target: Layout, shape: Shape, unresolved: frozenset[str]) -> Iterator[Step]:
    """Every step that may be taken from `layout` and can be part of a route to `target`.

    `unresolved` are the Partial axes that still have to be reduced, because the target doesn't keep them.
    """
    yield from _reductions(layout, target, shape, unresolved)
    if layout.dims == target.dims:
        yield from _unreductions(layout, target)
        return
    free = layout.replicated_axes
    for dim, current in enumerate(layout.dims):
        wanted = target.dims[dim]
        shared = _shared_prefix(current, wanted)
        if shared == len(current):
            for end in range(shared + 1, len(wanted) + 1):
                axes = wanted[shared:end]
                if all(axis in free for axis in axes) and may_append(layout, shape, dim, axes):
                    yield Slice(dim, axes)
        for start in _gather_starts(layout, target, shape, dim, shared):
            axes = current[start:]
            if may_remove(layout, shape, dim, axes):
                yield AllGather(dim, axes)
                yield from _all_to_alls(layout, target, shape, dim, axes)
    yield from _permutes(layout, target)


def _gather_starts(layout: Layout, target: Layout, shape: Shape, dim: int, shared: int) -> list[int]:
    """From where on the dim's axes may be taken away: what the target doesn't share; all, where blocks don't nest."""
    current, wanted = layout.dims[dim], target.dims[dim]
    starts = list(range(shared, len(current)))
    nests = shape[dim] % layout.count(wanted) == 0 and shape[dim] % layout.grid[dim] == 0
    return starts if nests or current == wanted or 0 in starts or not current else [0, *starts]


def _reductions(layout: Layout, target: Layout, shape: Shape, unresolved: frozenset[str]) -> Iterator[Step]:
    by_op: dict[ReduceOp, list[str]] = {}
    for axis, op in layout.partial:
        if axis in unresolved:
            by_op.setdefault(op, []).append(axis)
    for op, axes in by_op.items():
        groups = {tuple(axes), *((axis,) for axis in axes)}
        for dim, current in enumerate(layout.dims):
            wanted = target.dims[dim]
            if current != wanted[: len(current)]:
                continue
            for end in range(len(current) + 1, len(wanted) + 1):
                group = wanted[len(current) : end]
                if set(group) <= set(axes) and may_reduce(layout, group, op) and may_append(layout, shape, dim, group):
                    yield ReduceScatter(group, op, dim)
        for group in sorted(groups):
            if may_reduce(layout, group, op):
                yield AllReduce(group, op)


def _unreductions(layout: Layout, target: Layout) -> Iterator[Step]:
    for axis, op in target.partial:
        if axis in layout.replicated_axes and may_unreduce(layout, axis, op):
            yield Unreduce(axis, op)


def _all_to_alls(layout: Layout, target: Layout, shape: Shape, source: int, axes: Axes) -> Iterator[Step]:
    for dim, current in enumerate(layout.dims):
        wanted = target.dims[dim]
        if (
            dim != source
            and current + axes == wanted[: len(current) + len(axes)]
            and may_append(layout, shape, dim, axes)
        ):
            yield AllToAll(axes, source, dim)


def _permutes(layout: Layout, target: Layout) -> Iterator[Step]:
    if layout.grid == target.grid and not set(target.sharded_axes) & set(layout.partial_axes):
        yield Permute(target.dims)
    for dim, current in enumerate(layout.dims):
        wanted = [axis for axis in target.dims[dim] if axis in current]
        order = (*wanted, *(axis for axis in current if axis not in wanted))
        if order != current:
            yield Permute((*layout.dims[:dim], order, *layout.dims[dim + 1 :]))


def _shared_prefix(current: Axes, wanted: Axes) -> int:
    length = 0
    while length < min(len(current), len(wanted)) and current[length] == wanted[length]:
        length += 1
    return length
