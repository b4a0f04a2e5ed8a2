"""What a value of a graph is while the graph runs.

A `numpy.ndarray` is still in host memory; a `jax.Array` (or a tracer) is on its device; a `Member` is one device's
part of a `Family`, which is one array over several devices.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat, families, inventory, transfer, whole
from lamina.engine.storage import Storage
from lamina.sharding import Device, DeviceMesh, TensorType


class Family:
    """One array per device of a mesh, as one `jax.Array` that lies as `spec` says; `parts` are they, row-major."""

    def __init__(self, array: Any, mesh: DeviceMesh, spec: Any, split: Callable[[], list[Any]]):
        self.array, self.mesh, self.spec, self._split = array, mesh, spec, split

    @cached_property
    def parts(self) -> list[Any]:
        return self._split()


def tensor_family(array: Any, held: Storage) -> Family:
    """The shards of a Tensor whose layout JAX can say."""
    if compat.is_tracer(array):
        return Family(array, held.mesh, held.sharding.spec, lambda: whole.cut(array, held))
    array = held.home(array)
    return Family(array, held.mesh, held.sharding.spec, lambda: families.singles(array, inventory.jax_mesh(held.mesh)))


def result_family(array: Any, mesh: DeviceMesh, spec: Any, shape: tuple[int, ...]) -> Family:
    """What a region made: stacked along the first dim, or as the Tensor that it becomes lies."""
    there = inventory.jax_mesh(mesh)

    def split() -> list[Any]:
        if not compat.is_tracer(array):
            parts = families.singles(array, there)
        elif spec == families.family_sharding(there).spec:
            parts = families.disassemble(array, there)
        else:
            parts = whole.cut(array, _storage_of(array, mesh, spec))
        return parts if shape else [_scalar(part) for part in parts]

    return Family(array, mesh, spec, split)


def _scalar(part: Any) -> Any:
    if compat.is_tracer(part) or families.is_here(device := next(iter(part.devices()))):
        return part.reshape(())
    return families.elsewhere((), part.dtype, device)


def _storage_of(array: Any, mesh: DeviceMesh, spec: Any) -> Storage:
    from lamina.engine.storage import storage
    from lamina.sharding import Layout

    dims = [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in spec]
    return storage(mesh, Layout(mesh.axes, [*dims, *[()] * (array.ndim - len(dims))]), array.shape)


class Member(NamedTuple):
    """The part of a family on its device number `place`."""

    family: Family
    place: int


def part_of(held: Any) -> Any:
    """The array itself, or the numpy array."""
    return held.family.parts[held.place] if isinstance(held, Member) else held


def on_device(held: Any, kind: TensorType, device: Device) -> Any:
    """The value on that device, from wherever it is."""
    x = part_of(held)
    if isinstance(x, np.ndarray):
        return transfer.place_each([x], [kind.dtype], [device])[0]
    return families.at(x, inventory.resolve(device))


def absent(kind: TensorType) -> Any:
    """A value on a device of another process."""
    assert kind.device is not None
    return families.elsewhere(kind.shape, jnp.dtype(kind.dtype), inventory.resolve(kind.device))


def in_program(held: Any, kind: TensorType) -> Any:
    """The value inside of `jax.jit`, where there are no places."""
    x = part_of(held)
    return jnp.asarray(x, kind.dtype) if isinstance(x, np.ndarray) else x


def is_inside_jit(x: Any) -> bool:
    """Is it a tracer with no concrete array under it?"""
    return compat.is_tracer(x) and compat.concrete(x) is None


def array_of(x: Any) -> Any:
    """Anything with data as an array: JAX's stay where they are, the rest is host memory."""
    if isinstance(x, jax.Array):
        return x
    if not isinstance(x, (np.ndarray, np.generic, int, float, complex, bool, list, tuple)) and "__dlpack__" in dir(x):
        return jnp.from_dlpack(x)
    return np.asarray(x)
