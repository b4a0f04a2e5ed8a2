"""Values that go to another mesh: the same devices in another order, some of them, others.

A planned Transfer carried out: each part of a block is cut where its sender holds it, goes to its receiver's device,
and is put in its place there (see `planning.schedule`).  One device that plays a whole mesh holds one block, all of it.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import crossing_processes, inventory, transfer, watching, whole
from lamina.engine.links import default_links
from lamina.engine.storage import Storage
from lamina.errors import ProcessError, with_fix
from lamina.planning import Transfer, homes_between, plan_across
from lamina.planning.schedule import Message, schedule
from lamina.planning.topology import Topology
from lamina.sharding import DeviceMesh, Layout


@lru_cache(maxsize=4096)
def way_stations(
    source: Storage, target: Storage, itemsize: float, memory_limit: float | None, topology: Topology | None
) -> tuple[Storage, Storage]:
    """In which storage a value leaves the mesh of `source`, and in which it arrives on that of `target`."""
    if source.is_local or target.is_local:  # no devices to share the work
        return source.without_pieces(), target.without_pieces()
    homes, links = homes_between(source.mesh, target.mesh), topology or default_links(target.mesh)
    route = plan_across(source.layout, target.layout, source.shape, homes, itemsize, memory_limit, links)
    crossing = next(i for i, step in enumerate(route.steps) if isinstance(step, Transfer))
    leaving, arriving = route.layouts[crossing : crossing + 2]
    return source.with_layout(leaving), target.with_layout(arriving)


def move(x: Any, source: Storage, target: Storage) -> Any:
    """The array of `source` on the devices of `target`; no Partial axis on either side."""
    here, there = _unpadded(source), _unpadded(target)
    if not (watching.is_whole_here(source.mesh) and watching.is_whole_here(target.mesh)):
        return _between_processes(x, source, here, target, there)
    x = source.home(x)
    turns = schedule(here.layout, there.layout, source.shape, homes_between(here.mesh, there.mesh))
    messages = [message for turn in (*turns.copies, *turns.rounds) for message in turn]
    blocks = _blocks(x, source, here)
    devices = [inventory.resolve(device) for device in there.mesh.devices]
    sent = jax.device_put([_cut(blocks, m) for m in messages], [devices[m.receiver] for m in messages])
    parts: list[dict[tuple[int, ...], Any]] = [{} for _ in devices]
    for message, part in zip(messages, sent, strict=True):
        parts[message.receiver][message.put] = part
    wanted = [there.layout.block(there.shape, where) for where in there.layout.positions()]
    arrays = [
        _joined(mine) if mine else jax.device_put(np.zeros([stop - start for start, stop in block], x.dtype), device)
        for mine, block, device in zip(parts, wanted, devices, strict=True)
    ]
    if target.is_local:
        return _pad(arrays[0], target)
    arrays = [_padded(array, target) for array in arrays]
    return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, arrays)


def _between_processes(x: Any, source: Storage, here: Storage, target: Storage, there: Storage) -> Any:
    """The same where several processes have devices of the two meshes."""
    if source.is_local:
        return _from_one_device(x, source, target)
    if target.mesh.is_simulated:
        return transfer.place(crossing_processes.on_each(x, source), target, own=True)
    arrays = crossing_processes.move(x, here, there)
    if target.is_local and arrays:
        return _pad(arrays[0], target)
    return jax.make_array_from_single_device_arrays(target.array_shape, target.sharding, arrays, dtype=x.dtype)


def _from_one_device(x: Any, source: Storage, target: Storage) -> Any:
    """From a device of this process: every process has such a tensor, with the same value, as host data has."""
    if watching.is_here(source.mesh):
        return transfer.place(transfer.host_value(x, source), target, own=True)
    device, (owner,) = source.mesh.devices[0], watching.ranks_of(source.mesh)
    fact = f"this Tensor lies on {device!r}, which belongs to process {owner} alone, and goes to {target.mesh!r}"
    fix = f"keep it on a mesh that has devices of every process, such as {target.mesh!r}"
    raise ProcessError(with_fix(fact, fix))


def _unpadded(held: Storage) -> Storage:
    """The storage; of one device that plays a mesh, that of the device alone."""
    if not held.is_local:
        return held
    mesh = DeviceMesh.single(inventory.name_of(inventory.player(held.mesh)))
    return Storage(mesh, Layout(mesh.axes, ((),) * held.rank), held.shape, None)


def _blocks(x: Any, source: Storage, here: Storage) -> list[Any]:
    """What each position of the mesh `here` holds, padding and all."""
    if source.is_local:
        return [_strip(x, source)]
    data = {shard.device: shard.data for shard in x.addressable_shards}
    return [data[inventory.resolve(device)] for device in here.mesh.devices]


def _cut(blocks: list[Any], message: Message) -> Any:
    block = blocks[message.sender]
    if message.shape == block.shape:
        return block
    return block[tuple(slice(at, at + size) for at, size in zip(message.cut, message.shape, strict=True))]


def _joined(parts: dict[tuple[int, ...], Any]) -> Any:
    """The block made of the parts at these offsets, joined along the last dim first."""
    for dim in reversed(range(len(next(iter(parts))))):
        rows: dict[tuple[int, ...], list[Any]] = {}
        for offset, part in sorted(parts.items(), key=lambda item: item[0]):
            rows.setdefault((*offset[:dim], 0, *offset[dim + 1 :]), []).append(part)
        parts = {start: row[0] if len(row) == 1 else jnp.concatenate(row, dim) for start, row in rows.items()}
    (block,) = parts.values()
    return block


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
