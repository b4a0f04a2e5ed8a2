"""Values that come to a mesh from host memory, and go there.

Each device gets just its own block, cut from the caller's array: no device ever holds the whole, and a block is padded
only if the layout is uneven.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from lamina.engine import compat, inventory, whole
from lamina.engine.blocks import identity
from lamina.engine.storage import Storage
from lamina.sharding.dims import split_sizes
from lamina.sharding.layout import Block
from lamina.sharding.mesh import positions


@compat.at_once
def place(value: Any, target: Storage, own: bool = False) -> Any:
    """Host data as the array of `target`: each shard goes to its device, once.

    `own` says that nobody will write to `value` again, so that a device in the same memory may use it as it is.
    """
    given, value = value, np.asarray(value)
    value = value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
    borrowed = not own and (value is given or not value.flags.owndata)
    copied = borrowed and is_host_memory(target)
    array = _placed(value, target, aligned_copy if copied else np.asarray)
    if borrowed and not copied:
        jax.block_until_ready(array)  # until then, JAX reads the caller's array
    return array


def _placed(value: np.ndarray, target: Storage, take: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The blocks on their devices; `take` is applied to what is a part of `value` itself."""
    if target.is_local:
        there = jax.device_put(take(value), target.sharding)
        return there if target.is_plain else _encode(there, target)
    blocks: dict[tuple, np.ndarray] = {}
    parts, homes = [], []
    for device, where in zip(target.mesh.devices, positions(target.mesh), strict=True):
        if (real := inventory.resolve(device)).process_index != jax.process_index():
            continue
        box, mark = target.layout.block(target.shape, where), target.layout.keeps_the_value(where)
        if (box, mark) not in blocks:
            block = _host_block(value, box, mark, target)
            blocks[box, mark] = take(block) if np.may_share_memory(block, value) else block
        parts.append(blocks[box, mark])
        homes.append(real if target.memory_kind is None else SingleDeviceSharding(real, target.memory_kind))
    arrays = jax.device_put(parts, homes)
    return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, arrays)


def is_host_memory(held: Storage) -> bool:
    """May JAX use numpy's memory as these devices' own?  It does so for aligned arrays, whatever `may_alias` says."""
    return inventory.resolve(held.mesh.devices[0]).platform == "cpu"


def aligned_copy(value: np.ndarray) -> np.ndarray:
    """A copy that XLA's CPU devices take as it is: what isn't aligned to 64 bytes they copy once more."""
    room = np.empty(value.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def repack(x: Any, source: Storage, target: Storage) -> Any:
    """The array of `source` as the array of `target`, through the host's memory; no Partial axis on either side."""
    return place(host_value(x, source), target, own=True)


def host_value(x: Any, held: Storage) -> np.ndarray:
    """The global value on the host, without the padding; no Partial axis."""
    stored = np.asarray(x)
    for dim, (size, blocks) in enumerate(zip(held.shape, held.layout.grid, strict=True)):
        if size % blocks:
            full = -(-size // blocks)
            parts = np.split(stored, blocks, axis=dim)
            sizes = split_sizes(size, blocks)
            kept = [np.take(p, range(n), axis=dim) if n < full else p for p, n in zip(parts, sizes, strict=True)]
            stored = np.concatenate(kept, axis=dim)
    return stored


def _host_block(value: np.ndarray, box: Block, mark: str | None, target: Storage) -> np.ndarray:
    """The padded block that a device holds, with one leading entry per Partial axis."""
    block = value[tuple(slice(start, stop) for start, stop in box)]
    if mark is not None:
        op = target.layout.reduce_op(mark)
        assert op is not None
        block = np.broadcast_to(identity(op, value.dtype), block.shape)
    padding = [
        (0, full - held) for full, held in zip(target.layout.padded_block(target.shape), block.shape, strict=True)
    ]
    if any(after for _, after in padding):
        block = np.pad(block, padding)
    return block.reshape((1,) * len(target.lead) + block.shape)


@partial(jax.jit, static_argnums=1)
def _encode(value: Any, target: Storage) -> Any:
    return whole.convert(value, whole_on(target), target)


def whole_on(held: Storage) -> Storage:
    """The same tensor, whole on every device of the mesh."""
    layout = held.layout.replace(dims=((),) * held.rank, partial=())
    return held.with_layout(layout)
