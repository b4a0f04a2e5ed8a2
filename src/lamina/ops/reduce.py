"""Reductions over mesh axes: `all_reduce` and `reduce_scatter`.

On Partial axes they keep the value.  On Sharded axes they change it: the shards are read as pieces (no data moves), and
then the pieces are reduced like any others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.engine import compat, primitive, programs, relabel
from lamina.engine.storage import Storage
from lamina.errors import Problems, explained
from lamina.ops.arguments import as_tensor, axes_of, decided_once, described, dim_of, relayout
from lamina.sharding import ReduceOp
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import as_reduce_op
from lamina.tensors import Tensor


def all_reduce(sharded_tensor: Any, *, reduce_op: Any = None, reduce_axes: Any = None) -> Tensor:
    """The reduction over mesh axes, on every device along them.

    Partial axes: the pieces become the value (the op is the Partial's own; naming another one is an error).  Sharded
    axes: every device's shard is replaced by the elementwise reduction over the group, so the dim shrinks to the
    shard's size (`reduce_op` defaults to sum; uneven shards are an error).  By default all Partial axes are reduced if
    there are any, else all Sharded ones.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(8.0), mesh, ["x"])
    >>> lamina.all_reduce(x).tolist(), lamina.all_reduce(x, reduce_op="max").tolist()
    ([12.0, 16.0], [6.0, 7.0])
    """
    t = as_tensor(sharded_tensor, "all_reduce")
    pieces, target = _reduced(t._held, reduce_op, _hashable(reduce_axes))
    return _along(t, pieces, target)


def reduce_scatter(sharded_tensor: Any, axis: int, *, reduce_op: Any = None, reduce_axes: Any = None) -> Tensor:
    """The reduction over mesh axes, of which each device along them keeps its part of dim `axis`.

    The axes are chosen, and the value reduced, as in `all_reduce`; they then split the dim, at its minor end.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(8.0), mesh, [None], partial=["x"])
    >>> lamina.reduce_scatter(x, 0).placements
    (Sharded(0),)
    """
    t = as_tensor(sharded_tensor, "reduce_scatter")
    pieces, target = _scattered(t._held, reduce_op, _hashable(reduce_axes), axis)
    return _along(t, pieces, target)


def _hashable(axes: Any) -> Any:
    return tuple(axes) if isinstance(axes, Iterable) and not isinstance(axes, str) else axes


def _along(t: Tensor, pieces: Storage, target: Storage) -> Tensor:
    """The tensor, read as `pieces`, in the storage `target`."""
    held, x = t._held, t._array
    if pieces is held:
        return relayout(t, target)
    route = primitive.route(pieces, target)
    if compat.is_tracer(x) or not compat.nothing_is_traced():  # JAX differentiates and maps the two halves apart
        return relayout(Tensor(programs.called(relabel.as_pieces(held, pieces), x, held), pieces), target)
    return Tensor(programs.called(relabel.reduction(held, pieces, route), x, held, route[-1]), target)


@decided_once
def _reduced(held: Storage, reduce_op: Any, reduce_axes: Any) -> tuple[Storage, Storage]:
    """What an all-reduce decides: the storage with every axis to be reduced Partial, and that of the result."""
    with explained("all_reduce", tensor=described(held)):
        problems = Problems()
        op, axes = _op_and_axes(held, reduce_op, reduce_axes, problems)
        return _pieces_and_target(held, op, axes, None, problems)


@decided_once
def _scattered(held: Storage, reduce_op: Any, reduce_axes: Any, axis: Any) -> tuple[Storage, Storage]:
    """What a reduce-scatter decides: the same, with the axes on dim `axis` of the result."""
    with explained(f"reduce_scatter(axis={axis!r})", tensor=described(held)):
        problems, dim = Problems(), None
        with problems.caught():
            dim = dim_of(held, axis, "axis")
        op, axes = _op_and_axes(held, reduce_op, reduce_axes, problems)
        return _pieces_and_target(held, op, axes, dim, problems)


def _op_and_axes(held: Storage, reduce_op: Any, reduce_axes: Any, problems: Problems) -> tuple[ReduceOp | None, Axes]:
    op: ReduceOp | None = None
    axes: Axes = ()
    with problems.caught("leave it out: pieces know their op, and shards are summed"):
        op = None if reduce_op is None else as_reduce_op(reduce_op, f"reduce_op={reduce_op!r}")
    with problems.caught():
        axes = _chosen_axes(held.layout, None if reduce_axes is None else axes_of(held, reduce_axes, "reduce_axes"))
    return op, axes


def _chosen_axes(layout: Layout, named: Axes | None) -> Axes:
    if named is not None:
        return tuple(axis for axis in named if layout.sizes[axis] > 1)
    return layout.partial_axes or tuple(axis for axis in layout.sizes if axis in layout.sharded_axes)


def _pieces_and_target(
    held: Storage, op: ReduceOp | None, axes: Axes, dim: int | None, problems: Problems
) -> tuple[Storage, Storage]:
    sharded = tuple(axis for axis in axes if axis in held.layout.sharded_axes)
    _check_pieces(held.layout, op, axes, problems)
    _check_shards(held, op or ReduceOp.SUM, axes, sharded, problems)
    problems.check()
    pieces = relabel.pieces_of(held, sharded, op or ReduceOp.SUM) if sharded else held
    layout = pieces.layout
    dims = [(*entry, *axes) if d == dim else entry for d, entry in enumerate(layout.dims)]
    rest = [(axis, own) for axis, own in layout.partial if axis not in axes]
    return pieces, pieces.with_layout(layout.replace(dims, rest))


def _check_pieces(layout: Layout, op: ReduceOp | None, axes: Axes, problems: Problems) -> None:
    for axis in axes:
        own = layout.reduce_op(axis)
        if axis in layout.replicated_axes:
            problems.add(
                f"reduce_axes: axis {axis!r} is Replicated: its devices hold copies of one value, not parts to reduce",
                f"leave {axis!r} out; to add copies up, multiply the value by {layout.sizes[axis]}",
            )
        if own and op and own is not op:
            problems.add(
                f"reduce_op={op.value!r}, but axis {axis!r} holds pieces of {own.value!r}",
                "leave reduce_op out: only the pieces' own op gives the value",
            )


def _check_shards(held: Storage, op: ReduceOp, axes: Axes, sharded: Axes, problems: Problems) -> None:
    """Shards are reduced element by element, and after the pieces that they hold where the order matters."""
    layout = held.layout
    for dim, entry in enumerate(layout.dims):
        if any(axis in sharded for axis in entry) and held.shape[dim] % layout.grid[dim]:
            problems.add(
                f"dim {dim} of {held.shape[dim]} is uneven over {entry}, so its shards can't be reduced elementwise",
                f"pad it to a multiple of {layout.grid[dim]}, or name other reduce_axes",
            )
    for axis, other in layout.partial if sharded else ():
        if axis not in axes and not op.commutes_with(other):
            problems.add(
                f"axis {axis!r} holds pieces of {other.value!r}, "
                f"which must be reduced before the shards along {sharded} are, by {op.value!r}",
                f"lamina.all_reduce(x, reduce_axes={axis!r}) first",
            )
