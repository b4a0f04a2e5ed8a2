"""Entries of a split dim to where the result has them: each device receives just those that its block lacks.

`routes` says who sends what to whom; each of its rounds is a `ppermute` of the length of the longest message.  What a
device sends, and where in what it has and received an entry of its result stands, it reads from tables at its
own position, or computes where they would be long.  Where every device has what it needs, nothing is sent.

A device receives the entries that it lacks times the size of the other dims of its block, and not the whole dim.

On a simulated mesh, where all blocks are at hand, the dim is put together, taken from, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lamina.engine.blocks import from_blocks, to_blocks
from lamina.engine.local import Here
from lamina.engine.routes import Units, block_length, route
from lamina.rules.rows import Run, Runs, length
from lamina.sharding.layout import Axes


def taken(
    here: Here,
    blocks: Sequence[Any],
    dim: int,
    sizes: Sequence[int],
    axes: Axes,
    runs: Runs,
    fill: Any,
    units: Units = (1, 1),
) -> Any:
    """The block of a result whose entries along `dim` are, as the runs say, those of the operands one after the other.

    `sizes` are the operands' along the dim, which is split over `axes` in all of them and in the result.
    """
    if not axes:
        return run_by_run(_joined(blocks, dim), dim, runs, fill)
    count = here.results[0].layout.count(axes)
    made = length(runs)
    shape = list(blocks[0].shape)
    shape[dim] = block_length(made, count, units[1])
    if not all(shape) or not any(sizes):
        return jnp.full(shape, fill, blocks[0].dtype)
    if here.results[0].mesh.is_simulated:
        both = zip(blocks, sizes, strict=True)
        whole = [_by(units[0], gathered(here, x, dim, axes), dim, from_blocks, n // units[0], count) for x, n in both]
        result = _by(units[1], run_by_run(_joined(whole, dim), dim, runs, fill), dim, to_blocks, count)
        return lax.dynamic_slice_in_dim(result, here.index(axes) * shape[dim], shape[dim], dim)
    way = route(tuple(sizes), runs, count, units)
    own, me = _joined(blocks, dim), here.index(axes)
    parts = [own]
    order, number = _in_mesh_order(here, axes)
    for turn in way.rounds:
        pairs = [(number[sender], number[receiver]) for sender, receiver in turn.pairs]
        parts.append(lax.ppermute(_rows(own, dim, turn.rows, me, 0), order, pairs))
    return _rows(_joined(parts, dim), dim, way.rows, me, fill)


def _by(unit: int, x: Any, dim: int, function: Callable[..., Any], *more: int) -> Any:
    """The function on units in place of entries."""
    apart = x.reshape(*x.shape[:dim], x.shape[dim] // unit, unit, *x.shape[dim + 1 :])
    made = function(apart, dim, *more)
    return made.reshape(*made.shape[:dim], made.shape[dim] * unit, *made.shape[dim + 2 :])


def _in_mesh_order(here: Here, axes: Axes) -> tuple[Axes, list[int]]:
    """The axes as `ppermute` counts along them, whatever order they are named in, and each block's number there."""
    sizes = here.results[0].layout.sizes
    order = tuple(axis for axis in sizes if axis in axes)
    grid = np.arange(here.results[0].layout.count(axes)).reshape([sizes[axis] for axis in order])
    return order, np.transpose(grid, [order.index(axis) for axis in axes]).reshape(-1).tolist()


def _joined(parts: Sequence[Any], dim: int) -> Any:
    return parts[0] if len(parts) == 1 else lax.concatenate(list(parts), dim)


def _rows(x: Any, dim: int, table: np.ndarray, me: Any, fill: Any) -> Any:
    """The entries that the device's row of the table names; those past the end are filled."""
    first, count = table[:, 0], table.shape[1]
    in_a_row = bool((np.diff(table) == 1).all() and (first + count <= x.shape[dim]).all())
    if (table == table[0]).all():
        if in_a_row:
            return lax.slice_in_dim(x, int(first[0]), int(first[0]) + count, axis=dim)
        return jnp.take(x, table[0], axis=dim, mode="fill", fill_value=fill)
    if in_a_row:
        return lax.dynamic_slice_in_dim(x, jnp.asarray(first)[me], count, axis=dim)
    stretches = _stretches(table) if count > TABLED else None
    rows = jnp.asarray(table)[me] if stretches is None else _counted_out(stretches, count, me)
    return jnp.take(x, rows, axis=dim, mode="fill", fill_value=fill)


TABLED = 1024  # rows of longer tables are computed where that is possible: a constant as large as the tensor is no help
MOST_STRETCHES = 8


def _stretches(table: np.ndarray) -> np.ndarray | None:
    """Each row of the table as stretches of a constant step: [row, stretch] → (from where on, first entry, step).

    None if a row has many.

    >>> _stretches(np.array([[0, 1, 2, 7, 7], [5, 3, 1, 0, 1]])).tolist()
    [[[0, 0, 1], [3, 7, 0], [5, 0, 0]], [[0, 5, -2], [3, 0, 1], [5, 0, 0]]]
    """
    count = table.shape[1]
    found: list[list[tuple[int, int, int]]] = []
    for row in table:
        steps, at = np.diff(row), 0
        turns = np.flatnonzero(np.diff(steps)) + 1  # where another step begins
        stretches = []
        while at < count:
            step = int(steps[at]) if at < count - 1 else 0
            stretches.append((at, int(row[at]), step))
            later = turns[np.searchsorted(turns, at, side="right") :]
            at = int(later[0]) + 1 if len(later) else count
            if len(stretches) > MOST_STRETCHES:
                return None
        found.append(stretches)
    most = max(map(len, found)) + 1
    return np.array([stretches + [(count, 0, 0)] * (most - len(stretches)) for stretches in found], np.int32)


def _counted_out(stretches: np.ndarray, count: int, me: Any) -> Any:
    """The device's row of the table, computed."""
    own, place = jnp.asarray(stretches)[me], jnp.arange(count, dtype=jnp.int32)
    rows: Any = jnp.zeros(count, jnp.int32)
    for number in range(stretches.shape[1] - 1):
        start, first, step = own[number, 0], own[number, 1], own[number, 2]
        rows = jnp.where(place >= start, first + step * (place - start), rows)
    return rows


def gathered(here: Here, x: Any, dim: int, axes: Axes) -> Any:
    """The blocks along `axes` one after the other; axis by axis where a nest of `vmap`s plays the devices."""
    if not here.results[0].mesh.is_simulated:
        return lax.all_gather(x, axes, axis=dim, tiled=True)
    for axis in reversed(axes):
        x = lax.all_gather(x, axis, axis=dim, tiled=True)
    return x


def run_by_run(x: Any, dim: int, runs: Runs, fill: Any) -> Any:
    """The same where the dim is whole: slices, put together."""
    parts = [_run(x, dim, run, fill) for run in runs if run.count]
    return _joined(parts, dim) if parts else lax.slice_in_dim(x, 0, 0, axis=dim)


def _run(x: Any, dim: int, run: Run, fill: Any) -> Any:
    if run.is_new:
        return jnp.full((*x.shape[:dim], run.count, *x.shape[dim + 1 :]), fill, x.dtype)
    taken = -(-run.count // run.each)
    if run.step == 0:
        one = lax.slice_in_dim(x, run.start, run.start + 1, axis=dim)
        return jnp.broadcast_to(one, (*x.shape[:dim], run.count, *x.shape[dim + 1 :]))
    last = run.start + (taken - 1) * run.step
    low, high = min(run.start, last), max(run.start, last)
    part = lax.slice_in_dim(x, low, high + 1, abs(run.step), axis=dim)
    part = lax.rev(part, (dim,)) if run.step < 0 else part
    return part if run.each == 1 else jnp.repeat(part, run.each, axis=dim, total_repeat_length=run.count)
