"""Arrays of several devices as one, and one as several, at no cost: no data moves.

A *family* is one array per device of a mesh, all of one shape; as one `jax.Array` it is their concatenation along the
first dim, split over all axes of the mesh.  `assemble` and `disassemble` are JAX primitives, so that what is computed
from them can be differentiated and mapped; inside `jax.jit` they are a concatenation and a split.

Over several processes every process has all values; one on a device of another process is an array without data here
(see `elsewhere`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from lamina.engine import compat, crossing_processes, inventory, watching
from lamina.engine.compat import Primitive, ad, batching, mlir
from lamina.engine.storage import whole
from lamina.sharding import DeviceMesh

_assemble = Primitive("lamina_assemble")
_disassemble = Primitive("lamina_disassemble")
_disassemble.multiple_results = True


def family_sharding(mesh: Any) -> NamedSharding:
    """The first dim over all axes."""
    return NamedSharding(mesh, PartitionSpec(tuple(mesh.axis_names)))


def assemble(parts: Sequence[Any], mesh: Any) -> Any:
    """The parts, one per device of JAX's mesh, row-major, as one array; scalars become vectors of one."""
    parts = [_vector(part) if part.ndim == 0 else part for part in parts]
    if not any(map(compat.is_tracer, parts)):
        return _assembled(parts, mesh)
    return lax.with_sharding_constraint(_assemble.bind(*parts, mesh=mesh), family_sharding(mesh))


def _vector(part: Any) -> Any:
    if compat.is_tracer(part) or is_here(device := next(iter(part.devices()))):
        return part.reshape(1)
    return elsewhere((1,), part.dtype, device)


def disassemble(array: Any, mesh: Any) -> list[Any]:
    """The parts again, each on its device; none is a scalar."""
    return _parts(array, mesh=mesh) if not compat.is_tracer(array) else list(_disassemble.bind(array, mesh=mesh))


def singles(array: Any, mesh: Any) -> list[Any]:
    """What each device of the mesh holds of a concrete array, row-major: one `jax.Array` each."""
    held = {next(iter(part.devices())): part for part in compat.single_arrays(array)}
    if len(held) == mesh.devices.size:
        return [held[device] for device in mesh.devices.flat]
    shape = array.sharding.shard_shape(array.shape)
    return [held[d] if d in held else elsewhere(shape, array.dtype, d) for d in mesh.devices.flat]


def is_here(device: Any) -> bool:
    """Is it a device of this process?"""
    return device.process_index == jax.process_index()


def elsewhere(shape: Sequence[int], dtype: Any, device: Any) -> Any:
    """What this process has of a value on a device of another one: its shape, its dtype, its place."""
    return jax.make_array_from_single_device_arrays(tuple(shape), SingleDeviceSharding(device), [], dtype=dtype)


def at(x: Any, device: Any) -> Any:
    """x on JAX's device, from wherever it is; the derivative goes back there."""
    home = x if isinstance(x, jax.Array) and not compat.is_tracer(x) else compat.concrete(x)
    if home is None:  # inside jax.jit there is no such place
        return x
    there = home.devices()
    if there == {device}:
        return x
    source = next(iter(there))
    if len(there) == 1 and not (is_here(source) and is_here(device)):
        return _between_processes(x, source, device)
    sharding = SingleDeviceSharding(source) if len(there) == 1 else home.sharding
    return jax.device_put(x, SingleDeviceSharding(device), src=sharding if compat.is_tracer(x) else None)


def _between_processes(x: Any, source: Any, device: Any) -> Any:
    """The same where the two devices aren't both this process's own; only the processes of the two work."""
    shape = x.shape
    if not (is_here(source) or is_here(device)) or source.process_index == device.process_index:
        return elsewhere(shape, x.dtype, device)
    if not x.size:
        return (
            jax.device_put(np.zeros(shape, x.dtype), device) if is_here(device) else elsewhere(shape, x.dtype, device)
        )
    here, there = (DeviceMesh.single(inventory.name_of(end)) for end in (source, device))
    if not shape:
        x = x.reshape(1) if is_here(source) else elsewhere((1,), x.dtype, source)
    move = partial(crossing_processes.move, here=whole(here, x.shape), there=whole(there, x.shape))
    found = watching.run(watching.ranks_of(here, there), f"{source} → {device}", move, x)
    return found[0].reshape(shape) if found else elsewhere(shape, x.dtype, device)


def spread(x: Any, sharding: Any, home: Any) -> Any:
    """x, which is on JAX's device `home`, as a sharding says; the derivative comes back there."""
    return jax.device_put(x, sharding, src=SingleDeviceSharding(home) if compat.is_tracer(x) else None)


@_assemble.def_impl
def _run_assemble(*parts: Any, mesh: Any) -> Any:
    return _assembled(parts, mesh)


def _assembled(parts: Sequence[Any], mesh: Any) -> Any:
    shape = (len(parts) * parts[0].shape[0], *parts[0].shape[1:])
    homes = [at(part, device) for part, device in zip(parts, mesh.devices.flat, strict=True)]
    mine = [part for part, device in zip(homes, mesh.devices.flat, strict=True) if is_here(device)]
    return jax.make_array_from_single_device_arrays(shape, family_sharding(mesh), mine, dtype=parts[0].dtype)


@_disassemble.def_impl
def _parts(array: Any, *, mesh: Any) -> list[Any]:
    sharding = family_sharding(mesh)
    if not array.sharding.is_equivalent_to(sharding, array.ndim):
        array = jax.device_put(array, sharding)
    return singles(array, mesh)


@_assemble.def_abstract_eval
def _assembled_type(*parts: Any, mesh: Any) -> Any:
    first = parts[0]
    return jax.core.ShapedArray((len(parts) * first.shape[0], *first.shape[1:]), first.dtype)


@_disassemble.def_abstract_eval
def _part_types(array: Any, *, mesh: Any) -> list[Any]:
    count = mesh.devices.size
    return [jax.core.ShapedArray((array.shape[0] // count, *array.shape[1:]), array.dtype)] * count


def _concatenated(*parts: Any, mesh: Any) -> Any:
    return jnp.concatenate(parts)


def _split(array: Any, *, mesh: Any) -> list[Any]:
    return jnp.split(array, mesh.devices.size)


mlir.register_lowering(_assemble, mlir.lower_fun(_concatenated, multiple_results=False))
mlir.register_lowering(_disassemble, mlir.lower_fun(_split, multiple_results=True))


def _assemble_transpose(cotangent: Any, *parts: Any, mesh: Any) -> list[Any]:
    if type(cotangent) is ad.Zero:
        return [None] * len(parts)
    found = _disassemble.bind(cotangent, mesh=mesh)
    return [one if ad.is_undefined_primal(part) else None for one, part in zip(found, parts, strict=True)]


def _disassemble_transpose(cotangents: Sequence[Any], array: Any, *, mesh: Any) -> list[Any]:
    if all(type(one) is ad.Zero for one in cotangents):
        return [None]
    return [_assemble.bind(*map(ad.instantiate_zeros, cotangents), mesh=mesh)]


ad.deflinear2(_assemble, _assemble_transpose)
ad.deflinear2(_disassemble, _disassemble_transpose)


def _batched_assemble(parts: Sequence[Any], dims: Sequence[Any], *, mesh: Any) -> tuple[Any, int]:
    """The mapped dim goes last, so that the first stays the one that is put together."""
    size = next(part.shape[dim] for part, dim in zip(parts, dims, strict=True) if dim is not None)
    moved = [
        jnp.broadcast_to(part[..., None], (*part.shape, size)) if dim is None else jnp.moveaxis(part, dim, -1)
        for part, dim in zip(parts, dims, strict=True)
    ]
    return _assemble.bind(*moved, mesh=mesh), moved[0].ndim - 1


def _batched_disassemble(arrays: Sequence[Any], dims: Sequence[Any], *, mesh: Any) -> tuple[list[Any], list[int]]:
    moved = jnp.moveaxis(arrays[0], dims[0], -1)
    found = _disassemble.bind(moved, mesh=mesh)
    return found, [moved.ndim - 1] * len(found)


batching.primitive_batchers[_assemble] = _batched_assemble
batching.primitive_batchers[_disassemble] = _batched_disassemble
