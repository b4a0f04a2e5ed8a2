"""The same transitions where the array is whole: on one device (simulated meshes), or partitioned by JAX itself.

Without device boundaries a transition is short: reduce the pieces that the target doesn't keep, take the padding off,
put the target's padding on, make the target's new pieces.  What a device would hold is a part of the result, so
`shards`, gradients and numbers are those of a real mesh.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamina.engine.blocks import combine, from_blocks, identity, to_blocks
from lamina.engine.storage import Storage
from lamina.planning.pieces import kept_pieces
from lamina.sharding.placements import ReduceOp


def convert(x: Any, source: Storage, target: Storage) -> Any:
    """The array of `source` as the array of `target`; both have one shape, their meshes may differ."""
    kept = kept_pieces(source.layout, target.layout) if source.layout.axes == target.layout.axes else {}
    x = strip(x, source)
    for position, axis in reversed(list(enumerate(source.lead))):
        if axis not in kept:
            x = combine(x, source.layout.partial[position][1], position)
    for position, (axis, op) in enumerate(target.layout.partial):
        if axis not in kept:
            x = _expand(x, position, target.layout.sizes[axis], op)
    return pad(x, target)


def strip(x: Any, source: Storage) -> Any:
    """Without padding; the pieces stay."""
    for dim, (size, blocks) in enumerate(zip(source.shape, source.layout.grid, strict=True)):
        x = from_blocks(x, len(source.lead) + dim, size, blocks)
    return x


def pad(x: Any, target: Storage) -> Any:
    """With the padding of `target`; the pieces are there already."""
    for dim, blocks in enumerate(target.layout.grid):
        x = to_blocks(x, len(target.lead) + dim, blocks)
    return x


def _expand(x: Any, position: int, count: int, op: ReduceOp) -> Any:
    """A value as pieces along a new array axis: the first keeps it, the others hold the identity (AVG: all keep it)."""
    shape = (*x.shape[:position], count, *x.shape[position:])
    copies = jnp.broadcast_to(jnp.expand_dims(x, position), shape)
    if op is ReduceOp.AVG:
        return copies
    first = (jnp.arange(count) == 0).reshape(-1, *[1] * (x.ndim - position))
    return jnp.where(first, copies, identity(op, x.dtype))


def permute_blocks(x: Any, held: Storage, pairs: tuple[tuple[int, int], ...]) -> Any:
    """Every device's block goes to another device; devices that receive nothing hold zeros."""
    origin = block_origins(held, pairs)
    lead, grid = held.array_shape[: len(held.lead)], held.layout.grid
    cut: list[int] = list(lead)
    for blocks, size in zip(grid, held.array_shape[len(lead) :], strict=True):
        cut += [blocks, size // blocks]
    outer = [*range(len(lead)), *range(len(lead), len(cut), 2)]
    inner = list(range(len(lead) + 1, len(cut), 2))
    blocks_first = jnp.transpose(x.reshape(cut), outer + inner)
    inside = blocks_first.shape[len(outer) :]
    flat = blocks_first.reshape(origin.size, *inside)
    taken = jnp.where((origin >= 0).reshape(-1, *[1] * len(inside)), flat[np.maximum(origin, 0)], 0).astype(x.dtype)
    back = [int(axis) for axis in np.argsort(outer + inner)]
    return jnp.transpose(taken.reshape(blocks_first.shape), back).reshape(x.shape)


def block_origins(held: Storage, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
    """For each distinct block (pieces × grid, row-major): which block takes its place, or -1 for zeros."""
    layout, mesh = held.layout, held.mesh
    shape = (*held.array_shape[: len(held.lead)], *layout.grid)
    origin = np.full(prod(shape), -1)
    for source, target in pairs:
        origin[_block_number(held, target, shape)] = _block_number(held, source, shape)
    assert mesh.num_devices >= origin.size
    return origin


def _block_number(held: Storage, device: int, shape: tuple[int, ...]) -> int:
    where = dict(zip(held.mesh.axis_names, held.mesh.coordinates(device), strict=True))
    index = (*(where[axis] for axis in held.lead), *held.layout.block_index(where))
    return int(np.ravel_multi_index(index, shape)) if shape else 0


def cut(x: Any, held: Storage) -> list[Any]:
    """What each position of the mesh holds, row-major, never any padding."""
    shards = []
    for coordinates in product(*(range(size) for size in held.mesh.mesh_shape)):
        where = dict(zip(held.mesh.axis_names, coordinates, strict=True))
        padded = held.layout.padded_block(held.shape)
        index: list[Any] = [where[axis] for axis in held.lead]
        block = zip(held.layout.block(held.shape, where), held.layout.block_index(where), padded, strict=True)
        index += [slice(number * size, number * size + stop - start) for (start, stop), number, size in block]
        shards.append(x[(*index, ...)])  # the dots make a view of a 0-d block, too
    return shards
