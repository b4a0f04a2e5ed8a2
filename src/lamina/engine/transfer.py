"""Values that come to a mesh from host memory, and go there.

Each device gets just its own block, cut from the caller's array: no device ever holds the whole, and a block is padded
only if the layout is uneven.  How the bytes travel is `pipeline`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from lamina.engine import compat, inventory, pipeline, watching, whole
from lamina.engine.blocks import identity
from lamina.engine.pipeline import Load
from lamina.engine.storage import Storage
from lamina.sharding import Device
from lamina.sharding.dims import split_sizes
from lamina.sharding.layout import Block
from lamina.sharding.mesh import positions


@compat.at_once
def place(value: Any, target: Storage, own: bool = False) -> Any:
    """Host data, the same in every process, as the array of `target`: each shard goes to its device, once.

    `own` says that nobody will write to `value` again, so that a device in the same memory may use it as it is.
    """
    given, value = value, np.asarray(value)
    own = own or (value is not given and value.flags.owndata)
    read = Read(
        lambda box: value[_slices(box)], value.dtype, lambda block: own or not np.may_share_memory(block, value)
    )
    array = placed(read, target)
    return array if own else _read(array, target.mesh.devices[0])


@dataclass(frozen=True)
class Read:
    """Where blocks of a host value come from: `block(box)` is the block; nobody will write to it if it `is_own`."""

    block: Callable[[Block], np.ndarray]
    dtype: Any
    is_own: Callable[[np.ndarray], bool]


def placed(read: Read, target: Storage) -> Any:
    """The blocks on their devices, those of this process: each block is read once."""
    dtype = jax.dtypes.canonicalize_dtype(read.dtype)  # what is sent; no copy of all of the value is made for it
    if target.is_local:
        return _placed_whole(read, dtype, target)
    blocks: dict[tuple, tuple[np.ndarray, bool]] = {}
    loads = []
    for device, where in zip(target.mesh.devices, positions(target.mesh), strict=True):
        if (real := inventory.resolve(device)).process_index != jax.process_index():
            continue
        box, mark = target.layout.block(target.shape, where), target.layout.keeps_the_value(where)
        if (box, mark) not in blocks:
            part = read.block(box)
            block = _host_block(part, dtype, mark, target)
            blocks[box, mark] = block, not np.may_share_memory(block, part) or read.is_own(block)
        block, ours = blocks[box, mark]
        loads.append(Load.of(block, dtype, real, target.memory_kind, ours))
    arrays = pipeline.send(loads)
    return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, arrays, dtype=dtype)


def _placed_whole(read: Read, dtype: Any, target: Storage) -> Any:
    home = inventory.player(target.mesh)
    if home.process_index != jax.process_index():
        return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, [], dtype=dtype)
    value = read.block(tuple((0, size) for size in target.shape))
    (there,) = pipeline.send([Load.of(value, dtype, home, target.memory_kind, read.is_own(value))])
    return there if target.is_plain else _encode(there, target)


def _slices(box: Block) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in box)


def place_stacked(inputs: Sequence[np.ndarray], devices: Sequence[Device], axis: int) -> list[Any]:
    """Per device the chunks at its place of all inputs, cut along `axis` and stacked: straight from the inputs.

    >>> from lamina.sharding import CPU
    >>> a = np.arange(12.0).reshape(4, 3)
    >>> [x.shape for x in place_stacked([a, a], [CPU(0), CPU(1)], 0)]
    [(2, 2, 3), (2, 2, 3)]
    """
    dtype = jax.dtypes.canonicalize_dtype(inputs[0].dtype)
    pieces = [np.split(value[None], len(devices), axis=axis + 1) for value in inputs]
    loads = []
    for i, device in enumerate(devices):
        views = [cut[i] for cut in pieces]
        parts = tuple(((j, *(0,) * (view.ndim - 1)), view) for j, view in enumerate(views))
        loads.append(Load((len(views), *views[0].shape[1:]), dtype, parts, inventory.resolve(device)))
    return _sent(loads)


def place_each(values: Sequence[np.ndarray], dtypes: Sequence[Any], devices: Sequence[Device]) -> list[Any]:
    """Each value on its device, all on their way at once.

    >>> from lamina.sharding import CPU
    >>> place_each([np.ones(2), np.ones(3)], ["float32", "int8"], [CPU(0), CPU(1)])[1].dtype.name
    'int8'
    """
    homes = [inventory.resolve(device) for device in devices]
    return _sent([Load.of(*one) for one in zip(values, map(jax.numpy.dtype, dtypes), homes, strict=True)])


def _sent(loads: Sequence[Load]) -> list[Any]:
    """The loads on their devices; what belongs to another process is sent there by that one."""
    here = [load.device.process_index == jax.process_index() for load in loads]
    sent = iter(pipeline.send([load for load, is_mine in zip(loads, here, strict=True) if is_mine]))
    return [_arrived(next(sent), load) if is_mine else _absent(load) for load, is_mine in zip(loads, here, strict=True)]


def _absent(load: Load) -> Any:
    there = SingleDeviceSharding(load.device)
    return jax.make_array_from_single_device_arrays(load.shape, there, [], dtype=load.dtype)


def _arrived(array: Any, load: Load) -> Any:
    return array if load.device.platform == "cpu" else watching.ready(array)


def _read(array: Any, device: Device) -> Any:
    """The array, when nobody reads the caller's memory any more: host memory was copied, elsewhere it must arrive."""
    return array if inventory.resolve(device).platform == "cpu" else watching.ready(array)


def repack(x: Any, source: Storage, target: Storage) -> Any:
    """The array of `source` as the array of `target`, through the host's memory; no Partial axis on either side."""
    return place(host_value(x, source), target, own=True)


def host_value(x: Any, held: Storage) -> np.ndarray:
    """The global value on the host, without the padding; no Partial axis."""
    stored = x if isinstance(x, np.ndarray) else np.asarray(watching.ready(x))
    for dim, (size, blocks) in enumerate(zip(held.shape, held.layout.grid, strict=True)):
        if size % blocks:
            full = -(-size // blocks)
            parts = np.split(stored, blocks, axis=dim)
            sizes = split_sizes(size, blocks)
            kept = [np.take(p, range(n), axis=dim) if n < full else p for p, n in zip(parts, sizes, strict=True)]
            stored = np.concatenate(kept, axis=dim)
    return stored


def _host_block(block: np.ndarray, dtype: Any, mark: str | None, target: Storage) -> np.ndarray:
    """The padded block that a device holds, with one leading entry per Partial axis."""
    if mark is not None:
        op = target.layout.reduce_op(mark)
        assert op is not None
        block = np.broadcast_to(identity(op, dtype), block.shape)
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
