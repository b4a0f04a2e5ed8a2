"""Gathers and transposes: `all_gather`, `all_to_all`, `distributed_broadcast`.  They keep the value."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from lamina.engine.programs import CACHED_PROGRAMS, called, laid_out
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LayoutError, Problems, explained, with_fix
from lamina.ops.arguments import as_data, as_tensor, decided_once, described, dim_of, relayout, relocate, shape_of
from lamina.sharding import DeviceMesh
from lamina.sharding.mesh import ambient_mesh, as_mesh
from lamina.tensors import Tensor, from_jax


def all_gather(sharded_tensor: Any, axis: int | None = None, *, physical_axis: int | None = None) -> Tensor:
    """Dim `axis` (None: every split dim) whole on each device.  `physical_axis` is another name for `axis`.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("x", "y"))
    >>> x = lamina.shard(np.arange(10.0).reshape(5, 2), mesh, [("y", "x"), None])
    >>> lamina.all_gather(x, 0).shards[3].shape
    (5, 2)
    """
    t = as_tensor(sharded_tensor, "all_gather")
    return relayout(t, _gathered(t._held, axis, physical_axis))


@decided_once
def _gathered(held: Storage, axis: Any, physical_axis: Any) -> Storage:
    with explained(f"all_gather(axis={axis!r}, physical_axis={physical_axis!r})", tensor=described(held)):
        named = {
            dim_of(held, dim, name)
            for dim, name in ((axis, "axis"), (physical_axis, "physical_axis"))
            if dim is not None
        }
        if len(named) > 1:
            fact = f"axis={axis} and physical_axis={physical_axis} name different dims"
            raise LayoutError(with_fix(fact, "give one of them: they are two names for one argument"))
        dims = named or range(held.rank)
        kept = [() if d in dims else entry for d, entry in enumerate(held.layout.dims)]
        return held.with_layout(held.layout.replace(kept))


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
    t = as_tensor(sharded_tensor, "all_to_all")
    split, concat, target = _transposed(t._held, split_axis, concat_axis, bool(tiled))
    moved = relayout(t, target)
    return moved if tiled else _stacked(moved, split, concat, t._held.layout.grid[concat])


@decided_once
def _transposed(held: Storage, split_axis: Any, concat_axis: Any, tiled: bool) -> tuple[int, int, Storage]:
    where = f"all_to_all(split_axis={split_axis!r}, concat_axis={concat_axis!r}, tiled={tiled})"
    with explained(where, tensor=described(held)):
        split, concat = _two_dims(held, split_axis, concat_axis)
        if not tiled:
            _check_untiled(held, split, concat, held.layout.grid[concat])
        dims = list(held.layout.dims)
        dims[split], dims[concat] = (*dims[split], *dims[concat]), ()
        return split, concat, held.with_layout(held.layout.replace(dims))


def _two_dims(held: Storage, split_axis: Any, concat_axis: Any) -> tuple[int, int]:
    problems, dims = Problems(), []
    for dim, argument in ((split_axis, "split_axis"), (concat_axis, "concat_axis")):
        with problems.caught():
            dims.append(dim_of(held, dim, argument))
    problems.check()
    split, concat = dims
    if split == concat:
        raise LayoutError(with_fix(f"split_axis and concat_axis are both dim {split}", "name two different dims"))
    return split, concat


def _check_untiled(held: Storage, split: int, concat: int, count: int) -> None:
    problems, shape, axes = Problems(), held.shape, held.layout.dims[split]
    if axes:
        problems.add(
            f"not tiled, dim {split} must be whole, but is split over {axes}", f"lamina.all_gather(x, {split}) first"
        )
    if shape[split] != count:
        problems.add(
            f"not tiled, dim {split} must be whole and as long as the group of {count} devices, not {shape[split]}",
            "leave out tiled=False, which needs one entry per device",
        )
    if shape[concat] % count:
        problems.add(
            f"dim {concat} of {shape[concat]} is uneven over {count} devices, so its shards can't be stacked",
            f"pad it to a multiple of {count}",
        )
    problems.check()


def _stacked(t: Tensor, split: int, concat: int, count: int) -> Tensor:
    """The gathered dim cut into its shards again, which are stacked on a dim of their own."""
    held = t._held
    shape, dims = list(held.shape), list(held.layout.dims)
    shape[concat : concat + 1] = [count, held.shape[concat] // count]
    dims[concat : concat + 1] = [(), ()]
    # `concat_axis` counts the dims of the result without the split one, as lax does.
    shifted = split + (split > concat)
    order = [d for d in range(len(shape)) if d not in (concat, shifted)]
    order.insert(concat, concat)
    order.insert(split, shifted)
    layout = held.layout.replace([dims[d] for d in order])
    target = storage(held.mesh, layout, tuple(shape[d] for d in order), held.memory_kind)
    return Tensor(called(_restack(held, target, concat, count, tuple(order)), t._array, held), target)


@lru_cache(maxsize=CACHED_PROGRAMS)
def _restack(source: Storage, target: Storage, concat: int, count: int, order: tuple[int, ...]) -> Any:
    """The gathered dim is whole and the others keep their padding, so this is local to each device."""
    lead = len(source.lead)
    cut = list(source.array_shape)
    cut[lead + concat : lead + concat + 1] = [count, cut[lead + concat] // count]
    axes = (*range(lead), *(lead + d for d in order))
    return jax.jit(lambda x: laid_out(jnp.transpose(x.reshape(cut), axes), target))


def distributed_broadcast(x: Any, mesh: DeviceMesh | None = None) -> Tensor:
    """x's value on every device of the mesh (by default x's own, else the one of `with mesh:`, else all devices).

    >>> import lamina
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("x", "y"))
    >>> [float(shard) for shard in lamina.distributed_broadcast(3.0, mesh).shards][:3]
    [3.0, 3.0, 3.0]
    """
    x = as_data(x, "distributed_broadcast")
    if mesh is None:
        x = from_jax(x) if isinstance(x, jax.Array) else x
        own = x.mesh if isinstance(x, Tensor) and not x.mesh.is_single else None
        mesh = own or ambient_mesh() or DeviceMesh.default()
    with explained("distributed_broadcast(x, mesh)", mesh=mesh):
        return relocate(x, whole(as_mesh(mesh), shape_of(x)))
