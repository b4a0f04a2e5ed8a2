"""Values that go to another mesh where more than one process has devices of the two meshes.

JAX copies an array only between devices of one process, so here the transfer is a program over all devices of both
meshes, in one row: every device of the source brings its block, the schedule's rounds of messages run as permutes, and
every device of the target has its block in the end.  Only the processes that have devices of either mesh run it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from lamina.engine import compat, exchange, inventory, watching
from lamina.engine.storage import Storage
from lamina.engine.transfer import host_value
from lamina.planning import homes_between
from lamina.planning.schedule import Message, Schedule, schedule
from lamina.sharding import Device
from lamina.sharding.layout import Layout

ROW = "device"  # the axis of all devices in one row


def move(x: Any, here: Storage, there: Storage) -> list[Any]:
    """The padded blocks of `there` on this process's devices of it, from the array of `here`; nothing is Partial."""
    own = {shard.device: shard.data for shard in x.addressable_shards}
    row = _row(here, there)
    devices = [inventory.resolve(device) for device in row]
    mine = [device for device in devices if device.process_index == jax.process_index()]
    if not mine:
        return []
    block = here.layout.padded_block(here.shape)
    empty = np.zeros(block, x.dtype)
    parts = [_as_row(own[d] if d in own else jax.device_put(empty, d)) for d in mine]
    mesh = compat.make_mesh(np.array(devices), (ROW,))
    sharding = NamedSharding(mesh, PartitionSpec(ROW))
    stacked = jax.make_array_from_single_device_arrays((len(row), *block), sharding, parts)
    found = {shard.device: shard.data for shard in _program(here, there)(stacked).addressable_shards}
    targets = [inventory.resolve(device) for device in there.mesh.devices]
    return [_from_row(found[device]) for device in targets if device.process_index == jax.process_index()]


def on_each(x: Any, here: Storage) -> np.ndarray:
    """The global value on the host of each process that has devices of the mesh; nothing is Partial."""
    everywhere = NamedSharding(inventory.jax_mesh(here.mesh), PartitionSpec())
    stored = watching.ready(_same(everywhere)(x)).addressable_data(0)
    return host_value(np.asarray(stored), here)


@lru_cache(maxsize=256)
def _same(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


@jax.jit
def _as_row(block: Any) -> Any:
    return block[None]


@jax.jit
def _from_row(row: Any) -> Any:
    return row[0]


def _row(here: Storage, there: Storage) -> tuple[Device, ...]:
    """All devices of both meshes, each once."""
    return tuple(dict.fromkeys((*here.mesh.devices, *there.mesh.devices)))


@lru_cache(maxsize=1024)
def _program(here: Storage, there: Storage) -> Any:
    row = _row(here, there)
    mesh = compat.make_mesh(np.array([inventory.resolve(device) for device in row]), (ROW,))
    turns = _in_row(here, there, row)
    line = Layout({ROW: len(row)}, ((),) * here.rank)
    arriving = there.layout.padded_block(there.shape)

    def on_device(stacked: Any) -> Any:
        device = jax.lax.axis_index(ROW)
        block = jnp.zeros(arriving, stacked.dtype)
        for turn in turns.copies:
            block = exchange.put(block, exchange.cut(stacked[0], turn, device, line), turn, None, device, line)
        for turn in turns.rounds:
            part = exchange.cut(stacked[0], turn, device, line)
            received = jax.lax.ppermute(part, ROW, [(message.sender, message.receiver) for message in turn])
            block = exchange.put(block, received, turn, None, device, line)
        return block[None]

    spec = PartitionSpec(ROW)
    return jax.jit(compat.shard_map(on_device, mesh, spec, spec))


def _in_row(here: Storage, there: Storage, row: tuple[Device, ...]) -> Schedule:
    """The schedule with senders and receivers counted in the row."""
    place = {device: position for position, device in enumerate(row)}

    def moved(message: Message) -> Message:
        sender, receiver = here.mesh.devices[message.sender], there.mesh.devices[message.receiver]
        return replace(message, sender=place[sender], receiver=place[receiver])

    turns = schedule(here.layout, there.layout, here.shape, homes_between(here.mesh, there.mesh))
    copies, rounds = (tuple(tuple(map(moved, turn)) for turn in part) for part in (turns.copies, turns.rounds))
    return Schedule(copies, rounds)
