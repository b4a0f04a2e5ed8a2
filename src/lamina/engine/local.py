"""Local code on every device of a mesh: what an op computes once its operands lie as it requires.

A *body* is a function of one device's blocks.  On a real mesh it runs under `shard_map`, on a simulated one under a
`jax.vmap` per mesh axis, with the axis's name: the same blocks, collectives and axis indices, so the same numbers.

**Derivatives** are JAX's own, and communicate what they must and no more.  An operand that is the same along an axis on
which others differ is first stored as one *copy* per device (the storage of Partial(AVG); it costs nothing).  The
transpose of that is a transition from Partial(SUM): where the operand came from a gather, a reduce-scatter.  Along axes
where nothing differs `shard_map` itself knows (its `check_vma`) that no sum is needed.

**Padding never shows.**  Where a dim is uneven the body sees its blocks' padding filled with the op's own neutral
value, and what it makes there is set to zero.  Nothing of it reaches a value or a gradient, NaN from 0/0 included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from lamina.engine import compat, inventory
from lamina.engine.blocks import axis_index, valid
from lamina.engine.programs import laid_out
from lamina.engine.storage import Storage
from lamina.sharding import DeviceMesh
from lamina.sharding.layout import Axes
from lamina.sharding.placements import ReduceOp

Fill = Callable[[Any], Any]  # the dtype of an operand → what its padding is filled with


@dataclass(frozen=True)
class Here:
    """Where a body runs: what it may ask of the device, and of the whole tensors behind the blocks."""

    operands: tuple[Storage | None, ...]  # None: a Python number
    results: tuple[Storage, ...]

    @cached_property
    def sizes(self) -> Any:
        return next(held for held in (*self.results, *self.operands) if held).layout.sizes

    def index(self, axes: Axes) -> Any:
        """The device's position along these axes, as one number."""
        return axis_index(self.sizes, axes)

    def start(self, held: Storage, dim: int) -> Any:
        """Where the device's block of a dim begins in the whole dim."""
        size, blocks = held.shape[dim], held.layout.grid[dim]
        if blocks == 1:
            return jnp.zeros((), jnp.int32)
        index = self.index(held.layout.dims[dim])
        return index * (size // blocks) + jnp.minimum(index, size % blocks)

    def length(self, held: Storage, dim: int) -> Any:
        """How many of the block's entries are not padding."""
        size, blocks = held.shape[dim], held.layout.grid[dim]
        return size // blocks + (self.index(held.layout.dims[dim]) < size % blocks if size % blocks else 0)

    def positions(self, held: Storage, dim: int) -> Any:
        """For each entry of the block along a dim: which entry of the whole dim it is (past the end for padding)."""
        size = held.layout.padded_block(held.shape)[dim]
        inside = jnp.arange(size, dtype=jnp.int32)
        return jnp.where(inside < self.length(held, dim), self.start(held, dim) + inside, held.shape[dim])


Body = Callable[..., Any]  # (here, *blocks) -> a block, or a tuple of them


def copied(held: Storage, axes: Axes) -> Storage:
    """The storage with a copy of its own for every device along those of `axes` that the tensor doesn't use."""
    layout = held.layout
    spare = [(axis, ReduceOp.AVG) for axis in axes if axis in layout.replicated_axes]
    return held.with_layout(layout.replace(partial=(*layout.partial, *spare))) if spare else held


def differing(storages: Sequence[Storage | None]) -> Axes:
    """The axes along which some of these tensors differ, in mesh order."""
    used = {axis for held in storages if held for axis in (*held.layout.sharded_axes, *held.lead)}
    first = next(held for held in storages if held)
    return tuple(axis for axis in first.layout.sizes if axis in used)


def on_each_device(
    body: Body, operands: tuple[Storage | None, ...], results: tuple[Storage, ...], fill: Fill | None
) -> Callable[..., Any]:
    """The body as a function of stored arrays (in the storages of `operands`) that returns stored arrays, a tuple."""
    mesh = next(held for held in (*operands, *results) if held).mesh
    axes = differing((*operands, *results))
    return everywhere(body, mesh, operands, results, axes, True, fill)


def everywhere(
    body: Body,
    mesh: DeviceMesh,
    operands: tuple[Storage | None, ...],
    results: tuple[Storage, ...],
    axes: Axes,
    knows_varying: bool,
    fill: Fill | None = None,
) -> Callable[..., Any]:
    """`on_each_device` for a body that may use the names of `axes`; see `compat.shard_map` for `knows_varying`."""
    here = Here(operands, results)

    def run(*blocks: Any) -> tuple:
        bare = [_bare(block, held, fill) for block, held in zip(blocks, operands, strict=True)]
        made = body(here, *bare)
        made = made if isinstance(made, tuple) else (made,)
        return tuple(_stored(block, held) for block, held in zip(made, results, strict=True))

    if not axes:
        return run
    simulated = _under_vmap(run, axes, operands, results)
    if mesh.is_single or mesh.is_simulated:
        return simulated
    return _unless_empty(_under_shard_map(run, mesh, operands, results, knows_varying), simulated, results)


def _bare(block: Any, held: Storage | None, fill: Fill | None) -> Any:
    """The block without the dims of its pieces, its padding neutral."""
    if held is None:
        return block
    block = block.reshape(block.shape[len(held.lead) :])
    if fill is None or held.layout.is_even(held.shape):
        return block
    return jnp.where(valid(block.shape, held.layout, held.shape), block, jnp.asarray(fill(block.dtype), block.dtype))


def _stored(block: Any, held: Storage) -> Any:
    """The block as it is stored: zeros for padding, a dim of one for each axis with pieces."""
    expected = held.layout.padded_block(held.shape)
    assert block.shape == expected, f"a body made {block.shape} for {held}, whose blocks are {expected}"
    if not held.layout.is_even(held.shape):
        block = jnp.where(valid(block.shape, held.layout, held.shape), block, jnp.zeros((), block.dtype))
    return block.reshape((1,) * len(held.lead) + block.shape)


def _under_shard_map(
    run: Callable, mesh: DeviceMesh, operands: tuple, results: tuple[Storage, ...], knows_varying: bool
) -> Callable:
    given = tuple(jax.sharding.PartitionSpec() if held is None else held.spec for held in operands)
    return compat.shard_map(
        run, inventory.jax_mesh(mesh), given, tuple(held.spec for held in results), knows_varying=knows_varying
    )


def _unless_empty(mapped: Callable, simulated: Callable, results: tuple[Storage, ...]) -> Callable:
    """XLA's partitioner refuses a manual computation with empty operands: what there is to do, all devices do."""

    def run(*arrays: Any) -> tuple:
        if all(jnp.size(x) for x in arrays):
            return mapped(*arrays)
        return tuple(laid_out(x, held) for x, held in zip(simulated(*arrays), results, strict=True))

    return run


# -- one device plays all positions -----------------------------------------------------------------------------------


def _under_vmap(run: Callable, axes: Axes, operands: tuple, results: tuple[Storage, ...]) -> Callable:
    sizes = next(held for held in (*operands, *results) if held).layout.sizes

    def run_all(*arrays: Any) -> tuple:
        given = [x if held is None else _by_position(x, held, axes) for x, held in zip(arrays, operands, strict=True)]
        mapped = run
        for axis in reversed(axes):
            which = [0 if held and _uses(held, axis) else None for held in operands]
            mapped = jax.vmap(mapped, in_axes=which, out_axes=0, axis_name=axis, axis_size=sizes[axis])
        made = mapped(*given)
        return tuple(_from_positions(x, held, axes) for x, held in zip(made, results, strict=True))

    return run_all


def _uses(held: Storage, axis: str) -> bool:
    return axis in held.lead or axis in held.layout.sharded_axes


def _cut_dims(held: Storage) -> tuple[list[int], list[Any]]:
    """The stored array's shape with the blocks of every axis apart, and each dim's name: an axis, or a number."""
    layout = held.layout
    sizes, names = [layout.sizes[axis] for axis in held.lead], list[Any](held.lead)
    for dim, (entry, size) in enumerate(zip(layout.dims, layout.padded_block(held.shape), strict=True)):
        sizes += [*(layout.sizes[axis] for axis in entry), size]
        names += [*entry, dim]
    return sizes, names


def _by_position(x: Any, held: Storage, axes: Axes) -> Any:
    """The mesh axes that the tensor uses first, in order; then, as on a device, ones for its pieces, and its block."""
    sizes, names = _cut_dims(held)
    order = [names.index(name) for name in (*(axis for axis in axes if axis in names), *range(held.rank))]
    cut = jnp.transpose(x.reshape(sizes), order)
    used = len(order) - held.rank
    return cut.reshape(*cut.shape[:used], *(1 for _ in held.lead), *cut.shape[used:])


def _from_positions(x: Any, held: Storage, axes: Axes) -> Any:
    """The opposite; along axes that the result doesn't use all positions made the same, and one is taken."""
    for position, axis in reversed(list(enumerate(axes))):
        if not _uses(held, axis):
            x = jax.lax.index_in_dim(x, 0, position, keepdims=False)
    _, names = _cut_dims(held)
    standing = [axis for axis in axes if _uses(held, axis)]
    x = x.reshape(*x.shape[: len(standing)], *x.shape[len(standing) + len(held.lead) :])
    now = [*standing, *range(held.rank)]
    return jnp.transpose(x, [now.index(name) for name in names]).reshape(held.array_shape)
