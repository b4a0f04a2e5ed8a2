"""Naming a device: `DeviceRef.GPU(0)` is `lamina.Accelerator(0)`, the same object."""

from __future__ import annotations

from typing import Any

import jax

from lamina.engine import inventory
from lamina.sharding import CPU, Accelerator, Device


class DeviceRef:
    """MAX's names for Lamina's devices.

    >>> DeviceRef.CPU(1), DeviceRef.GPU(0)
    (CPU(1), Accelerator(0))
    """

    @staticmethod
    def CPU(id: int = 0) -> Device:
        """The id-th CPU device."""
        return CPU(id)

    @staticmethod
    def GPU(id: int = 0) -> Device:
        """The id-th accelerator."""
        return Accelerator(id)


def as_device(value: Any, argument: str) -> Device:
    """The device that a user names: one of Lamina's, or one of JAX's."""
    if isinstance(value, Device):
        return value
    if isinstance(value, jax.Device):
        return inventory.name_of(value)
    raise TypeError(f"{argument} must be a device such as DeviceRef.CPU(0) or lamina.Accelerator(1), not {value!r}")
