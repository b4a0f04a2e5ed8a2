"""What a mesh may be made of: the checks of `DeviceMesh`'s constructors, and how they show what is no mesh yet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import Any

from lamina.errors import LayoutError, Problems, with_fix
from lamina.sharding.devices import Device
from lamina.sharding.integers import as_integer


def shortened(devices: Sequence[Device]) -> str:
    """All of a few devices, the first and the last of many."""
    return str(list(devices)) if len(devices) <= 8 else f"[{devices[0]} .. {devices[-1]}]"


def grid_text(shape: Sequence[int], names: Sequence[str]) -> str:
    return ",".join(f"{name}={size}" for name, size in zip(names, shape, strict=True))


def shape_and_names(mesh_shape: Any, axis_names: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Both as tuples, checked; one axis needs no tuple."""
    shape = tuple(mesh_shape) if isinstance(mesh_shape, Iterable) else (mesh_shape,)
    names = tuple(axis_names) if isinstance(axis_names, Iterable) and not isinstance(axis_names, str) else (axis_names,)
    _check_axes(shape, names)
    return tuple(index(size) for size in shape), names


def _check_axes(shape: tuple, names: tuple) -> None:
    problems = Problems()
    if len(shape) != len(names):
        fact = f"mesh_shape {shape} has {len(shape)} entries, but axis_names {names} has {len(names)}"
        raise LayoutError(with_fix(fact, "give every axis one size and one name"))
    if not names:
        problems.add("a mesh needs at least one axis", "DeviceMesh.single(device) is the mesh of one device")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            problems.add(f"axis name {name!r} is not an identifier", "name axes as Python variables, such as 'dp'")
        elif names.count(name) > 1:
            problems.add(f"axis name {name!r} stands twice in {names}", "give each axis a name of its own")
    for name, size in zip(names, shape, strict=True):
        if (as_integer(size) or 0) < 1:
            problems.add(f"axis {name!r} has size {size!r}; sizes are integers >= 1", "an axis of size 1 does nothing")
    problems.check()


def check_devices(devices: tuple, shape: tuple, names: tuple) -> None:
    if not devices:
        return
    where = f"mesh [{grid_text(shape, names)}]"
    for device in set(devices):
        if not isinstance(device, Device):
            raise TypeError(f"{where}: devices must be lamina.CPU(i) or lamina.Accelerator(i), not {device!r}")
    if len(devices) != math.prod(shape):
        fact = f"{where} has {math.prod(shape)} positions, but {len(devices)} devices were given"
        raise LayoutError(with_fix(fact, "give one device per position, row-major"))
    distinct = len(set(devices))
    if distinct not in (1, len(devices)):
        repeated = max(set(devices), key=lambda device: (devices.count(device), -device.id))
        fact = (
            f"{where}: {repeated} stands at {devices.count(repeated)} positions; "
            "devices must be all distinct, or all the same (a simulated mesh)"
        )
        raise LayoutError(with_fix(fact, f"DeviceMesh.simulated({shape}, {names}) has one device play all positions"))
