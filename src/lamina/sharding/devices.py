"""Devices as plain values.

`CPU(3)` and `Accelerator(0)` only *name* a device.  Nothing is asked of the machine until something executes: the
engine's inventory resolves the names then, and says which devices there are when one is missing.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from lamina.errors import LayoutError
from lamina.sharding.integers import as_integer


class Device:
    """A value naming one device: `CPU(id)` or `Accelerator(id)`."""

    __slots__ = ()
    id: int


def _check_id(device: Device) -> None:
    number = as_integer(device.id)
    if number is None or number < 0:
        raise LayoutError(f"{type(device).__name__}(id={device.id!r}): the id must be an integer >= 0")
    object.__setattr__(device, "id", number)


@dataclass(frozen=True, slots=True, repr=False)
class CPU(Device):
    """The id-th CPU device (JAX can split one CPU into several virtual ones).

    >>> CPU(), CPU(3), CPU(3) == CPU(3), CPU(0) == Accelerator(0)
    (CPU(0), CPU(3), True, False)
    """

    id: int = 0

    def __post_init__(self) -> None:
        _check_id(self)

    def __repr__(self) -> str:
        return f"CPU({self.id})"


@dataclass(frozen=True, slots=True, repr=False)
class Accelerator(Device):
    """The id-th accelerator: a GPU or TPU, whatever JAX's default accelerator backend is.

    >>> Accelerator(1)
    Accelerator(1)
    """

    id: int = 0

    def __post_init__(self) -> None:
        _check_id(self)

    def __repr__(self) -> str:
        return f"Accelerator({self.id})"


def default_devices(count: int | None = None) -> tuple[Device, ...]:
    """The devices of JAX's default backend, the first `count` of them: accelerators where there are any, else CPUs.

    The only look upwards from this room, by name and when called: `sharding` must import without JAX.
    """
    return importlib.import_module("lamina.engine.inventory").default_devices(count)


def accelerator_count() -> int:
    """How many accelerators this program can see (0 on a machine with only CPUs).

    >>> accelerator_count() >= 0
    True
    """
    return importlib.import_module("lamina.engine.inventory").accelerator_count()
