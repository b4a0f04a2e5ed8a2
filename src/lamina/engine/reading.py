"""Arrays in and out: what a `jax.Array` says of its layout, and the shards and values that a stored array holds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from lamina.engine import compat, inventory, watching, whole
from lamina.engine.primitive import transition
from lamina.engine.storage import Storage, storage
from lamina.engine.storage import whole as whole_storage
from lamina.engine.transfer import host_value, whole_on
from lamina.errors import ConversionError, ProcessError, TransformError, with_fix
from lamina.sharding import DeviceMesh, Layout, NamedMapping
from lamina.sharding.mesh import positions


def storage_of(array: Any) -> Storage:
    """The storage that a concrete array is in already; ConversionError if no layout says it."""
    sharding = array.sharding
    kind = memory_kind_of(sharding)
    if isinstance(sharding, NamedSharding):
        mesh, layout = layout_of(sharding, array.ndim)
        if not layout.is_even(array.shape):
            fact = f"the array of shape {array.shape} is uneven over {layout}, which JAX stores in a way of its own"
            raise ConversionError(fact)
        return storage(mesh, layout, array.shape, kind)
    if len(sharding.device_set) == 1:
        device = inventory.name_of(next(iter(sharding.device_set)))
        return storage(DeviceMesh.single(device), Layout({"device": 1}, ((),) * array.ndim), array.shape, kind)
    if sharding.is_fully_replicated:
        devices = sorted(sharding.device_set, key=lambda device: device.id)
        mesh = DeviceMesh([inventory.name_of(d) for d in devices], (len(devices),), ("device",))
        return storage(mesh, Layout(mesh.axes, ((),) * array.ndim), array.shape, kind)
    raise ConversionError(f"the sharding {sharding} has no named axes: give the array a NamedSharding first")


def layout_of(sharding: NamedSharding, rank: int) -> tuple[DeviceMesh, Layout]:
    """What a NamedSharding says of a tensor of this rank; ConversionError where a layout can't say it."""
    spec = sharding.spec
    if getattr(spec, "unreduced", None):
        fact = f"{spec} has unreduced axes, whose pieces JAX keeps out of reach"
        raise ConversionError(
            with_fix(fact, "reduce it in JAX, or name a lamina.NamedMapping(mesh, spec, unreduced=...)")
        )
    if any(entry is PartitionSpec.UNCONSTRAINED for entry in spec):
        fact = f"{spec} leaves a dim to JAX's propagation"
        raise ConversionError(with_fix(fact, "name its axes, or None for a whole dim"))
    named = NamedMapping(inventory.mesh_of(sharding.mesh), [entry or None for entry in spec])
    return named.mesh, named.layout(rank)


def memory_kind_of(sharding: Any) -> str | None:
    """The memory that a JAX Sharding names; None if it is the devices' default one."""
    default = next(iter(sharding.device_set)).default_memory().kind
    return None if sharding.memory_kind == default else sharding.memory_kind


def traced_storage(x: Any, home: Any) -> Storage:
    """A plain traced array: it lies where the concrete array under the tracers does, if there is one."""
    if home is not None and home.shape == x.shape:
        return storage_of(home)
    return whole_storage(DeviceMesh.single(inventory.default_device()), x.shape)


def in_device_memory(array: Any, held: Storage) -> tuple[Any, Storage]:
    """The same in the devices' default memory, where programs compute."""
    if held.memory_kind is None:
        return array, held
    held = held.with_kind(None)
    return jax.device_put(array, held.sharding), held


def known(array: Any, held: Storage) -> Any:
    """The concrete array under the tracers of eager `jax.grad`, if that is what it is."""
    home = compat.concrete(array) if compat.is_tracer(array) else None
    return array if home is None or home.shape != held.array_shape else home


def _check_known(array: Any, what: str) -> None:
    if compat.is_tracer(array):
        fact = f"a traced Tensor has no {what} yet"
        raise TransformError(
            with_fix(fact, "read it outside of jax.jit, jax.vmap and jax.grad, or return it from there")
        )


def as_auto(array: Any, held: Storage) -> Any:
    """An array of a mesh with Explicit axes, whose sharding is a part of its type, without it: no data moves."""
    mesh = array.sharding.mesh if isinstance(array.sharding, NamedSharding) else None
    return array if mesh is None or mesh.are_all_axes_auto else jax.device_put(array, held.sharding)


@compat.at_once
def shards(array: Any, held: Storage) -> list[Any]:
    """One array per mesh position, row-major, never any padding."""
    _check_known(array, "shards")
    array = held.home(array)
    _check_here(held)
    if held.is_local:
        return whole.cut(array, held)
    if not watching.is_whole_here(held.mesh):
        return _gathered_shards(array, held)
    data = {shard.device: shard.data for shard in array.addressable_shards}
    found = []
    for device, where in zip(held.mesh.devices, positions(held.mesh), strict=True):
        block = held.layout.block(held.shape, where)
        index = (*(0 for _ in held.lead), *(slice(0, stop - start) for start, stop in block))
        mine = data[inventory.resolve(device)]
        found.append(mine if mine.shape == tuple(stop - start for start, stop in block) else mine[index])
    return found


def _gathered_shards(array: Any, held: Storage) -> list[Any]:
    """Every process's shards on this one: its own where they are, copies of the others on its first device."""
    everywhere = NamedSharding(inventory.jax_mesh(held.mesh), PartitionSpec())
    ranks, what = watching.ranks_of(held.mesh), f"read the shards of {held.layout}"
    stored = np.asarray(watching.ready(watching.run(ranks, what, _same(everywhere), array)).addressable_data(0))
    here = jax.local_devices()[0]
    homes = [inventory.resolve(device) for device in held.mesh.devices]
    own = [home if home.process_index == jax.process_index() else here for home in homes]
    return jax.device_put(whole.cut(stored, held), own)


@lru_cache(maxsize=256)
def _same(sharding: NamedSharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


def _check_here(held: Storage) -> None:
    if not watching.is_here(held.mesh):
        ranks = ", ".join(map(str, watching.ranks_of(held.mesh)))
        fact = f"this Tensor lies on {held.mesh!r}, whose devices belong to process {ranks}"
        fix = "shard it onto a mesh that has devices of every process, and read that one"
        raise ProcessError(with_fix(f"{fact}; process {jax.process_index()} has none of them", fix))


@compat.at_once
def from_shards(parts: list[Any], held: Storage) -> Any:
    """The stored array whose shards these are, each already of its right shape."""
    if held.is_local:
        return _stack(parts, held)
    arrays = []
    padded = (*(1 for _ in held.lead), *held.layout.padded_block(held.shape))
    for device, part in zip(held.mesh.devices, parts, strict=True):
        home = inventory.resolve(device)
        if home.process_index != jax.process_index():
            continue
        block = jax.device_put(part, SingleDeviceSharding(home, memory_kind=held.memory_kind))
        block = block.reshape((1,) * len(held.lead) + block.shape)
        if block.shape != padded:
            block = jax.numpy.pad(block, [(0, full - size) for full, size in zip(padded, block.shape, strict=True)])
        arrays.append(block)
    dtype = jax.dtypes.canonicalize_dtype(parts[0].dtype)
    return jax.make_array_from_single_device_arrays(held.array_shape, held.sharding, arrays, dtype=dtype)


def _stack(parts: list[Any], held: Storage) -> Any:
    """On one device: every distinct block written to its place in the stored array."""
    stored = np.zeros(held.array_shape, np.asarray(parts[0]).dtype)
    for part, view in zip(parts, whole.cut(stored, held), strict=True):
        view[...] = np.asarray(part)
    return jax.device_put(stored, held.sharding)


@compat.at_once
def value(array: Any, held: Storage) -> np.ndarray:
    """The global value on the host."""
    _check_known(array, "value")
    _check_here(held)
    array, held = in_device_memory(array, held)
    if not watching.is_whole_here(held.mesh):
        everywhere = whole_on(held)
        return np.asarray(watching.ready(transition(array, held, everywhere)).addressable_data(0))
    plain = held.without_pieces()
    return host_value(transition(array, held, plain), plain)
