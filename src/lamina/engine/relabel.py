"""Shards read as pieces: the value-changing half of a reduction over Sharded axes.

Every device keeps just the block that it has.  A dim of n split over axes S loses them and shrinks to n / |S|, and the
axes become Partial: what were parts of one long dim are now pieces of a short one.  The following transition reduces
them.  On the stored array it is a reshape and a transpose that move no data between devices (a test reads the compiled
program to prove it), so JAX differentiates and batches it by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import jax

from lamina.engine.programs import CACHED_PROGRAMS, Transition, in_turn, laid_out, lower
from lamina.engine.storage import Storage, storage
from lamina.sharding.layout import Axes
from lamina.sharding.placements import ReduceOp


def pieces_of(held: Storage, axes: Axes, op: ReduceOp) -> Storage:
    """The storage of the same blocks with `axes` Partial instead of Sharded; the dims that they split must be even."""
    layout = held.layout
    dims = [tuple(axis for axis in entry if axis not in axes) for entry in layout.dims]
    shape = tuple(
        size // layout.count(axis for axis in entry if axis in axes)
        for size, entry in zip(held.shape, layout.dims, strict=True)
    )
    pieces = (*layout.partial, *((axis, op) for axis in axes))
    return storage(held.mesh, layout.replace(dims=dims, partial=pieces), shape, held.memory_kind)


@lru_cache(maxsize=CACHED_PROGRAMS)
def as_pieces(source: Storage, target: Storage) -> Callable[[Any], Any]:
    """The program from the array of `source` to that of `target = pieces_of(source, …)`."""
    return jax.jit(partial(_relabel, source=source, target=target))


@lru_cache(maxsize=CACHED_PROGRAMS)
def reduction(source: Storage, pieces: Storage, route: tuple[Transition, ...]) -> Callable[[Any], Any]:
    """One program that reads shards as pieces and then goes the route: two calls took twice as long on 8 devices."""

    def both(x: Any) -> Any:
        x = _relabel(x, source, pieces)
        for step in route:
            x = lower(x, step)
        return x

    return in_turn(jax.jit(both), source)


def _relabel(x: Any, source: Storage, target: Storage) -> Any:
    """Every split dim becomes (axis, axis, …, rest); the axes that are pieces now go to the front, the rest merges."""
    sizes, names = list(source.array_shape[: len(source.lead)]), list(source.lead)
    kept_dims = []
    for size, entry in zip(source.layout.padded_block(source.shape), source.layout.dims, strict=True):
        inner = [axis for axis in entry if axis not in target.lead]
        kept_dims.append((inner, len(names) + len(entry)))
        sizes += [*(source.layout.sizes[axis] for axis in entry), size]
        names += [*entry, ""]
    order = [names.index(axis) for axis in target.lead]
    for inner, rest in kept_dims:
        order += [*(names.index(axis) for axis in inner), rest]
    moved = jax.numpy.transpose(x.reshape(sizes), order)
    assert prod(target.array_shape) == moved.size
    return laid_out(moved.reshape(target.array_shape), target)
