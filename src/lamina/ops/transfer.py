"""To a device, or to any mapping: `to_device` and its short names."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, Sharding

from lamina.engine import inventory
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LayoutError, explained
from lamina.ops.arguments import over_leaves, relocate, shape_of, storage_for
from lamina.sharding import CPU, Accelerator, Device, DeviceMapping, DeviceMesh, Layout
from lamina.tensors import Tensor, tensor


def to_device(x: Any, device: Any = None, *, sharding: Any = None) -> Any:
    """x on one device, or lying as a mapping says.

    `device` is a lamina Device, a JAX device, or a mapping; `sharding` is any DeviceMapping or JAX Sharding.  Not both.
    With neither, a tensor stays where it is and host data goes to the default device.  A split x is gathered onto the
    device; its gradient returns to x's layout.  Takes pytrees.

    >>> import numpy as np, lamina
    >>> lamina.to_device(np.ones(3), lamina.CPU(1)).device
    CPU(1)
    """
    if device is not None and sharding is not None:
        raise LayoutError(f"to_device(device={device!r}, sharding={sharding!r}): give one of them, not both")
    chosen = device if sharding is None else sharding
    if chosen is None:
        return over_leaves(tensor, x)
    return over_leaves(lambda leaf: _to(leaf, chosen, "device" if sharding is None else "sharding"), x)


def _to(x: Any, chosen: Any, argument: str) -> Tensor:
    shape = shape_of(x)
    with explained(f"to_device({argument}={chosen!r})", shape=shape):
        return relocate(x, _target(chosen, shape, argument))


def _target(chosen: Any, shape: tuple[int, ...], argument: str) -> Storage:
    if isinstance(chosen, Device):
        inventory.resolve(chosen)
        return whole(DeviceMesh.single(chosen), shape)
    if isinstance(chosen, DeviceMapping):
        if not chosen.is_fully_resolved:
            raise LayoutError(f"{chosen!r} leaves dims open or to propagation: close them first")
        return storage_for(chosen, shape)
    if isinstance(chosen, jax.Device):
        return whole(DeviceMesh.single(inventory.name_of(chosen)), shape)
    if isinstance(chosen, NamedSharding):
        mesh = inventory.mesh_of(chosen.mesh)
        spec = [*chosen.spec, *[None] * (len(shape) - len(chosen.spec))]
        dims = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec]
        return storage(mesh, Layout(mesh.axes, dims), shape)
    if isinstance(chosen, Sharding) and len(chosen.device_set) == 1:
        return whole(DeviceMesh.single(inventory.name_of(next(iter(chosen.device_set)))), shape)
    raise TypeError(
        f"to_device({argument}): {chosen!r} is neither a device (lamina.CPU(i), lamina.Accelerator(i), a jax.Device) "
        "nor a mapping (a lamina DeviceMapping, a jax NamedSharding)"
    )


def transfer_to(x: Any, device: Any = None, *, sharding: Any = None) -> Any:
    """Another name for `to_device`."""
    return to_device(x, device, sharding=sharding)


def cpu(x: Any) -> Any:
    """x on the first CPU device: `to_device(x, CPU())`.

    >>> import lamina
    >>> lamina.cpu(1.0).device
    CPU(0)
    """
    return to_device(x, CPU())


def gpu(x: Any) -> Any:
    """x on the first accelerator: `to_device(x, Accelerator())`."""
    return to_device(x, Accelerator())


def accelerator(x: Any, device_id: int = 0) -> Any:
    """x on an accelerator: `to_device(x, Accelerator(device_id))`."""
    return to_device(x, Accelerator(device_id))
