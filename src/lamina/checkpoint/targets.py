"""Where a leaf that is read shall lie, and as what: one class for each kind of answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding

from lamina.checkpoint import boxes
from lamina.checkpoint.records import PYTHON, Record
from lamina.engine import inventory
from lamina.engine.storage import Storage
from lamina.ops.arguments import relocate
from lamina.planning.pieces import kept_pieces
from lamina.sharding import Layout
from lamina.sharding.layout import Block
from lamina.sharding.mesh import positions
from lamina.tensors import Tensor

Finish = Callable[[], Any]


@dataclass(frozen=True)
class AsTensor:
    """A Tensor in this storage."""

    held: Storage

    def start(self, root: Path, record: Record) -> Finish:
        """Each device reads its own block, with the pieces that stay; the engine makes new pieces on the device."""
        first = _arrival(record, self.held)
        kept = first.lead
        readings: dict[tuple[Block, tuple[int, ...]], boxes.Reading] = {}
        homes: list[tuple[Any, tuple[Block, tuple[int, ...]]]] = []
        if first.is_local:
            box = tuple((0, size) for size in first.shape)
            pieces = {axis: slice(0, first.layout.sizes[axis]) for axis in kept}
            whole = boxes.start(root, record, box, pieces)
            return lambda: self._arrived(jax.device_put(_canonical(whole()), first.sharding), first)
        for device, where in zip(first.mesh.devices, positions(first.mesh), strict=True):
            real = inventory.resolve(device)
            if real.process_index != jax.process_index():
                continue
            key = first.layout.block(first.shape, where), tuple(where[axis] for axis in kept)
            if key not in readings:
                pieces = {axis: slice(where[axis], where[axis] + 1) for axis in kept}
                readings[key] = boxes.start(root, record, key[0], pieces)
            homes.append((SingleDeviceSharding(real, memory_kind=first.memory_kind), key))
        padded = (*(1 for _ in kept), *first.layout.padded_block(first.shape))

        def finish() -> Tensor:
            blocks = {key: _padded(_canonical(reading()), padded) for key, reading in readings.items()}
            arrays = jax.device_put([blocks[key] for _, key in homes], [home for home, _ in homes])
            array = jax.make_array_from_single_device_arrays(first.array_shape, first.sharding, arrays)
            return self._arrived(array, first)

        return finish

    def _arrived(self, array: Any, first: Storage) -> Tensor:
        return relocate(Tensor(array, first), self.held)


def _arrival(record: Record, target: Storage) -> Storage:
    """The storage in which blocks come from the disk: pieces that the target keeps, none of those that it makes anew.

    One device that plays a mesh reads the tensor whole; the engine cuts it.
    """
    saved, layout = record.layout, target.layout
    kept = kept_pieces(saved, layout) if saved is not None and saved.axes == layout.axes else {}
    dims = ((),) * layout.rank if target.is_local else layout.dims
    return target.with_layout(Layout(layout.axes, dims, kept))


def _padded(block: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    padding = [(0, full - size) for full, size in zip(shape, block.shape, strict=True)]
    return np.pad(block, padding) if any(after for _, after in padding) else block


def _canonical(value: np.ndarray) -> np.ndarray:
    """What JAX makes of it: 64-bit numbers are 32-bit ones unless jax_enable_x64 is set."""
    return value.astype(jax.dtypes.canonicalize_dtype(value.dtype), copy=False)


@dataclass(frozen=True)
class AsArray:
    """A jax.Array with this sharding; `keys` names the generator of random keys."""

    sharding: Sharding
    keys: str = ""

    def start(self, root: Path, record: Record) -> Finish:
        readings: dict[Block, boxes.Reading] = {}
        homes = []
        for device, index in self.sharding.addressable_devices_indices_map(record.shape).items():
            places = (part.indices(size)[:2] for part, size in zip(index, record.shape, strict=True))
            box = tuple(places)
            if box not in readings:
                readings[box] = boxes.start(root, record, box)
            homes.append((SingleDeviceSharding(device, memory_kind=self.sharding.memory_kind), box))

        def finish() -> Any:
            blocks = {box: _canonical(reading()) for box, reading in readings.items()}
            arrays = jax.device_put([blocks[box] for _, box in homes], [home for home, _ in homes])
            array = jax.make_array_from_single_device_arrays(record.shape, self.sharding, arrays)
            return jax.random.wrap_key_data(array, impl=self.keys) if self.keys else array

        return finish


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
