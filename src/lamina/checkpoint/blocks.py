"""What this process writes of each leaf: the blocks that it is the first to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from lamina.checkpoint.records import Record
from lamina.checkpoint.tiles import Tiling
from lamina.engine import inventory, whole
from lamina.engine.storage import Storage
from lamina.sharding import DeviceMesh, Layout
from lamina.sharding.mesh import positions
from lamina.tensors import Tensor


@dataclass(frozen=True)
class Part:
    """A part of a leaf's array, and how to get its values onto the host."""

    record: Record
    where: tuple[slice, ...]
    fetch: Callable[[], np.ndarray]

    @property
    def nbytes(self) -> int:
        return prod(place.stop - place.start for place in self.where) * self.record.element.itemsize

    @property
    def files(self) -> int:
        """How many tiles it touches; none of them is touched by another part."""
        tiles = zip(self.where, self.record.tiles.chunk_shape, strict=True)
        return prod(-(-place.stop // size) - place.start // size for place, size in tiles)


def parts_of(record: Record, leaf: Any, each_has_it: bool) -> Iterator[Part]:
    """The parts that this process writes: the first holder a block, process 0 what each process has for itself."""
    if not record.nbytes or (each_has_it and jax.process_index() != 0):
        return
    if isinstance(leaf, Tensor):
        yield from _parts_of_tensor(record, leaf)
    else:
        yield Part(record, tuple(slice(0, size) for size in record.shape), lambda: host(leaf))


def _parts_of_tensor(record: Record, t: Tensor) -> Iterator[Part]:
    array, held = t._held.home(t._array), t._held
    if held.is_local:
        if inventory.player(held.mesh).process_index == jax.process_index():
            everything = tuple(slice(0, size) for size in record.tiles.array_shape)
            yield Part(record, everything, lambda: _stripped(host(array), held))
        return
    data = {shard.device: shard.data for shard in array.addressable_shards}
    if record.stored != held.layout:
        if data:
            everything = tuple(slice(0, size) for size in record.tiles.array_shape)
            yield Part(record, everything, partial(_gathered, data, held))
        return
    devices = [inventory.resolve(device) for device in held.mesh.devices]
    for position, pieces, block in own_blocks(held.mesh, held.layout, jax.process_index()):
        where, sizes = _where(record.tiles, pieces, block)
        if all(sizes):
            yield Part(record, where, partial(_block, data[devices[position]], sizes))


def _where(tiles: Tiling, pieces: tuple[int, ...], block: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """The place of a block in the array, and its own size without padding."""
    small = [size // blocks for size, blocks in zip(tiles.shape, tiles.layout.grid, strict=True)]
    longer = [size % blocks for size, blocks in zip(tiles.shape, tiles.layout.grid, strict=True)]
    sizes = tuple(size + (index < rest) for size, rest, index in zip(small, longer, block, strict=True))
    dims = (slice(start, start + size) for start, size in zip(tiles.place(block), sizes, strict=True))
    return (*(slice(piece, piece + 1) for piece in pieces), *dims), sizes


@lru_cache(maxsize=1024)
def own_blocks(
    mesh: DeviceMesh, layout: Layout, process: int
) -> tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]:
    """(position, piece, block) for each block of which a device of this process is the first holder, in mesh order."""
    seen: set[tuple] = set()
    own = []
    for position, where in enumerate(positions(mesh)):
        key = tuple(where[axis] for axis in layout.partial_axes), layout.block_index(where)
        if key in seen:
            continue
        seen.add(key)
        if inventory.resolve(mesh.devices[position]).process_index == process:
            own.append((position, *key))
    return tuple(own)


def host(data: Any) -> np.ndarray:
    """A jax.Array on one device (or host data) as numpy has it.

    Through an array of its own: JAX keeps the host's copy with the array that was asked for it, which would double what
    the program holds.
    """
    if not isinstance(data, jax.Array):
        return np.asarray(data)
    (device,) = data.devices()
    home = SingleDeviceSharding(device, memory_kind=data.sharding.memory_kind)
    return np.asarray(jax.make_array_from_single_device_arrays(data.shape, home, [data]))


def _block(data: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """A device's block without its padding; the pieces' axes in front have one entry."""
    index: tuple[Any, ...] = (..., *(slice(0, size) for size in sizes))
    return host(data)[index]


def _gathered(data: dict[Any, Any], held: Storage) -> np.ndarray:
    """All blocks of a tensor whose devices are this process's own, in their places; the pieces stay."""
    value: np.ndarray | None = None
    for position, pieces, _ in own_blocks(held.mesh, held.layout, jax.process_index()):
        where = dict(zip(held.mesh.axis_names, held.mesh.coordinates(position), strict=True))
        box = held.layout.block(held.shape, where)
        block = _block(data[inventory.resolve(held.mesh.devices[position])], tuple(stop - start for start, stop in box))
        if value is None:
            value = np.empty((*held.array_shape[: len(held.lead)], *held.shape), block.dtype)
        index: tuple[Any, ...] = (*pieces, *(slice(start, stop) for start, stop in box))
        value[index] = block[(0,) * len(pieces)]
    assert value is not None
    return value


def _stripped(stored: np.ndarray, held: Storage) -> np.ndarray:
    """What one device that plays a mesh holds, without padding; the pieces stay."""
    if held.array_shape[len(held.lead) :] == held.shape:
        return stored
    plain = np.empty((*held.array_shape[: len(held.lead)], *held.shape), stored.dtype)
    cuts = whole.cut(stored, held)
    for part, where in zip(cuts, positions(held.mesh), strict=True):
        box = held.layout.block(held.shape, where)
        index: tuple[Any, ...] = (*(where[axis] for axis in held.lead), *(slice(start, stop) for start, stop in box))
        plain[index] = part
    return plain


def snapshot(part: Part) -> Part:
    """The part with its values as they are now, in memory that nobody else will touch."""
    values = np.array(part.fetch(), copy=True)
    return Part(part.record, part.where, lambda: values)
