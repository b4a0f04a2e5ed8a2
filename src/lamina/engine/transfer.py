"""Values that come to a mesh: from host memory, or from other devices.

* From the host, each device gets just its own block, cut from the caller's array: no device ever holds the whole, and
  a block is padded only if the layout is uneven.
* From another mesh (the same devices in another order, some of them, others), each block is cut into the parts that the
  wanted blocks share with it.  A part comes from the device itself where it holds it, else from the holder that has
  sent least; replicas are copied inside the destination from the first that is complete.

Neither side has Partial axes here: pieces are reduced before a value leaves its mesh, and made after it has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from lamina.engine import inventory, whole
from lamina.engine.blocks import identity
from lamina.engine.storage import Storage
from lamina.sharding.dims import split_offset, split_sizes
from lamina.sharding.layout import Block
from lamina.sharding.mesh import positions


def place(value: Any, target: Storage, own: bool = False) -> Any:
    """Host data as the array of `target`: each shard goes to its device, once.

    `own` says that nobody will write to `value` again, so that a device in the same memory may use it as it is.
    """
    given, value = value, np.asarray(value)
    value = value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)
    borrowed = not own and (value is given or not value.flags.owndata)
    copied = borrowed and is_host_memory(target)
    array = _placed(value, target, aligned_copy if copied else np.asarray)
    return jax.block_until_ready(array) if borrowed and not copied else array  # until then, JAX reads the caller's array


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
    """A copy that XLA's CPU devices take as it is: they need 64 bytes of alignment, and copy what has less once more."""
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


def move(x: Any, source: Storage, target: Storage) -> Any:
    """The array of `source` on the devices of `target`; no Partial axis on either side."""
    if not source.is_local and not x.sharding.is_equivalent_to(source.sharding, x.ndim):
        x = jax.device_put(x, source.sharding)  # XLA chose another sharding for the result of a user's jit
    parts = _Parts(x, source)
    if target.is_local:
        everything = tuple((0, size) for size in target.shape)
        return _pad(parts.assemble(everything, inventory.resolve(target.mesh.devices[0])), target)
    complete: dict[Block, Any] = {}
    arrays = []
    for name, where in zip(target.mesh.devices, positions(target.mesh), strict=True):
        device, box = inventory.resolve(name), target.layout.block(target.shape, where)
        if box in complete:
            block = jax.device_put(complete[box], device)
        else:
            block = complete[box] = parts.assemble(box, device)
        arrays.append(_padded(block, target))
    return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, arrays)


def _padded(block: Any, target: Storage) -> Any:
    full = target.layout.padded_block(target.shape)
    padding = [(0, size - held) for size, held in zip(full, block.shape, strict=True)]
    return jnp.pad(block, padding) if any(after for _, after in padding) else block


@partial(jax.jit, static_argnums=1)
def _pad(value: Any, target: Storage) -> Any:
    return whole.pad(value, target)


@partial(jax.jit, static_argnums=1)
def _strip(x: Any, source: Storage) -> Any:
    return whole.strip(x, source)


class _Parts:
    """The blocks that a mesh holds, ready to be cut: who holds which, and how much each has sent."""

    def __init__(self, x: Any, source: Storage):
        self.source = source
        self.bounds = [_bounds(size, blocks) for size, blocks in zip(source.shape, self.grid, strict=True)]
        self.holders: dict[tuple[int, ...], list[tuple[Any, Any]]] = {}
        self.sent: dict[Any, int] = {}
        if source.is_local:
            device = next(iter(x.devices()))
            self.holders[(0,) * source.rank] = [(device, _strip(x, source))]
            return
        data = {shard.device: shard.data for shard in x.addressable_shards}
        for device, where in zip(source.mesh.devices, positions(source.mesh), strict=True):
            real = inventory.resolve(device)
            block = source.layout.block(source.shape, where)
            held = data[real][tuple(slice(0, stop - start) for start, stop in block)]
            self.holders.setdefault(source.layout.block_index(where), []).append((real, held))

    @property
    def grid(self) -> tuple[int, ...]:
        return (1,) * self.source.rank if self.source.is_local else self.source.layout.grid

    def assemble(self, box: Block, device: Any) -> Any:
        """The values of `box`, on `device`."""
        ranges = [
            [i for i, (low, high) in enumerate(bounds) if low < stop and start < high] or [0]
            for bounds, (start, stop) in zip(self.bounds, box, strict=True)
        ]
        pieces = {index: self._part(index, box, device) for index in product(*ranges)}
        for dim in reversed(range(len(ranges))):
            rows: dict[tuple, list[Any]] = {}
            for index, piece in sorted(pieces.items()):
                rows.setdefault(index[:dim], []).append(piece)
            pieces = {index: row[0] if len(row) == 1 else jnp.concatenate(row, dim) for index, row in rows.items()}
        return pieces[()]

    def _part(self, index: tuple[int, ...], box: Block, device: Any) -> Any:
        holders = self.holders[index]
        near = [holder for holder in holders if holder[0] == device]
        sender, data = (near or sorted(holders, key=lambda holder: self.sent.get(holder[0], 0)))[0]
        origin = [bounds[i][0] for bounds, i in zip(self.bounds, index, strict=True)]
        cut = tuple(
            slice(max(start - low, 0), max(stop - low, 0)) for (start, stop), low in zip(box, origin, strict=True)
        )
        part = data[cut]
        if sender != device:
            self.sent[sender] = self.sent.get(sender, 0) + part.nbytes
        return jax.device_put(part, device)


def _bounds(size: int, blocks: int) -> list[tuple[int, int]]:
    return [(split_offset(size, blocks, i), split_offset(size, blocks, i + 1)) for i in range(blocks)]
