"""From the values at the end of a run to what the user gets: Tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat, families, inventory, reading
from lamina.engine.storage import Storage, whole
from lamina.graph.held import Member, in_program, is_inside_jit, on_device, part_of
from lamina.sharding import DeviceMesh, TensorType
from lamina.sharding.mesh import positions
from lamina.tensors import Tensor


def single(held: Any, kind: TensorType, placed: bool) -> Tensor:
    """A value on one device."""
    assert kind.device is not None
    array = on_device(held, kind, kind.device) if placed else in_program(held, kind)
    return Tensor(array, whole(DeviceMesh.single(kind.device), tuple(kind.shape)))


def joined(values: Sequence[Any], kinds: Sequence[TensorType], target: Storage, placed: bool) -> Tensor:
    """The Tensor whose shards these are: the family itself where it lies so already."""
    first = values[0]
    if isinstance(first, Member) and all(held == (first.family, i) for i, held in enumerate(values)):
        array = first.family.array
        lies_so = not target.is_local and target.is_plain and array.shape == target.array_shape
        if lies_so and (
            (first.family.mesh == target.mesh and first.family.spec == target.sharding.spec)
            or (not compat.is_tracer(array) and array.sharding.is_equivalent_to(target.sharding, array.ndim))
        ):
            return Tensor(array, target)
    parts = [part_of(held) for held in values]
    if placed and not any(map(compat.is_tracer, parts)):
        arrays = [on_device(held, kind, kind.device) for held, kind in zip(values, kinds, strict=True)]  # type: ignore[arg-type]
        return Tensor(reading.from_shards(arrays, target), target)
    if placed and not any(map(is_inside_jit, parts)):
        home = inventory.resolve(target.mesh.devices[0])
        parts = [families.at(jnp.asarray(part), home) for part in parts]
        return Tensor(families.spread(stored(parts, target), target.sharding, home), target)
    return Tensor(stored([jnp.asarray(part) for part in parts], target), target)


def stored(parts: Sequence[Any], target: Storage) -> Any:
    """The stored array (see `engine.storage`) of the shards, as one expression."""
    blocks: dict[tuple[int, ...], Any] = {}
    padded = target.layout.padded_block(target.shape)
    for part, where in zip(parts, positions(target.mesh), strict=True):
        index = (*(where[axis] for axis in target.lead), *target.layout.block_index(where))
        padding = [(0, full - size) for full, size in zip(padded, part.shape, strict=True)]
        block = jnp.pad(part, padding) if any(after for _, after in padding) else part
        blocks.setdefault(index, block.reshape((1,) * len(target.lead) + block.shape))
    rank = len(target.lead) + target.rank
    for dim in reversed(range(rank)):
        rows: dict[tuple[int, ...], list[Any]] = {}
        for index in sorted(blocks):
            rows.setdefault(index[:dim], []).append(blocks[index])
        blocks = {index: row[0] if len(row) == 1 else jnp.concatenate(row, dim) for index, row in rows.items()}
    (array,) = blocks.values()
    return array


def update(buffer: Any, value: Tensor) -> None:
    """The buffer holds this now."""
    if isinstance(buffer, np.ndarray):
        np.copyto(buffer, np.asarray(jax.device_get(value._array)) if value._held.is_plain else value.numpy())
    else:
        buffer.value = value
