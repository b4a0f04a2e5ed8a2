"""Arithmetic on arrays that no device boundary is in: padding blocks, and reducing pieces.

The padded form of a dim (see `storage`) is made and unmade here, and the reductions that have no collective of their
own get their meaning here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lamina.errors import LayoutError
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp


def to_blocks(x: Any, dim: int, blocks: int) -> Any:
    """A whole dim of n in its padded form: `blocks` blocks of ⌈n/blocks⌉, the smaller ones padded with a zero."""
    n = x.shape[dim]
    smaller = -n % blocks
    if not smaller:
        return x
    size, larger = -(-n // blocks), blocks - smaller
    head = lax.slice_in_dim(x, 0, larger * size, axis=dim)
    tail = _split(lax.slice_in_dim(x, larger * size, n, axis=dim), dim, smaller, size - 1)
    tail = _merge(jnp.pad(tail, [(0, int(axis == dim + 1)) for axis in range(tail.ndim)]), dim)
    return lax.concatenate([head, tail], dim)


def from_blocks(x: Any, dim: int, n: int, blocks: int) -> Any:
    """The whole dim of n again, from its padded form."""
    smaller = -n % blocks
    if not smaller:
        return x
    size, larger = -(-n // blocks), blocks - smaller
    head = lax.slice_in_dim(x, 0, larger * size, axis=dim)
    tail = _split(lax.slice_in_dim(x, larger * size, blocks * size, axis=dim), dim, smaller, size)
    tail = _merge(lax.slice_in_dim(tail, 0, size - 1, axis=dim + 1), dim)
    return lax.concatenate([head, tail], dim)


def _split(x: Any, dim: int, outer: int, inner: int) -> Any:
    return x.reshape(*x.shape[:dim], outer, inner, *x.shape[dim + 1 :])


def _merge(x: Any, dim: int) -> Any:
    return x.reshape(*x.shape[:dim], x.shape[dim] * x.shape[dim + 1], *x.shape[dim + 2 :])


def identity(op: ReduceOp, dtype: Any) -> np.ndarray:
    """What a piece holds that adds nothing to the reduction."""
    if op is ReduceOp.PROD:
        return np.ones((), dtype)
    if op in (ReduceOp.SUM, ReduceOp.AVG):
        return np.zeros((), dtype)
    _check_ordered(op, dtype)
    lowest = op is ReduceOp.MAX
    if dtype == np.bool_:
        return np.asarray(not lowest)
    limits = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    if jnp.issubdtype(dtype, jnp.floating) and np.isinf(infinite := np.asarray(np.inf, dtype)):
        return -infinite if lowest else infinite
    return np.asarray(limits.min if lowest else limits.max, dtype)  # 8-bit floats may have no infinities


def combine(pieces: Any, op: ReduceOp, axis: int = 0) -> Any:
    """The reduction of the pieces that stand along one array axis, in their own dtype.

    Bools: sum is `or`, prod is `and`.  AVG of integers and bools is the floor of the exact mean; of short floats it is
    taken in float32, so that a value isn't lost because the sum of its copies is too large.
    """
    dtype = pieces.dtype
    _check_ordered(op, dtype)
    if op is ReduceOp.AVG and not jnp.issubdtype(dtype, jnp.inexact):
        return _floor_mean(pieces, axis)
    if dtype == jnp.bool_:
        any_of = op in (ReduceOp.SUM, ReduceOp.MAX)
        return (jnp.any if any_of else jnp.all)(pieces, axis=axis)
    match op:
        case ReduceOp.SUM:
            return jnp.sum(pieces, axis=axis, dtype=dtype)
        case ReduceOp.PROD:
            return jnp.prod(pieces, axis=axis, dtype=dtype)
        case ReduceOp.MAX:
            return jnp.max(pieces, axis=axis)
        case ReduceOp.MIN:
            return jnp.min(pieces, axis=axis)
        case ReduceOp.AVG:
            wide = pieces if dtype.itemsize >= 4 else pieces.astype(jnp.float32)
            return (jnp.sum(wide, axis=axis) / jnp.asarray(pieces.shape[axis], wide.dtype)).astype(dtype)


def _check_ordered(op: ReduceOp, dtype: Any) -> None:
    if op in (ReduceOp.MAX, ReduceOp.MIN) and jnp.issubdtype(dtype, jnp.complexfloating):
        raise LayoutError(f"{op} of {np.dtype(dtype).name} isn't defined: complex numbers have no order")


def _floor_mean(pieces: Any, axis: int) -> Any:
    """⌊mean⌋ without overflow: the sum of the quotients, and the quotient of the summed remainders."""
    if pieces.dtype == jnp.bool_:
        return jnp.all(pieces, axis=axis)
    count = pieces.shape[axis]
    wide = pieces if jnp.iinfo(pieces.dtype).bits >= 32 else pieces.astype(jnp.int32)
    quotients, remainders = jnp.divmod(wide, jnp.asarray(count, wide.dtype))
    mean = jnp.sum(quotients, axis=axis, dtype=wide.dtype) + jnp.sum(remainders, axis=axis, dtype=wide.dtype) // count
    return mean.astype(pieces.dtype)


def as_ordered(x: Any, op: ReduceOp) -> Any:
    """Floats as integers of the same size in the same order, with NaN at the end that `op` (MAX or MIN) takes.

    Backends differ in what the largest of NaN and 1 is (XLA's CPU collectives and NCCL say 1); integers have no NaN.
    """
    kind = jnp.dtype(f"int{8 * x.dtype.itemsize}")
    limits, bits = jnp.iinfo(kind), lax.bitcast_convert_type(x, kind)
    end = limits.max if op is ReduceOp.MAX else limits.min
    return jnp.where(jnp.isnan(x), kind.type(end), _flipped(bits))


def from_ordered(x: Any, dtype: Any) -> Any:
    """The floats again."""
    return lax.bitcast_convert_type(_flipped(x), dtype)


def _flipped(bits: Any) -> Any:
    """Floats have a sign and a magnitude: below zero, larger bits are smaller numbers.  Its own inverse."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


# -- on one device of many --------------------------------------------------------------------------------------------


def axis_index(sizes: Mapping[str, int], axes: Axes) -> Any:
    """The device's position along several axes, major to minor, as one number."""
    index: Any = jnp.zeros((), jnp.int32)
    for axis in axes:
        index = index * sizes[axis] + lax.axis_index(axis)
    return index


def valid(block: tuple[int, ...], layout: Layout, shape: tuple[int, ...]) -> Any:
    """Where this device's padded block holds values."""
    mask: Any = jnp.asarray(True)
    for dim, (size, blocks) in enumerate(zip(shape, layout.grid, strict=True)):
        if size % blocks:
            held = size // blocks + (axis_index(layout.sizes, layout.dims[dim]) < size % blocks)
            mask &= lax.broadcasted_iota(jnp.int32, block, dim) < held
    return mask
