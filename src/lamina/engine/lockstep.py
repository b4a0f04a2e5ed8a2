"""Collectives that every device of a flat group does at the same time with its own array, inside of `shard_map`.

The group is all devices of the mesh, `axes` its axes, row-major; every device holds an array of one shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
from jax import lax

from lamina.engine.collectives import run_step
from lamina.planning.steps import AllReduce, ReduceScatter
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp


def all_gather(x: Any, axis: int, axes: Axes) -> Any:
    """All devices' arrays one behind the other."""
    return lax.all_gather(x, axes, axis=axis, tiled=True)


def all_reduce(x: Any, op: ReduceOp, axes: Axes, sizes: Mapping[str, int]) -> Any:
    """The reduction of all devices' arrays, on each."""
    reduce = partial(_all_reduce, op=op, axes=axes, sizes=tuple(sizes.items()))
    return reduce(x) if op.is_linear else _with_winners(reduce, axes)(x)


def reduce_scatter(x: Any, axis: int, axes: Axes, sizes: Mapping[str, int]) -> Any:
    """Each device's part of the sum; the dim divides."""
    layout = Layout(sizes, ((),) * x.ndim, [(name, ReduceOp.SUM) for name in axes])
    return run_step(ReduceScatter(axes, ReduceOp.SUM, axis), x, layout, x.shape)


def _all_reduce(x: Any, op: ReduceOp, axes: Axes, sizes: tuple[tuple[str, int], ...]) -> Any:
    layout = Layout(dict(sizes), ((),) * x.ndim, [(name, op) for name in axes])
    return run_step(AllReduce(axes, op), x, layout, x.shape)


def _with_winners(reduce: Any, axes: Axes) -> Any:
    """With the derivative that the reduction over a stacked dim has: to the winners, ties shared."""

    @jax.custom_jvp
    def reduced(x: Any) -> Any:
        return reduce(x)

    @reduced.defjvp
    def derivative(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (x,), (change,) = primals, tangents
        found = reduced(x)
        won = (x == found).astype(change.dtype)
        return found, lax.psum(change * won, axes) / lax.psum(won, axes)

    return reduced
