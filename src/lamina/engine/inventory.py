"""Which devices there are: names (`lamina.CPU(3)`) ↔ JAX's devices, and meshes of one kind ↔ the other."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from lamina.engine import compat
from lamina.errors import DeviceError, with_fix
from lamina.sharding import CPU, Accelerator, Device, DeviceMesh


@lru_cache(maxsize=1)
def _accelerators() -> tuple[Any, ...]:
    """The devices of JAX's default backend, when that isn't the CPU."""
    default = jax.devices()
    return tuple(default) if default[0].platform != "cpu" else ()


def accelerator_count() -> int:
    return len(_accelerators())


def default_devices(count: int | None = None) -> tuple[Device, ...]:
    """The first `count` devices, all by default; of several processes the same number of each, where that goes."""
    there, processes = jax.devices(), jax.process_count()
    if count is None or count >= len(there) or count % processes:
        return tuple(map(name_of, there[:count]))
    each = count // processes
    own = [[device for device in there if device.process_index == rank][:each] for rank in range(processes)]
    chosen = [device for devices in own for device in devices]
    return tuple(map(name_of, chosen if len(chosen) == count else there[:count]))


def default_device() -> Device:
    """The one that JAX computes on; of several processes each has its own."""
    return name_of(_preferred() or jax.local_devices()[0])


def _preferred() -> Any:
    """The device of `with jax.default_device(...)`, if one is set."""
    chosen = jax.config.jax_default_device
    return jax.devices(chosen)[0] if isinstance(chosen, str) else chosen


@lru_cache(maxsize=4096)
def resolve(device: Device) -> Any:
    """JAX's device for a name; DeviceError says which devices there are."""
    there = _accelerators() if isinstance(device, Accelerator) else jax.devices("cpu")
    if device.id < len(there):
        return there[device.id]
    if not there:
        fact, fix = (
            "this process sees no accelerator",
            "name a lamina.CPU(i), or let DeviceMesh.create take what is there",
        )
    elif isinstance(device, Accelerator):
        fact, fix = "there is no such device", f"name one of Accelerator(0)..Accelerator({len(there) - 1})"
    else:
        fact = "there is no such device"
        fix = f'jax.config.update("jax_num_cpu_devices", {device.id + 1}) before anything uses JAX'
    raise DeviceError(with_fix(f"{device}: {fact}, only {inventory()}", fix))


@lru_cache(maxsize=1024)
def player(mesh: DeviceMesh) -> Any:
    """JAX's device that plays a mesh of one device, or a simulated one: of the latter each process plays its own."""
    device = resolve(mesh.devices[0])
    if not mesh.is_simulated or device.process_index == jax.process_index():
        return device
    own = [other for other in jax.local_devices() if other.platform == device.platform]
    return own[mesh.devices[0].id % len(own)]


def check_memory(device: Device, kind: str) -> None:
    """A memory kind that the device doesn't have is a DeviceError that lists those that it has."""
    there = [memory.kind for memory in resolve(device).addressable_memories()]
    if kind not in there:
        fact = f"memory_kind={kind!r}: {device} has no such memory, only {', '.join(there)}"
        raise DeviceError(with_fix(fact, "name one of these, or leave memory_kind out"))


@lru_cache(maxsize=4096)
def name_of(device: Any) -> Device:
    """The name of one of JAX's devices."""
    if device.platform == "cpu":
        return CPU(jax.devices("cpu").index(device))
    if device in _accelerators():
        return Accelerator(_accelerators().index(device))
    raise DeviceError(f"{device} is on the backend {device.platform!r}, which isn't JAX's default one")


def inventory() -> str:
    """All devices, in words."""
    cpus = len(jax.devices("cpu"))
    parts = ["CPU(0)" if cpus == 1 else f"CPU(0)..CPU({cpus - 1})"]
    if count := accelerator_count():
        parts.append("Accelerator(0)" if count == 1 else f"Accelerator(0)..Accelerator({count - 1})")
    return ", ".join(parts)


@lru_cache(maxsize=256)
def jax_mesh(mesh: DeviceMesh) -> Any:
    """JAX's mesh over the same devices."""
    return compat.make_mesh(np.array([resolve(d) for d in mesh.devices]).reshape(mesh.mesh_shape), mesh.axis_names)


def processes_of(mesh: DeviceMesh) -> np.ndarray:
    """The number of the process that each position's device belongs to, in the mesh's shape."""
    return np.array([resolve(device).process_index for device in mesh.devices]).reshape(mesh.mesh_shape)


@lru_cache(maxsize=256)
def mesh_of(mesh: Any) -> DeviceMesh:
    """Lamina's mesh over the same devices as JAX's."""
    return DeviceMesh([name_of(d) for d in mesh.devices.flat], mesh.devices.shape, [str(n) for n in mesh.axis_names])
