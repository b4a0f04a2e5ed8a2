"""Each step as the collectives of one device: what runs inside `shard_map`.

Every function takes the device's padded block and returns its padded block in the layout after the step.  Where a dim
is uneven the step takes all its axes at once, and `to_blocks` / `from_blocks` go between the whole dim and its padded
form, so that the collective itself always sees equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lamina.engine.blocks import (
    as_ordered,
    axis_index,
    combine,
    from_blocks,
    from_ordered,
    identity,
    to_blocks,
    valid,
)
from lamina.engine.exchange import exchange
from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
    Unreduce,
)
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]

JOINED_BLOCKS = 16  # of more, a program would take long to compile

# What XLA's all-reduce and reduce-scatter take on every backend; the rest is gathered and reduced by `combine`.
_NATIVE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NATIVE_INEXACT = {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}


def run_step(step: Step, x: Any, layout: Layout, shape: Shape) -> Any:
    """The block after the step, under the step's name in profiles."""
    with jax.named_scope(str(step)):
        match step:
            case Slice(dim, axes):
                return _slice(_enter(x, layout, dim, axes), layout.sizes, dim, axes)
            case AllGather(dim, axes):
                return _leave(_all_gather(x, axes, dim, layout.count(axes)), layout, shape, dim, axes)
            case AllToAll():
                return _all_to_all(step, x, layout, shape)
            case Permute():
                pairs = permutation(layout, step.after(layout))
                return lax.ppermute(x, tuple(layout.sizes), pairs) if pairs else x
            case AllReduce(axes, op):
                return _all_reduce(x, axes, op, layout.sizes)
            case ReduceScatter(axes, op, dim):
                return _reduce_scatter(_enter(x, layout, dim, axes), axes, op, dim, layout.sizes)
            case Unreduce(axis, op):
                return _unreduce(x, axis, op, layout, shape)
            case Transfer():
                raise AssertionError("between meshes there is no collective: see engine.transfer")
            case Exchange():
                device = axis_index(layout.sizes, tuple(layout.sizes))
                return exchange(x, layout, step.after(layout), shape, device)


def permutation(before: Layout, after: Layout) -> list[tuple[int, int]]:
    """Who sends its block to whom, so that every device gets the block that it holds `after`.

    A device that already has it keeps it (and stands in no pair, when all do); replicas are matched in order.
    """
    places = list(before.positions())
    pieces = before.partial_axes

    def held(layout: Layout, where: dict[str, int]) -> tuple:
        return layout.block_index(where), tuple(where[axis] for axis in pieces)

    holders: dict[tuple, list[int]] = {}
    for device, where in enumerate(places):
        holders.setdefault(held(before, where), []).append(device)
    pairs, waiting = [], []
    for device, where in enumerate(places):
        block = held(after, where)
        if device in holders[block]:
            holders[block].remove(device)
            pairs.append((device, device))
        else:
            waiting.append((device, block))
    pairs += [(holders[block].pop(0), device) for device, block in waiting]
    return sorted(pairs) if waiting else []


def _enter(x: Any, layout: Layout, dim: int, axes: Axes) -> Any:
    """Ready to be cut along `dim`: a whole dim goes to its padded form."""
    return x if layout.dims[dim] else to_blocks(x, dim, layout.count(axes))


def _leave(x: Any, layout: Layout, shape: Shape, dim: int, axes: Axes) -> Any:
    """After a concatenation along `dim`: a dim that is whole now loses its padding."""
    return from_blocks(x, dim, shape[dim], layout.grid[dim]) if len(axes) == len(layout.dims[dim]) else x


def _slice(x: Any, sizes: Mapping[str, int], dim: int, axes: Axes) -> Any:
    size = x.shape[dim]
    for axis in axes:
        size //= sizes[axis]
    return lax.dynamic_slice_in_dim(x, axis_index(sizes, axes) * size, size, dim)


def _all_gather(x: Any, axes: Axes, dim: int, count: int) -> Any:
    """The blocks of the group, side by side along the dim.

    XLA gathers along the first dim, and turns the result for any other element by element: of 16 MB on 8 CPU devices
    that took 36 ms, and to join the blocks, which copies whole rows, 10 ms (jax 0.10.2, 2 cores).
    """
    if prod(x.shape[:dim]) == 1 or count > JOINED_BLOCKS:
        return lax.all_gather(x, axes, axis=dim, tiled=True)
    gathered = lax.all_gather(x, axes, axis=0, tiled=False)
    return jnp.concatenate([gathered[i] for i in range(count)], dim)


def _all_to_all(step: AllToAll, x: Any, layout: Layout, shape: Shape) -> Any:
    """Every dim that gains axes is cut along them; what arrives is put in front of the dims that lose axes."""
    sizes, group = layout.sizes, step.axes
    leaving = step.leaving(layout)
    for dim, axes in step.joining.items():
        x = _enter(x, layout, dim, axes)
    if len(leaving) == len(step.joining) == 1:  # what the collective itself can say
        ((source, axes),), (target,) = leaving.items(), step.joining
        if axes == group:
            return _leave(_plain_all_to_all(x, group, target, source, layout.count(group)), layout, shape, source, axes)
    x = _to_front(x, sizes, step.joining, group)
    x = lax.all_to_all(x, group, split_axis=0, concat_axis=0, tiled=True)
    x = _from_front(x, sizes, leaving, group)
    for dim, axes in leaving.items():
        x = _leave(x, layout, shape, dim, axes)
    return x


def _plain_all_to_all(x: Any, group: Axes, split: int, concat: int, count: int) -> Any:
    """The parts along one dim, each to its device, joined along another.

    Parts that aren't rows XLA takes apart element by element; cut here they take 3/5 of its time (jax 0.10.2, CPU).
    """
    if prod(x.shape[:split]) == 1 or count > JOINED_BLOCKS:
        return lax.all_to_all(x, group, split_axis=split, concat_axis=concat, tiled=True)
    parts = jnp.concatenate([part[None] for part in jnp.split(x, count, split)])
    parts = lax.all_to_all(parts, group, split_axis=0, concat_axis=0, tiled=True)
    return jnp.concatenate([parts[i] for i in range(count)], concat)


def _to_front(x: Any, sizes: Mapping[str, int], cuts: Mapping[int, Axes], group: Axes) -> Any:
    """The parts of a block, cut along several dims, one behind the other on a new first dim in the group's order."""
    names: list[str | int] = []
    cut: list[int] = []
    for dim, size in enumerate(x.shape):
        axes = cuts.get(dim, ())
        names += [*axes, dim]
        cut += [*(sizes[axis] for axis in axes), size // prod(sizes[axis] for axis in axes)]
    order = [names.index(name) for name in (*group, *range(x.ndim))]
    inside = [cut[names.index(dim)] for dim in range(x.ndim)]
    return jnp.transpose(x.reshape(cut), order).reshape(-1, *inside)


def _from_front(x: Any, sizes: Mapping[str, int], joins: Mapping[int, Axes], group: Axes) -> Any:
    """The opposite: the parts on the first dim become one block, joined along several dims."""
    rank, inside = x.ndim - 1, x.shape[1:]
    names: list[Any] = [*group, *range(rank)]
    order = [names.index(name) for dim in range(rank) for name in (*joins.get(dim, ()), dim)]
    parts = jnp.transpose(x.reshape(*(sizes[axis] for axis in group), *inside), order)
    return parts.reshape([size * prod(sizes[axis] for axis in joins.get(dim, ())) for dim, size in enumerate(inside)])


def _all_reduce(x: Any, axes: Axes, op: ReduceOp, sizes: Mapping[str, int]) -> Any:
    count = prod(sizes[axis] for axis in axes)
    if native := _native(op, x.dtype, count):
        return native(x, axes, None)
    # No collective for it: reduce-scatter and gather where a dim can be cut, else gather all pieces.
    for dim, size in enumerate(x.shape):
        if size and size % count == 0:
            return lax.all_gather(_reduce_scatter(x, axes, op, dim, sizes), axes, axis=dim, tiled=True)
    return _combine(lax.all_gather(x, axes, axis=0, tiled=False), axes, op, sizes)


def _reduce_scatter(x: Any, axes: Axes, op: ReduceOp, dim: int, sizes: Mapping[str, int]) -> Any:
    count = prod(sizes[axis] for axis in axes)
    if op.is_linear and (native := _native(op, x.dtype, count)):
        return native(x, axes, dim)
    parts = jnp.moveaxis(x.reshape(*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :]), dim, 0)
    return _combine(lax.all_to_all(parts, axes, split_axis=0, concat_axis=0, tiled=True), axes, op, sizes)


def _combine(pieces: Any, axes: Axes, op: ReduceOp, sizes: Mapping[str, int]) -> Any:
    """Pieces along array axis 0, one per device of the group, reduced from the last mesh axis to the first."""
    pieces = pieces.reshape(*(sizes[axis] for axis in axes), *pieces.shape[1:])
    standing = list(axes)
    for axis in reversed([name for name in sizes if name in axes]):
        pieces = combine(pieces, op, standing.index(axis))
        standing.remove(axis)
    return pieces


def _native(op: ReduceOp, dtype: Any, count: int) -> Any:
    """The collective for this op and dtype, as a function of (x, axes, scatter dim or None); None if there is none."""
    inexact = dtype.name in _NATIVE_INEXACT
    if op is ReduceOp.SUM and (inexact or dtype.name in _NATIVE):
        return _sum
    if op is ReduceOp.AVG and inexact and dtype.name != "float16":  # whose sum may be too large where its mean isn't
        return lambda x, axes, dim: _sum(x, axes, dim) / jnp.asarray(count, x.dtype)
    if op in (ReduceOp.MAX, ReduceOp.MIN) and (dtype.name in _NATIVE or (inexact and dtype.kind != "c")):
        return partial(_extreme, op=op)
    return None


def _extreme(x: Any, axes: Axes, dim: None, op: ReduceOp) -> Any:
    extreme = lax.pmax if op is ReduceOp.MAX else lax.pmin
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return extreme(x, axes)
    return from_ordered(extreme(as_ordered(x, op), axes), x.dtype)


def _sum(x: Any, axes: Axes, dim: int | None) -> Any:
    return lax.psum(x, axes) if dim is None else lax.psum_scatter(x, axes, scatter_dimension=dim, tiled=True)


def _unreduce(x: Any, axis: str, op: ReduceOp, layout: Layout, shape: Shape) -> Any:
    if op is ReduceOp.AVG:
        return x
    neutral = jnp.broadcast_to(identity(op, x.dtype), x.shape)
    if op is not ReduceOp.SUM:
        neutral = jnp.where(valid(x.shape, layout, shape), neutral, jnp.zeros((), x.dtype))  # padding stays zero
    return jnp.where(lax.axis_index(axis) == 0, x, neutral)
