"""The numbers of `jax.random`, block by block: what a device makes is its part of what one device would make of all.

JAX's threefry generator makes the bits of entry i of an array from the key and i alone.  So a device needs nothing but
the key and where its block begins.  JAX's own distributions are run on the block with a key that knows this: the data
of such a key is the threefry key and the block's start along each dim, and its bits are those of the block's entries.
Uneven blocks work alike, and nothing is communicated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import random as generators

from lamina.engine.local import Here, differing, everywhere
from lamina.engine.primitive import transition
from lamina.engine.programs import CACHED_PROGRAMS, called, laid_out
from lamina.engine.storage import Storage, whole

Draw = Callable[..., Any]  # (key, shape, *params) -> an array of that shape, each entry from its own bits
_UNSIGNED = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}


def drawn(draw: Draw, key: Any, held: Storage, params: tuple, by_block: bool = True) -> Any:
    """`draw(key, held.shape, *params)`, stored as `held` says; `by_block`: made where it lies, if the key allows it."""
    by_block = by_block and _is_threefry(key)
    data = jax.random.key_data(key) if by_block and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    program = _program(draw, held, params, by_block)
    return called(program, data, whole(held.mesh, jnp.shape(data)))


@lru_cache(maxsize=CACHED_PROGRAMS)
def _program(draw: Draw, held: Storage, params: tuple, by_block: bool) -> Callable[[Any], Any]:
    if not by_block or not prod(held.shape):
        return jax.jit(lambda key: _cut(draw(key, held.shape, *params), held))
    generator = _blocks_of(held.shape)

    def body(here: Here, data: Any) -> Any:
        starts = [here.start(held, dim) for dim in range(held.rank)]
        key_and_place = jnp.concatenate([data, jnp.asarray(starts, jnp.uint32).reshape(held.rank)])
        key = jax.random.wrap_key_data(key_and_place, impl=generator)
        return draw(key, held.layout.padded_block(held.shape), *params)

    given = whole(held.mesh, (2,))
    run = everywhere(body, held.mesh, (given,), (held,), differing((held,)), False)
    return jax.jit(lambda data: laid_out(run(data)[0], held))


def _cut(x: Any, held: Storage) -> Any:
    """Another generator: every device makes all of it, and keeps its part."""
    start = whole(held.mesh, held.shape)
    return transition(laid_out(x, start), start, held)


def _is_threefry(key: Any) -> bool:
    """Is this a key of JAX's default generator, in the form that can be computed in parts?"""
    if not jax.config.jax_threefry_partitionable:
        return False
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(key)) == "threefry2x32"
    return jax.config.jax_default_prng_impl == "threefry2x32"


@lru_cache(maxsize=1024)
def _blocks_of(shape: tuple[int, ...]) -> Any:
    """The generator of blocks of an array of this shape: keys are (key, key, start, start, …)."""

    def split(data: Any, count: tuple[int, ...]) -> Any:
        keys = jax.random.key_data(jax.random.split(_threefry(data), count))
        return jnp.concatenate([keys, jnp.broadcast_to(data[2:], (*count, len(shape)))], axis=-1)

    def fold_in(data: Any, more: Any) -> Any:
        return jnp.concatenate([jax.random.key_data(jax.random.fold_in(_threefry(data), more)), data[2:]])

    def bits(data: Any, width: int, block: tuple[int, ...]) -> Any:
        high, low = flat_positions(data[2:], block, shape)
        one, two = generators.threefry2x32_p.bind(data[0], data[1], high, low)
        if width == 64:
            return (one.astype(jnp.uint64) << 32) | two.astype(jnp.uint64)
        return (one ^ two).astype(_UNSIGNED[width])

    def seed(_: Any) -> Any:
        raise NotImplementedError("keys of blocks are made from keys")

    return generators.define_prng_impl(
        key_shape=(2 + len(shape),), seed=seed, split=split, random_bits=bits, fold_in=fold_in, name=f"blocks{shape}"
    )


def _threefry(data: Any) -> Any:
    return jax.random.wrap_key_data(data[:2], impl="threefry2x32")


def flat_positions(starts: Any, block: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Any, Any]:
    """For each entry of a block its number in the whole array, row-major, as two halves of 32 bits (high, low).

    >>> flat_positions(jnp.asarray([1, 2], jnp.uint32), (1, 2), (4, 5))[1].tolist()
    [[7, 8]]
    """
    high = low = jnp.zeros(block, jnp.uint32)
    for dim in range(len(shape)):
        stride = prod(shape[dim + 1 :])
        position = starts[dim] + jax.lax.broadcasted_iota(jnp.uint32, block, dim)
        if prod(shape) <= 2**32:
            low = low + position * jnp.uint32(stride % 2**32)
            continue
        upper, lower = _product(position, stride % 2**32)
        upper = upper + position * jnp.uint32(stride >> 32)
        low, carried = low + lower, low
        high = high + upper + (low < carried).astype(jnp.uint32)
    return high, low


def _product(x: Any, factor: int) -> tuple[Any, Any]:
    """x · factor in 64 bits, of numbers of 32: by halves of 16."""
    near, far = x & 0xFFFF, x >> 16
    small, large = jnp.uint32(factor & 0xFFFF), jnp.uint32(factor >> 16)
    middle = near * large + ((near * small) >> 16)
    crossing = (middle & 0xFFFF) + far * small
    return far * large + (middle >> 16) + (crossing >> 16), x * jnp.uint32(factor)
