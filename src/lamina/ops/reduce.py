"""Reductions over mesh axes: `all_reduce` and `reduce_scatter`.

On Partial axes they keep the value.  On Sharded axes they change it: the shards are read as pieces (no data moves), and
then the pieces are reduced like any others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from lamina.engine import relabel
from lamina.engine.storage import Storage
from lamina.errors import Problems, explained
from lamina.ops.arguments import as_tensor, axes_of, described, dim_of, relayout
from lamina.sharding import ReduceOp
from lamina.sharding.layout import Axes
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
    t = as_tensor(sharded_tensor)
    pieces, target = _reduced(t._held, reduce_op, _hashable(reduce_axes), None)
    return relayout(_as_pieces(t, pieces), target)


def reduce_scatter(sharded_tensor: Any, axis: int, *, reduce_op: Any = None, reduce_axes: Any = None) -> Tensor:
    """The reduction over mesh axes, of which each device along them keeps its part of dim `axis`.

    The axes are chosen, and the value reduced, as in `all_reduce`; they then split the dim, at its minor end.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(8.0), mesh, [None], partial=["x"])
    >>> lamina.reduce_scatter(x, 0).placements
    (Sharded(0),)
    """
    t = as_tensor(sharded_tensor)
    pieces, target = _reduced(t._held, reduce_op, _hashable(reduce_axes), (axis,))
    return relayout(_as_pieces(t, pieces), target)


def _hashable(axes: Any) -> Any:
    return axes if axes is None or isinstance(axes, str) else tuple(axes)


def _as_pieces(t: Tensor, pieces: Storage) -> Tensor:
    return t if pieces is t._held else Tensor(relabel.as_pieces(t._held, pieces)(t._array), pieces)


@lru_cache(maxsize=4096)
def _reduced(held: Storage, reduce_op: Any, reduce_axes: Any, scatter: tuple[Any] | None) -> tuple[Storage, Storage]:
    """What a call decides, decided once: the storage with every axis to be reduced Partial, and that of the result."""
    with explained("all_reduce" if scatter is None else f"reduce_scatter(axis={scatter[0]!r})", tensor=described(held)):
        dim = None if scatter is None else dim_of(held, scatter[0], "axis")
        op = None if reduce_op is None else as_reduce_op(reduce_op, f"reduce_op={reduce_op!r}")
        axes = _chosen_axes(held, reduce_axes)
        _check(held, op, axes)
        sharded = tuple(axis for axis in axes if axis in held.layout.sharded_axes)
        pieces = relabel.pieces_of(held, sharded, op or ReduceOp.SUM) if sharded else held
        layout = pieces.layout
        dims = [(*entry, *axes) if d == dim else entry for d, entry in enumerate(layout.dims)]
        rest = [(axis, own) for axis, own in layout.partial if axis not in axes]
        return pieces, pieces.with_layout(layout.replace(dims, rest))


def _chosen_axes(held: Storage, reduce_axes: Any) -> Axes:
    layout = held.layout
    if reduce_axes is None:
        return layout.partial_axes or axes_of(held, layout.sharded_axes, "reduce_axes")
    return tuple(axis for axis in axes_of(held, reduce_axes, "reduce_axes") if layout.sizes[axis] > 1)


def _check(held: Storage, op: ReduceOp | None, axes: Axes) -> None:
    layout, problems = held.layout, Problems()
    for axis in axes:
        if axis in layout.replicated_axes:
            problems.add(
                f"reduce_axes: axis {axis!r} is Replicated: its devices hold copies of one value, not parts to reduce"
            )
        own = layout.reduce_op(axis)
        if own and op and own is not op:
            problems.add(f"reduce_op={op.value!r}, but axis {axis!r} holds pieces of {own.value!r}")
    sharded = tuple(axis for axis in axes if axis in layout.sharded_axes)
    for dim, entry in enumerate(layout.dims):
        if any(axis in sharded for axis in entry) and held.shape[dim] % layout.grid[dim]:
            problems.add(
                f"dim {dim} of {held.shape[dim]} is uneven over {entry}, so its shards can't be reduced elementwise"
            )
    chosen = op or ReduceOp.SUM
    for axis, other in layout.partial if sharded else ():
        if axis not in axes and not chosen.commutes_with(other):
            problems.add(
                f"axis {axis!r} holds pieces of {other.value!r}, "
                f"which must be reduced before the shards along {sharded} are, by {chosen.value!r}"
            )
    problems.check()
