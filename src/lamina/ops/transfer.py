"""To a device, or to any mapping: `to_device` and its short names."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, Sharding

from lamina.engine import inventory, reading
from lamina.engine.storage import Storage, storage, whole
from lamina.errors import LaminaError, LayoutError, explained, with_fix
from lamina.ops.arguments import as_data, decided_once, over_leaves, relocate, shape_of, storage_for
from lamina.sharding import CPU, Accelerator, Device, DeviceMapping, DeviceMesh, TensorLayout
from lamina.sharding.dims import is_static
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
    return _moved("to_device", x, device, sharding)


def _moved(op: str, x: Any, device: Any, sharding: Any = None) -> Any:
    """`to_device` under the name that the user called."""
    if device is not None and sharding is not None:
        fact = f"{op}(device={device!r}, sharding={sharding!r}): give one of them, not both"
        raise LayoutError(with_fix(fact, "a mapping names its devices itself"))
    argument, chosen = ("device", device) if sharding is None else ("sharding", sharding)
    if chosen is None:
        return over_leaves(tensor, x)
    return over_leaves(lambda leaf: _to(op, leaf, chosen, argument), x)


def _to(op: str, x: Any, chosen: Any, argument: str) -> Tensor:
    x = as_data(x, op)
    shape = shape_of(x)
    try:
        return relocate(x, _target(chosen, shape, f"{op}({argument})"))
    except LaminaError:  # only then, since to write the mapping down takes longer than a small transfer
        with explained(f"{op}({argument}={chosen!r})", "a mapping for a tensor of this rank", shape=shape):
            raise


@decided_once
def _target(chosen: Any, shape: tuple[int, ...], argument: str) -> Storage:
    if isinstance(chosen, Device):
        inventory.resolve(chosen)
        return whole(DeviceMesh.single(chosen), shape)
    if isinstance(chosen, TensorLayout) and not _may_be(chosen.shape, shape):
        fact = f"{chosen!r} is the layout of another tensor: its shape is not {shape}"
        raise LayoutError(with_fix(fact, "give its .mapping, which fits every shape of that rank"))
    if isinstance(chosen, DeviceMapping):
        if not chosen.is_fully_resolved:
            fact = f"{chosen!r} leaves dims open or to propagation"
            raise LayoutError(with_fix(fact, "close its dims: name their axes, without `?` and priorities"))
        return storage_for(chosen, shape)
    if isinstance(chosen, jax.Device):
        return whole(DeviceMesh.single(inventory.name_of(chosen)), shape)
    if isinstance(chosen, NamedSharding):
        mesh, layout = reading.layout_of(chosen, len(shape))
        return storage(mesh, layout, shape, reading.memory_kind_of(chosen))
    if isinstance(chosen, Sharding) and len(chosen.device_set) == 1:
        one = whole(DeviceMesh.single(inventory.name_of(next(iter(chosen.device_set)))), shape)
        return one.with_kind(reading.memory_kind_of(chosen))
    raise TypeError(
        f"{argument}: {chosen!r} is neither a device (lamina.CPU(i), lamina.Accelerator(i), a jax.Device) "
        "nor a mapping (a lamina DeviceMapping, a jax NamedSharding)"
    )


def _may_be(written: tuple, shape: tuple[int, ...]) -> bool:
    """Is the shape what is written, as far as that is known?"""
    known = (dim == size or not is_static(dim) for dim, size in zip(written, shape, strict=False))
    return len(written) == len(shape) and all(known)


def transfer_to(x: Any, device: Any = None, *, sharding: Any = None) -> Any:
    """Another name for `to_device`.

    >>> import lamina
    >>> lamina.transfer_to(1.0, lamina.CPU(2)).device
    CPU(2)
    """
    return _moved("transfer_to", x, device, sharding)


def cpu(x: Any) -> Any:
    """x on the first CPU device: `to_device(x, CPU())`.

    >>> import lamina
    >>> lamina.cpu(1.0).device
    CPU(0)
    """
    return _moved("cpu", x, CPU())


def gpu(x: Any) -> Any:
    """x on the first accelerator: `to_device(x, Accelerator())`.

    >>> import lamina
    >>> lamina.accelerator_count() == 0 or lamina.gpu(1.0).device == lamina.Accelerator(0)
    True
    """
    return _moved("gpu", x, Accelerator())


def accelerator(x: Any, device_id: int = 0) -> Any:
    """x on an accelerator: `to_device(x, Accelerator(device_id))`.

    >>> import lamina
    >>> [lamina.accelerator(1.0, i).device.id == i for i in range(lamina.accelerator_count())].count(False)
    0
    """
    return _moved("accelerator", x, Accelerator(device_id))
