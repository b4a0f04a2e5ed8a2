"""Which steps may lead from a layout towards a target.

Every step on offer can be part of a sensible route: it puts axes where a *goal* wants them next, takes away axes that
the goal has elsewhere, resolves pieces that the target doesn't keep, or exchanges blocks straight to the goal.  The
goals are the target itself and, where a detour can pay, its *scattered* forms: the target with axes that it leaves free
splitting one of its dims too.  Through them a reduction moves each byte once before the result is gathered, and a
hierarchy sends each byte through a host's link once before it is copied inside.

From every layout some route exists (reduce all, gather all, slice all, unreduce all), so the search always ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, takewhile

from lamina.planning.pieces import kept_pieces, may_reduce, may_unreduce
from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Unreduce,
    may_append,
    may_remove,
)
from lamina.planning.topology import Topology
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]
Unresolved = frozenset[str]


def goals(source: Layout, target: Layout, shape: Shape, links: Topology) -> tuple[Layout, ...]:
    """The target, and the scattered forms of it that a route may go through.

    >>> from lamina.planning.topology import topology
    >>> source = Layout({"x": 2, "y": 2}, [()], {"x": ReduceOp.SUM})
    >>> goals(source, source.replace(partial=()), (8,), topology("bytes"))[1:]
    (Layout('[x=2,y=2] (x,y)'), Layout('[x=2,y=2] (y,x)'), Layout('[x=2,y=2] x'))
    """
    found, kept = [target], kept_pieces(source, target)
    spare = tuple(a for a, size in target.axes if size > 1 and a not in target.sharded_axes and a not in kept)
    resolves = any(axis not in kept for axis in source.partial_axes)
    choices = []
    if resolves and spare:
        # In each order, for a reduce-scatter appends its own axes first and a slice of copies others.
        choices += [spare, spare[::-1], tuple(axis for axis in spare if axis in source.partial_axes)]
    if shared := links.shared_axes:
        choices += [tuple(axis for axis in spare if axis not in shared), spare]
    scattered = [goal for axes in dict.fromkeys(choices) for goal in _scattered(target, axes, kept)]
    if resolves:
        # Each byte is reduced where its pieces are, and goes to its place as a value, of which there is but one.
        pieces = tuple(axis for axis in source.partial_axes if axis not in kept)
        apart = tuple(axis for axis in source.sizes if axis in pieces or axis in source.replicated_axes)
        choices = [pieces, pieces[::-1], apart, apart[::-1]]
        scattered += [goal for axes in dict.fromkeys(choices) for goal in _scattered(source, axes, kept)]
    if not links.only_bytes:
        # Whole blocks swapped, then gathered in place: the bytes of an exchange with fewer passes over memory.
        choices = [spare, spare[::-1], *((axis,) for axis in spare)]
        near = (goal for axes in dict.fromkeys(choices) for goal in _scattered(target, axes, kept))
        scattered += [goal for goal in near if goal.grid == source.grid]
    return tuple(dict.fromkeys([*found, *scattered]))


def _scattered(layout: Layout, axes: Axes, kept: Mapping[str, ReduceOp]) -> Iterator[Layout]:
    """The layout with these axes splitting one of its dims too, and nothing Partial but what stays so."""
    for dim in range(layout.rank) if axes else ():
        dims = (*layout.dims[:dim], layout.dims[dim] + axes, *layout.dims[dim + 1 :])
        yield Layout(layout.axes, dims, kept)


def moves(layout: Layout, all_goals: tuple[Layout, ...], shape: Shape, unresolved: Unresolved) -> Iterator[Step]:
    """Every step on offer.  `unresolved` are the Partial axes that still have to be reduced."""
    target = all_goals[0]
    yield from _all_reductions(layout, unresolved)
    for goal in all_goals:
        yield from _reduce_scatters(layout, goal, shape, unresolved)
        if layout.dims != goal.dims:
            yield from _towards(layout, goal, shape)
        if exchange := _exchange(layout, goal, unresolved):
            yield exchange
    if layout.dims == target.dims:
        yield from _unreductions(layout, target)


def _towards(layout: Layout, goal: Layout, shape: Shape) -> Iterator[Step]:
    """Slices, gathers, all-to-alls and permutes that bring the dims nearer to the goal's."""
    free = layout.replicated_axes
    for dim, current in enumerate(layout.dims):
        wanted = goal.dims[dim]
        shared = _shared_prefix(current, wanted)
        if shared == len(current):
            for end in range(shared + 1, len(wanted) + 1):
                axes = wanted[shared:end]
                if all(axis in free for axis in axes) and may_append(layout, shape, dim, axes):
                    yield Slice(dim, axes)
        for start in _gather_starts(layout, goal, shape, dim, shared):
            axes = current[start:]
            if may_remove(layout, shape, dim, axes):
                yield AllGather(dim, axes)
                yield from _all_to_alls(layout, goal, shape, dim, axes)
    if joint := _joint_all_to_all(layout, goal, shape):
        yield joint
    yield from _permutes(layout, goal)


def _gather_starts(layout: Layout, goal: Layout, shape: Shape, dim: int, shared: int) -> list[int]:
    """From where on the dim's axes may be taken away: what the goal doesn't share; all, where blocks don't nest."""
    current, wanted = layout.dims[dim], goal.dims[dim]
    starts = list(range(shared, len(current)))
    nests = shape[dim] % layout.count(wanted) == 0 and shape[dim] % layout.grid[dim] == 0
    return starts if nests or current == wanted or 0 in starts or not current else [0, *starts]


def _by_op(layout: Layout, unresolved: Unresolved) -> dict[ReduceOp, Axes]:
    found: dict[ReduceOp, Axes] = {}
    for axis, op in layout.partial:
        if axis in unresolved:
            found[op] = (*found.get(op, ()), axis)
    return found


def _all_reductions(layout: Layout, unresolved: Unresolved) -> Iterator[Step]:
    for op, axes in _by_op(layout, unresolved).items():
        for group in sorted({axes, *((axis,) for axis in axes)}):
            if may_reduce(layout, group, op):
                yield AllReduce(group, op)


def _reduce_scatters(layout: Layout, goal: Layout, shape: Shape, unresolved: Unresolved) -> Iterator[Step]:
    for op, axes in _by_op(layout, unresolved).items():
        for dim, current in enumerate(layout.dims):
            wanted = goal.dims[dim]
            if current != wanted[: len(current)]:
                continue
            for group in accumulate(((axis,) for axis in wanted[len(current) :]), lambda before, one: before + one):
                if set(group) <= set(axes) and may_reduce(layout, group, op) and may_append(layout, shape, dim, group):
                    yield ReduceScatter(group, op, dim)


def _exchange(layout: Layout, goal: Layout, unresolved: Unresolved) -> Exchange | None:
    """The direct exchange to the goal, if it can be one: it reduces pieces of one op, which isn't an average."""
    partial = dict(layout.partial)
    resolved = [axis for axis in partial if axis in unresolved]
    made = [axis for axis, _ in goal.partial if axis not in partial]
    if any(axis in goal.partial_axes for axis in resolved) or (layout.dims == goal.dims and not resolved):
        return None
    if any(partial[axis] != op for axis, op in goal.partial if axis in partial):
        return None
    if resolved:
        op = partial[resolved[0]]
        if any(partial[axis] is not op for axis in resolved) or op is ReduceOp.AVG:
            return None
        if not may_reduce(layout, tuple(resolved), op):
            return None
    after = layout.replace(partial=[(axis, op) for axis, op in layout.partial if axis not in resolved])
    for axis in made:
        new = goal.reduce_op(axis)
        if new is None or not may_unreduce(after.replace(dims=((),) * after.rank), axis, new):
            return None
    return Exchange(goal.dims, goal.partial)


def _unreductions(layout: Layout, target: Layout) -> Iterator[Step]:
    for axis, op in target.partial:
        if axis in layout.replicated_axes and may_unreduce(layout, axis, op):
            yield Unreduce(axis, op)


def _all_to_alls(layout: Layout, goal: Layout, shape: Shape, source: int, axes: Axes) -> Iterator[Step]:
    """These axes of one dim to the dims where the goal wants them next."""
    for dim, current in enumerate(layout.dims):
        wanted = goal.dims[dim][len(current) : len(current) + len(axes)]
        if dim == source or current != goal.dims[dim][: len(current)] or set(wanted) != set(axes):
            continue
        if may_append(layout, shape, dim, wanted):
            yield AllToAll.of(wanted, source, dim)


def _joint_all_to_all(layout: Layout, goal: Layout, shape: Shape) -> AllToAll | None:
    """As many axes as can change dims at once, if these are several dims' or go to several."""
    shared = [_shared_prefix(current, wanted) for current, wanted in zip(layout.dims, goal.dims, strict=True)]
    loose = {a: d for d, current in enumerate(layout.dims) for a in current[shared[d] :]}
    wanted = {d: goal.dims[d][shared[d] :] for d, current in enumerate(layout.dims) if len(current) == shared[d]}
    while True:
        goes = {axis: d for d, axes in wanted.items() for axis in takewhile(loose.__contains__, axes)}
        stuck = {a for d, axes in enumerate(layout.dims) for a in axes[: _stuck_end(axes, goes)] if a in goes}
        if not stuck:
            break
        loose = {axis: d for axis, d in loose.items() if axis not in stuck}
    if len({(loose[axis], d) for axis, d in goes.items()}) < 2:
        return None
    step = AllToAll(tuple((axis, loose[axis], d) for axis, d in goes.items()))
    fits = all(may_append(layout, shape, d, axes) for d, axes in step.joining.items())
    return step if fits and all(may_remove(layout, shape, d, a) for d, a in step.leaving(layout).items()) else None


def _stuck_end(axes: Axes, goes: Mapping[str, int]) -> int:
    """Where the minor end of `axes` that can go begins."""
    return next((i for i in range(len(axes), 0, -1) if axes[i - 1] not in goes), 0)


def _permutes(layout: Layout, goal: Layout) -> Iterator[Step]:
    if layout.grid == goal.grid and not set(goal.sharded_axes) & set(layout.partial_axes):
        yield Permute(goal.dims)
    for dim, current in enumerate(layout.dims):
        wanted = [axis for axis in goal.dims[dim] if axis in current]
        order = (*wanted, *(axis for axis in current if axis not in wanted))
        if order != current:
            yield Permute((*layout.dims[:dim], order, *layout.dims[dim + 1 :]))


def _shared_prefix(current: Axes, wanted: Axes) -> int:
    length = 0
    while length < min(len(current), len(wanted)) and current[length] == wanted[length]:
        length += 1
    return length
