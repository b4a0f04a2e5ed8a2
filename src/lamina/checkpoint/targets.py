"""Where a leaf that is read shall lie, and as what: one class for each kind of answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from lamina.checkpoint import boxes
from lamina.checkpoint.records import PYTHON, Record
from lamina.checkpoint.tiles import TILE_BYTES
from lamina.engine import inventory
from lamina.engine.storage import Storage
from lamina.ops.arguments import relocate
from lamina.planning.pieces import kept_pieces
from lamina.sharding import Layout
from lamina.sharding.layout import Block
from lamina.tensors import Tensor

Finish = Callable[[], Any]
Pieces = tuple[tuple[str, tuple[int, int]], ...]  # (axis, (first, stop)) for each Partial axis that is kept


@dataclass(frozen=True)
class Home:
    """One device of this process, the box of the tensor that it holds, and which pieces of the Partial axes."""

    device: Any
    box: Block
    pieces: Pieces = ()


@dataclass(frozen=True)
class AsTensor:
    """A Tensor in this storage."""

    held: Storage

    def start(self, root: Path, record: Record) -> Finish:
        """Each device reads its own block, with the pieces that stay; the engine makes new pieces on the device."""
        first = _arrival(record, self.held)
        lead = first.array_shape[: len(first.lead)] if first.is_local else tuple(1 for _ in first.lead)
        padded = (*lead, *first.layout.padded_block(first.shape))
        array = _start(root, record, homes(first), padded, first.array_shape, first.sharding)
        return lambda: relocate(Tensor(array(), first), self.held)


@dataclass(frozen=True)
class AsArray:
    """A jax.Array with this sharding; `keys` names the generator of random keys."""

    sharding: Sharding
    keys: str = ""

    def start(self, root: Path, record: Record) -> Finish:
        found = []
        for device, index in self.sharding.addressable_devices_indices_map(record.shape).items():
            bounds = (part.indices(size) for part, size in zip(index, record.shape, strict=True))
            found.append(Home(device, tuple((start, stop) for start, stop, _ in bounds)))
        array = _start(root, record, found, self.sharding.shard_shape(record.shape), record.shape, self.sharding)
        return (lambda: jax.random.wrap_key_data(array(), impl=self.keys)) if self.keys else array


def _arrival(record: Record, target: Storage) -> Storage:
    """The storage in which blocks come from the disk: pieces that the target keeps, none of those that it makes anew.

    One device that plays a mesh reads the tensor whole; the engine cuts it.
    """
    saved, layout = record.layout, target.layout
    kept = kept_pieces(saved, layout) if saved is not None and saved.axes == layout.axes else {}
    dims = ((),) * layout.rank if target.is_local else layout.dims
    return target.with_layout(Layout(layout.axes, dims, kept))


def homes(held: Storage) -> list[Home]:
    """The devices of this process that hold a part, each with what it holds."""
    here = jax.process_index()
    if held.is_local:
        player = inventory.player(held.mesh)
        pieces = tuple((axis, (0, held.layout.sizes[axis])) for axis in held.lead)
        return [Home(player, tuple((0, size) for size in held.shape), pieces)] if player.process_index == here else []
    devices, found = [inventory.resolve(device) for device in held.mesh.devices], []
    for device, where in zip(devices, held.layout.positions(), strict=True):
        if device.process_index == here:
            pieces = tuple((axis, (where[axis], where[axis] + 1)) for axis in held.lead)
            found.append(Home(device, held.layout.block(held.shape, where), pieces))
    return found


def _start(
    root: Path, record: Record, found: list[Home], padded: tuple[int, ...], shape: tuple[int, ...], sharding: Sharding
) -> Finish:
    """Starts to read what these devices hold, each box once; in the end it is the array of this shape and sharding."""
    keys = dict.fromkeys((home.box, home.pieces) for home in found)
    if record.nbytes <= TILE_BYTES and len(keys) > 1:
        readings = _at_once(root, record, list(keys))
    else:
        readings = {(box, pieces): boxes.start(root, record, box, dict(pieces)) for box, pieces in keys}
    dtype = jax.dtypes.canonicalize_dtype(record.element)  # 64-bit numbers are 32-bit ones without jax_enable_x64

    def finish() -> Any:
        blocks = {key: _padded(reading().astype(dtype, copy=False), padded) for key, reading in readings.items()}
        there = [SingleDeviceSharding(home.device, memory_kind=sharding.memory_kind) for home in found]
        arrays = jax.device_put([blocks[home.box, home.pieces] for home in found], there)
        return jax.make_array_from_single_device_arrays(shape, sharding, arrays, dtype=dtype)

    return finish


def _at_once(root: Path, record: Record, keys: list[tuple[Block, Pieces]]) -> dict[tuple[Block, Pieces], boxes.Reading]:
    """For a small leaf: what surrounds all boxes is read once, and they are cut from it."""
    surrounding: dict[Pieces, boxes.Reading] = {}
    corners: dict[Pieces, tuple[int, ...]] = {}
    for pieces in dict.fromkeys(pieces for _, pieces in keys):
        mine = [box for box, theirs in keys if theirs == pieces]
        bounds = [(min(start for start, _ in dim), max(stop for _, stop in dim)) for dim in zip(*mine, strict=True)]
        surrounding[pieces] = cache(boxes.start(root, record, tuple(bounds), dict(pieces)))
        corners[pieces] = tuple(start for start, _ in bounds)

    def cut(box: Block, pieces: Pieces) -> np.ndarray:
        inside = (slice(a - at, b - at) for (a, b), at in zip(box, corners[pieces], strict=True))
        index: tuple[Any, ...] = (..., *inside)
        return surrounding[pieces]()[index]

    return {(box, pieces): partial(cut, box, pieces) for box, pieces in keys}


def _padded(block: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    padding = [(0, full - size) for full, size in zip(shape, block.shape, strict=True)]
    return np.pad(block, padding) if any(after for _, after in padding) else block


@dataclass(frozen=True)
class AsNumpy:
    """A numpy array; a numpy scalar where `scalar`."""

    scalar: bool = False

    def start(self, root: Path, record: Record) -> Finish:
        reading = boxes.start(root, record, tuple((0, size) for size in record.shape))
        return lambda: reading()[()] if self.scalar else reading()


@dataclass(frozen=True)
class AsPython:
    """A Python value: the one that was saved, or the one element of an array."""

    def start(self, root: Path, record: Record) -> Finish:
        if record.kind == PYTHON:
            return lambda: record.value
        reading = boxes.start(root, record, tuple((0, size) for size in record.shape))
        return lambda: reading().item()


Target = AsTensor | AsArray | AsNumpy | AsPython
