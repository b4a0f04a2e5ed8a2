"""Taking entries by their numbers: `take`, `take_along_axis`, `one_hot`, and the kernel under `x[...]`; updates.

A dim that is indexed may stay split.  Each device takes the entries that its block has and has zeros for the others:
the result is Partial(SUM) (MAX for bools) over those axes, and reducing it moves the result, not the table.  With a
vocabulary split over devices, `take(table, tokens)` is the embedding of Megatron.  Where the indices are split, too,
the result is split with them.

Numbers count from the end when negative.  Those out of range are an error where they are known (numbers, lists, numpy
arrays), and the nearest in range where they are not, as in JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import index as as_integer
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lamina.engine.storage import whole
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.arguments import as_data, as_tensor, relocate
from lamina.ops.compute import Kernel, compute, together
from lamina.ops.dims import as_dim
from lamina.ops.movement import ravel
from lamina.rules import indexing as rules
from lamina.sharding.placements import ReduceOp
from lamina.tensors import Tensor


def _in_range(index: Any, size: int) -> Any:
    """From the front, the nearest in range."""
    index = jnp.asarray(index)
    if not jnp.issubdtype(index.dtype, jnp.unsignedinteger):
        index = jnp.where(index < 0, index + size, index)
    return jnp.clip(index, 0, max(size - 1, 0)).astype(jnp.int32)


def _here(here: Any, dim: int, index: Any) -> tuple[Any, Any]:
    """Where in the device's block of x the entries stand, and whether they do; None: all do."""
    held = here.operands[0]
    place = _in_range(index, held.shape[dim])
    if not held.layout.dims[dim]:
        return place, None
    place = place - here.start(held, dim)
    there = (place >= 0) & (place < here.length(held, dim))
    return jnp.where(there, place, 0), there


def _gathered(here: Any, x: Any, *more: Any) -> Any:
    *indices, dims, at, _ = more
    found = [_here(here, dim, index) for dim, index in zip(dims, indices, strict=True)]
    shape = np.broadcast_shapes(*(np.shape(place) for place, _ in found))
    for dim, (place, _) in sorted(zip(dims, found, strict=True), key=lambda pair: -pair[0]) if not shape else ():
        x = lax.dynamic_index_in_dim(x, place, dim, keepdims=False)
    if shape:
        front = jnp.moveaxis(x, dims, range(len(dims)))
        taken = front.at[tuple(place for place, _ in found)].get(mode="clip")
        x = jnp.moveaxis(taken, range(len(shape)), range(at, at + len(shape)))
    masks = [there for _, there in found if there is not None]
    return _masked(x, jnp.broadcast_to(reduce(jnp.logical_and, masks), shape), at) if masks else x


def _masked(x: Any, mask: Any, at: int) -> Any:
    mask = jnp.expand_dims(mask, [*range(at), *range(at + mask.ndim, x.ndim)])
    return jnp.where(mask, x, jnp.zeros((), x.dtype))


def _along(here: Any, x: Any, index: Any, dim: int, _: Any) -> Any:
    place, there = _here(here, dim, index)
    taken = jnp.take_along_axis(x, place, axis=dim, mode="clip")
    return taken if there is None else jnp.where(there, taken, jnp.zeros((), taken.dtype))


def _updated(here: Any, x: Any, part: Any, *starts: Any) -> Any:
    held, theirs = here.operands[0], here.operands[1]
    firsts = [
        jnp.zeros((), jnp.int32) if n == m else jnp.clip(_from_front(start, n), 0, n - m).astype(jnp.int32)
        for start, n, m in zip(starts, held.shape, theirs.shape, strict=True)
    ]
    cut = [d for d, axes in enumerate(held.layout.dims) if axes and held.shape[d] != theirs.shape[d]]
    if not cut:
        return lax.dynamic_update_slice(x, part, firsts)
    mask: Any = True
    for d in cut:  # the rows of the part that the block has, each at its place
        row = here.positions(held, d) - firsts[d]
        inside = (row >= 0) & (row < theirs.shape[d])
        part = jnp.take(part, jnp.where(inside, row, 0), axis=d, mode="clip")
        mask = mask & jnp.expand_dims(inside, [e for e in range(x.ndim) if e != d])
        firsts[d] = jnp.zeros((), jnp.int32)
    old = lax.dynamic_slice(x, firsts, part.shape)
    return lax.dynamic_update_slice(x, jnp.where(mask, part, old), firsts)


def _from_front(start: Any, size: int) -> Any:
    start = jnp.asarray(start)
    return start if jnp.issubdtype(start.dtype, jnp.unsignedinteger) else jnp.where(start < 0, start + size, start)


def _one_hot(here: Any, index: Any, classes: int, at: int, dtype: Any) -> Any:
    return jax.nn.one_hot(index, classes, dtype=dtype, axis=at)


_GATHER = Kernel("take", rules.gather, _gathered)
_ALONG = Kernel("take_along_axis", rules.along, _along)
_UPDATE = Kernel("dynamic_update_slice", rules.update, _updated)
_ONE_HOT = Kernel("one_hot", lambda shapes, classes, at, _: rules.one_hot(shapes, classes, at), _one_hot)
KERNELS = {kernel.name: kernel for kernel in (_GATHER, _ALONG, _UPDATE, _ONE_HOT)}


def gathered(x: Tensor, dims: Sequence[int], indices: Sequence[Any], at: int) -> Tensor:
    """The entries of x at the indices, one for each of `dims`; theirs stand in the result from dim `at` on."""
    given = [_index(x, index, dim) for dim, index in zip(dims, indices, strict=True)]
    return compute(_GATHER, (x, *given), (tuple(dims), at, _op(x)))


def _op(x: Tensor) -> ReduceOp:
    """What brings entries that one device has and the others have zeros for together."""
    return ReduceOp.MAX if x.dtype == jnp.bool_ else ReduceOp.SUM


def _index(x: Tensor, index: Any, dim: int) -> Any:
    """Integers; what is known is checked.  A Python number stays one where it can, so that programs are shared."""
    size = x.shape[dim]
    if not isinstance(index, (Tensor, jax.Array)):
        known = np.asarray(index, None if np.size(index) else np.int32)
        _check_integers(known.dtype, index)
        if known.size and not (-size <= known.min() and known.max() < size):
            worst = known.min() if known.min() < -size else known.max()
            fact = f"index {worst} is out of range for dim {dim}, which has {size} entries"
            raise LayoutError(with_fix(fact, f"use numbers from {-size} to {size - 1}" if size else "there is none"))
        if known.ndim or x._held.lead:
            return relocate(known.astype(np.int32), whole(x.mesh, known.shape))
        return int(known)
    _check_integers(index.dtype, index)
    return index


def _check_integers(dtype: Any, index: Any) -> None:
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(f"indices must be integers, not {np.dtype(dtype).name}: {index!r}")


def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The entries of a dim (None: of the flat tensor) at these numbers, whose dims stand in place of the dim.

    Along a split dim the result is Partial; reducing it moves the result once, and the table stays.

    >>> import numpy as np, lamina
    >>> table = lamina.shard(np.arange(8.0), lamina.DeviceMesh.simulated((2,), ("tp",)), ["tp"])
    >>> lamina.take(table, [5, 1], 0).tolist(), lamina.take(table, [5, 1], 0).placements
    ([5.0, 1.0], (Partial(SUM),))
    """
    x = as_tensor(x, "take")
    if axis is None:
        return take(ravel(x), indices, 0)
    with explained(f"take(axis={axis!r})", shape=x.shape):
        dim = as_dim(axis, x.ndim)
        return gathered(x, (dim,), (indices,), dim)


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """For each place of `indices`, the entry of x at that number along the dim and at the same place along the others.

    >>> import lamina
    >>> lamina.take_along_axis(lamina.tensor([[1, 2], [3, 4]]), lamina.tensor([[1], [0]]), 1).tolist()
    [[2], [3]]
    """
    x = as_tensor(x, "take_along_axis")
    with explained(f"take_along_axis(axis={axis!r})", shape=x.shape):
        dim = as_dim(axis, x.ndim)
        return compute(_ALONG, (x, _index(x, indices, dim)), (dim, _op(x)))


def dynamic_update_slice(x: Any, update: Any, start_indices: Sequence[Any]) -> Tensor:
    """x with `update` in place of the part that begins at `start_indices`, one number for each dim; as jax.lax has it.

    Starts may be known only when it runs, and are moved so that the update fits.  x stays as it is split.  An update
    that fills a dim is split as x is; along other dims each device takes the rows that its block has.

    >>> import lamina
    >>> lamina.dynamic_update_slice(lamina.tensor([1, 2, 3, 4]), lamina.tensor([9, 9]), (1,)).tolist()
    [1, 9, 9, 4]
    """
    x, update = together("dynamic_update_slice", [as_data(part, "dynamic_update_slice") for part in (x, update)])
    if x.dtype != update.dtype:
        fact = f"dynamic_update_slice: x is {x.dtype.name} and the update {update.dtype.name}"
        raise LayoutError(with_fix(fact, "give them one dtype, with astype"))
    starts = [start if isinstance(start, (Tensor, jax.Array)) else as_integer(start) for start in start_indices]
    if x._held.lead or update._held.lead:
        starts = [relocate(np.int32(s), whole(x.mesh, ())) if isinstance(s, int) else s for s in starts]
    return compute(_UPDATE, (x, update, *starts))


def one_hot(indices: Any, num_classes: int, *, dtype: Any = None, axis: int = -1) -> Tensor:
    """1 where the class is the index and 0 elsewhere, along a new dim, which is whole.

    >>> import lamina
    >>> lamina.one_hot(lamina.tensor([1, 0]), 3).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    indices = as_tensor(indices, "one_hot")
    _check_integers(indices.dtype, indices)
    with explained(f"one_hot(axis={axis!r})", shape=indices.shape):
        at = as_dim(axis, indices.ndim + 1)
    return compute(_ONE_HOT, (indices,), (as_integer(num_classes), at, jnp.dtype(dtype or jnp.result_type(float))))


__all__ = ["dynamic_update_slice", "one_hot", "take", "take_along_axis"]
