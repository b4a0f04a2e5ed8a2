"""The collectives, as verbs on Tensors.

`all_gather`, `all_to_all` (tiled), `distributed_broadcast`, and the reductions of Partial axes keep the value and change
the layout.  Reductions over Sharded axes, `ppermute`, and the untiled `all_to_all` say so: they change the value or the
shape.  All are differentiable, and work on any layout that they have a meaning for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from lamina.engine import primitive
from lamina.engine.programs import CACHED_PROGRAMS, ShardPermutation, laid_out
from lamina.engine.relabel import shards_as_pieces
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LayoutError, Problems, explained
from lamina.ops.arguments import as_tensor, axes_of, described, dim_of, relayout, relocate
from lamina.sharding import DeviceMesh, Layout, ReduceOp
from lamina.sharding.layout import Axes
from lamina.sharding.mesh import ambient_mesh, as_mesh
from lamina.sharding.placements import as_reduce_op
from lamina.tensors import Tensor


def all_reduce(sharded_tensor: Any, *, reduce_op: Any = None, reduce_axes: Any = None) -> Tensor:
    """The reduction over mesh axes, on every device along them.

    Partial axes: the pieces become the value (the op is the Partial's own; naming another one is an error).  Sharded
    axes: every device's shard is replaced by the elementwise reduction over the group, so the dim shrinks to the shard's
    size (`reduce_op` defaults to sum; uneven shards are an error).  By default all Partial axes are reduced if there are
    any, else all Sharded ones.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(8.0), mesh, ["x"])
    >>> lamina.all_reduce(x).tolist(), lamina.all_reduce(x, reduce_op="max").tolist()
    ([12.0, 16.0], [6.0, 7.0])
    """
    t = as_tensor(sharded_tensor)
    with explained("all_reduce(sharded_tensor)", **described(t)):
        pieces, axes = _as_pieces(t, reduce_op, reduce_axes)
        layout = pieces.layout
        return relayout(pieces, layout.replace(partial=[(a, op) for a, op in layout.partial if a not in axes]))


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
    with explained("reduce_scatter(sharded_tensor, axis)", **described(t)):
        dim = dim_of(t, axis, "axis")
        pieces, axes = _as_pieces(t, reduce_op, reduce_axes)
        layout = pieces.layout
        dims = [(*entry, *axes) if d == dim else entry for d, entry in enumerate(layout.dims)]
        return relayout(pieces, layout.replace(dims, [(a, op) for a, op in layout.partial if a not in axes]))


def _as_pieces(t: Tensor, reduce_op: Any, reduce_axes: Any) -> tuple[Tensor, Axes]:
    """The tensor with every axis that is to be reduced Partial, and these axes."""
    layout = t.layout
    op = None if reduce_op is None else as_reduce_op(reduce_op, f"reduce_op={reduce_op!r}")
    if reduce_axes is None:
        axes = layout.partial_axes or axes_of(t, layout.sharded_axes, "reduce_axes")
    else:
        axes = tuple(axis for axis in axes_of(t, reduce_axes, "reduce_axes") if layout.sizes[axis] > 1)
    problems = Problems()
    for axis in axes:
        if axis in layout.replicated_axes:
            problems.add(
                f"reduce_axes: axis {axis!r} is Replicated, so its devices hold copies, not parts to reduce; "
                "to multiply by the axis's size, say so"
            )
        own = layout.reduce_op(axis)
        if own and op and own is not op:
            problems.add(f"reduce_op={op.value!r}, but axis {axis!r} holds pieces of {own.value!r}")
    sharded = tuple(axis for axis in axes if axis in layout.sharded_axes)
    chosen = op or ReduceOp.SUM
    for dim, entry in enumerate(layout.dims):
        if any(axis in sharded for axis in entry) and t.shape[dim] % layout.grid[dim]:
            problems.add(
                f"dim {dim} of {t.shape[dim]} is uneven over {entry}, so its shards can't be reduced elementwise"
            )
    for axis, other in layout.partial if sharded else ():
        if axis not in axes and not chosen.commutes_with(other):
            problems.add(f"axis {axis!r} holds pieces of {other.value!r}, which must be reduced before {chosen.value!r} over {sharded}")
    problems.check()
    if not sharded:
        return t, axes
    array, held = shards_as_pieces(t._array, t._held, sharded, chosen)
    return Tensor(array, held), axes


def all_gather(sharded_tensor: Any, axis: int | None = None, *, physical_axis: int | None = None) -> Tensor:
    """Dim `axis` (None: every split dim) whole on each device.  `physical_axis` is another name for `axis`.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("x", "y"))
    >>> x = lamina.shard(np.arange(10.0).reshape(5, 2), mesh, [("y", "x"), None])
    >>> lamina.all_gather(x, 0).shards[3].shape
    (5, 2)
    """
    t = as_tensor(sharded_tensor)
    with explained("all_gather(sharded_tensor, axis)", **described(t)):
        if axis is not None and physical_axis is not None and axis != physical_axis:
            raise LayoutError(f"axis={axis} and physical_axis={physical_axis} name different dims")
        named = physical_axis if axis is None else axis
        dims: Any = range(t.ndim) if named is None else [dim_of(t, named, "axis")]
        return relayout(t, t.layout.replace([() if d in dims else entry for d, entry in enumerate(t.layout.dims)]))


def all_to_all(sharded_tensor: Any, split_axis: int, concat_axis: int, tiled: bool = True) -> Tensor:
    """The mesh axes that split dim `concat_axis` split dim `split_axis` instead: a distributed transpose.

    Tiled, the value stays the same.  Not tiled, it is `jax.lax.all_to_all` on each device's shard: `split_axis` must be
    as long as the group, its entries go to the devices one each, and the received shards are stacked on a new dim at
    `concat_axis`.  `split_axis` stays in the result as a dim of one entry per device, which says where they lie.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(32.0).reshape(4, 8), mesh, [None, "x"])
    >>> lamina.all_to_all(x, 0, 1).placements, lamina.all_to_all(x, 0, 1, tiled=False).shape
    ((Sharded(0),), (4, 2, 4))
    """
    t = as_tensor(sharded_tensor)
    with explained("all_to_all(sharded_tensor, split_axis, concat_axis)", **described(t)):
        split, concat = dim_of(t, split_axis, "split_axis"), dim_of(t, concat_axis, "concat_axis")
        if split == concat:
            raise LayoutError(f"split_axis and concat_axis are both dim {split}")
        axes, layout = t.layout.dims[concat], t.layout
        count = layout.count(axes)
        if not tiled:
            _check_untiled(t, split, concat, count)
        dims = list(layout.dims)
        dims[split], dims[concat] = (*dims[split], *axes), ()
        moved = relayout(t, layout.replace(dims))
        return moved if tiled else _stacked(moved, split, concat, count)


def _check_untiled(t: Tensor, split: int, concat: int, count: int) -> None:
    problems = Problems()
    if t.shape[split] != count or t.layout.dims[split]:
        problems.add(f"not tiled, dim {split} must be whole and as long as the group of {count} devices, not {t.shape[split]}")
    if t.shape[concat] % count:
        problems.add(f"dim {concat} of {t.shape[concat]} is uneven over {count} devices, so its shards can't be stacked")
    problems.check()


def _stacked(t: Tensor, split: int, concat: int, count: int) -> Tensor:
    """The gathered dim cut into its shards again, which are stacked on a dim of their own."""
    held = t._held
    shape, dims = list(held.shape), list(held.layout.dims)
    shape[concat : concat + 1] = [count, held.shape[concat] // count]
    dims[concat : concat + 1] = [(), ()]
    # `concat_axis` counts the dims of the result without the split one, as lax does.
    stack, rest = concat, [d for d in range(len(shape)) if d != concat]
    shifted = split + (split > concat)
    order = [d for d in rest if d != shifted]
    order.insert(concat, stack)
    order.insert(split, shifted)
    target = storage(
        held.mesh, held.layout.replace([dims[d] for d in order]), tuple(shape[d] for d in order), held.memory_kind
    )
    return Tensor(_restack(held, target, tuple(shape), tuple(order))(t._array), target)


@lru_cache(maxsize=CACHED_PROGRAMS)
def _restack(source: Storage, target: Storage, shape: tuple[int, ...], order: tuple[int, ...]) -> Any:
    lead = len(source.lead)

    def program(x: Any) -> Any:
        # The cut dim is whole and the others keep their padding, so this is local to each device.
        padded = iter(source.array_shape[lead:])
        cut, concat = [], next(d for d in range(len(shape)) if shape[: d + 1] != source.shape[: d + 1])
        for d in range(len(shape)):
            if d == concat:
                next(padded)
                cut.append(shape[d])
            else:
                cut.append(shape[d] if d == concat + 1 else next(padded))
        moved = jnp.transpose(x.reshape(*x.shape[:lead], *cut), (*range(lead), *(lead + d for d in order)))
        return laid_out(moved, target)

    return jax.jit(program)


def distributed_broadcast(x: Any, mesh: DeviceMesh | None = None) -> Tensor:
    """x's value on every device of the mesh (by default x's own, else the one of `with mesh:`, else all devices).

    >>> import lamina
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("x", "y"))
    >>> [float(shard) for shard in lamina.distributed_broadcast(3.0, mesh).shards][:3]
    [3.0, 3.0, 3.0]
    """
    if mesh is None:
        own = x.mesh if isinstance(x, Tensor) and not x.mesh.is_single else None
        mesh = own or ambient_mesh() or DeviceMesh.default()
    shape = x.shape if isinstance(x, Tensor) else jnp.shape(x)
    with explained("distributed_broadcast(x, mesh)", mesh=mesh):
        return relocate(x, whole(as_mesh(mesh), tuple(shape)))


def ppermute(sharded_tensor: Any, permutation: Iterable[tuple[int, int]], *, axis: str | None = None) -> Tensor:
    """The shard of device src becomes that of device dst, for each (src, dst); a device that receives nothing holds zeros.

    Devices are counted row-major over the whole mesh, or along one mesh axis if `axis` names it.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((4,), ("x",))
    >>> x = lamina.shard(np.arange(4.0), mesh, ["x"])
    >>> lamina.ppermute(x, [(0, 1), (1, 2), (2, 3)]).tolist()
    [0.0, 0.0, 1.0, 2.0]
    """
    t = as_tensor(sharded_tensor)
    with explained("ppermute(sharded_tensor, permutation)", **described(t)):
        pairs = _checked_pairs(t, permutation, axis)
        if axis is not None:
            pairs = _along(t.layout, axis, pairs)
        held = t._held
        _check_blocks(held, pairs)
        return Tensor(primitive.apply(t._array, ShardPermutation(held, tuple(sorted(pairs)))), held)


def _checked_pairs(t: Tensor, permutation: Iterable[tuple[int, int]], axis: str | None) -> list[tuple[int, int]]:
    count = t.mesh.num_devices if axis is None else t.mesh.axis_size(axis)
    pairs = [tuple(pair) for pair in permutation]
    problems = Problems()
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(end, int) and 0 <= end < count for end in pair):
            problems.add(f"{pair} is not a pair (src, dst) of devices 0..{count - 1}")
    problems.check()
    for end, name in enumerate(("src", "dst")):
        ends = [pair[end] for pair in pairs]
        for device in sorted({d for d in ends if ends.count(d) > 1}):
            problems.add(f"device {device} stands {ends.count(device)} times as {name}")
    problems.check()
    return pairs  # type: ignore[return-value]


def _along(layout: Layout, axis: str, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs of positions along one axis as pairs of devices: the same for every position of the other axes."""
    stride = 1
    for name, size in reversed(layout.axes):
        if name == axis:
            break
        stride *= size
    bases = [d for d in range(layout.num_devices) if (d // stride) % layout.sizes[axis] == 0]
    return [(base + source * stride, base + target * stride) for base in bases for source, target in pairs]


def _check_blocks(held: Storage, pairs: list[tuple[int, int]]) -> None:
    """Copies must stay copies, and a block must fit where it goes."""
    layout, problems = held.layout, Problems()
    where = [dict(zip(held.mesh.axis_names, held.mesh.coordinates(d), strict=True)) for d in range(held.mesh.num_devices)]
    content = [(tuple(w[axis] for axis in held.lead), layout.block_index(w)) for w in where]
    origin = {target: content[source] for source, target in pairs}
    groups: dict[tuple, list[int]] = {}
    for device, block in enumerate(content):
        groups.setdefault(block, []).append(device)
    for copies in groups.values():
        received = {origin.get(device) for device in copies}
        if len(received) > 1:
            problems.add(
                f"devices {copies} hold copies of one shard (axes {layout.replicated_axes} are Replicated), "
                f"but would receive different ones: {[next((s for s, d in pairs if d == device), None) for device in copies]}"
            )
    for source, target in pairs:
        sizes = [tuple(stop - start for start, stop in layout.block(held.shape, where[d])) for d in (source, target)]
        if sizes[0] != sizes[1]:
            problems.add(f"the shard of device {source} is {sizes[0]}, but that of device {target} is {sizes[1]} (uneven shards)")
    problems.check()


