"""Entries of a split dim to where the result has them: each device receives just those that its block lacks.

Which entry goes where is known beforehand, so the messages are, too: every device that needs entries of another's block
gets them in one message, each entry once.  A round is messages of which each device sends at most one and receives at
most one, a `ppermute` of the size of the longest; large messages are placed first, so that a round's are of like size.
What a device sends, and where in what it has and received an entry of its result stands, it reads from tables at its
own position, or computes where they would be long.  Where every device has what it needs, nothing is sent.

A device receives the entries that it lacks times the size of the other dims of its block, and not the whole dim.

On a simulated mesh, where all blocks are at hand, the dim is put together, taken from, and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lamina.engine.blocks import from_blocks, to_blocks
from lamina.engine.local import Here
from lamina.rules.rows import Run, Runs, length
from lamina.sharding.dims import split_offset
from lamina.sharding.layout import Axes


@dataclass(frozen=True, eq=False)
class Round:
    """`pairs` of blocks, sender and receiver; `rows[sender]`: the entries of its block that it sends."""

    pairs: tuple[tuple[int, int], ...]
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Route:
    """`rows[block]`: where the entries of a result's block stand in the own block with all that is received behind it.

    Past the end: nowhere, they are new.
    """

    rounds: tuple[Round, ...]
    rows: np.ndarray

    @property
    def received(self) -> float:
        """Entries that a device receives, on the mean."""
        return sum(len(turn.pairs) * turn.rows.shape[1] for turn in self.rounds) / len(self.rows)


Units = tuple[
    int, int
]  # entries that a cut never parts, in the operands and in the result: 2 cuts 6 entries as 4 and 2


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
    shape[dim] = _block(made, count, units[1])
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


def _block(size: int, count: int, unit: int) -> int:
    """How long the largest block is."""
    return -(-size // unit // count) * unit


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


# -- who needs what ---------------------------------------------------------------------------------------------------


def numbers(runs: Runs) -> np.ndarray:
    """For each entry of the result: which of the operand's it is, or -1.

    >>> numbers((Run(3, -1, 2), Run(-1, 0, 1), Run(0, 1, 3, each=2))).tolist()
    [3, 2, -1, 0, 0, 1]
    """
    parts = [np.full(r.count, -1) if r.is_new else r.start + r.step * (np.arange(r.count) // r.each) for r in runs]
    return np.concatenate(parts) if parts else np.zeros(0, int)


@lru_cache(maxsize=32)  # tables may be long; the compiled programs are kept elsewhere
def route(sizes: tuple[int, ...], runs: Runs, blocks: int, units: Units = (1, 1)) -> Route:
    """The messages, in rounds, and the tables.

    >>> shifted = route((8,), (Run(1, 1, 7), Run(0, 1, 1)), 4)  # two entries each, rolled by one
    >>> shifted.rounds[0].pairs, shifted.rounds[0].rows.tolist(), shifted.rows[0].tolist()
    (((0, 3), (1, 0), (2, 1), (3, 2)), [[0], [0], [0], [0]], [1, 2])
    """
    index = numbers(runs)
    holder, place, own = _homes(sizes, blocks, units[0])
    starts = _starts(len(index), blocks, units[1])
    needs: dict[tuple[int, int], np.ndarray] = {}
    for block in range(blocks):
        wanted = index[starts[block] : starts[block + 1]]
        wanted = wanted[wanted >= 0]
        for sender in np.unique(holder[wanted]):
            if sender != block:
                needs[int(sender), block] = np.unique(place[wanted[holder[wanted] == sender]])
    rounds = [_round(pairs, needs, blocks, own) for pairs in _matched(needs)]
    offsets: dict[tuple[int, int], int] = {}
    behind = own
    for turn in rounds:
        offsets.update((pair, behind) for pair in turn.pairs)
        behind += turn.rows.shape[1]
    rows = np.full((blocks, _block(len(index), blocks, units[1])), behind, np.int32)
    for block in range(blocks):
        wanted = index[starts[block] : starts[block + 1]]
        there = np.flatnonzero(wanted >= 0)
        senders, places = holder[wanted[there]], place[wanted[there]]
        for sender in np.unique(senders):
            sent = places[senders == sender]
            if sender != block:
                sent = offsets[int(sender), block] + np.searchsorted(needs[int(sender), block], sent)
            rows[block, there[senders == sender]] = sent
    return Route(tuple(rounds), rows)


def _starts(size: int, blocks: int, unit: int) -> np.ndarray:
    return np.array([unit * split_offset(size // unit, blocks, block) for block in range(blocks + 1)])


def _homes(sizes: tuple[int, ...], blocks: int, unit: int) -> tuple[np.ndarray, np.ndarray, int]:
    """For each entry of the operands, one after the other: which block holds it, and where; and a block's size."""
    holder, place, behind = [], [], 0
    for size in sizes:
        starts = _starts(size, blocks, unit)
        entry = np.arange(size)
        held = np.searchsorted(starts, entry, side="right") - 1
        holder.append(held)
        place.append(entry - starts[held] + behind)
        behind += _block(size, blocks, unit)
    return np.concatenate(holder), np.concatenate(place), behind


def _matched(needs: dict[tuple[int, int], np.ndarray]) -> list[list[tuple[int, int]]]:
    """The messages in rounds, the longest first, each in the first round where its sender and receiver are free."""
    rounds: list[list[tuple[int, int]]] = []
    for pair in sorted(needs, key=lambda pair: (-len(needs[pair]), (pair[1] - pair[0]), pair)):
        free = (turn for turn in rounds if all(pair[0] != s and pair[1] != r for s, r in turn))
        turn = next(free, None)
        if turn is None:
            rounds.append(turn := [])
        turn.append(pair)
    return rounds


def _round(pairs: list[tuple[int, int]], needs: dict[tuple[int, int], np.ndarray], blocks: int, own: int) -> Round:
    longest = max(len(needs[pair]) for pair in pairs)
    rows = np.full((blocks, longest), own, np.int32)
    for sender, receiver in pairs:
        sent = needs[sender, receiver]
        rows[sender, : len(sent)] = sent
        rows[sender, len(sent) :] = np.minimum(sent[-1] + 1 + np.arange(longest - len(sent)), own)  # nobody reads these
    idle = [block for block in range(blocks) if block not in {sender for sender, _ in pairs}]
    rows[idle] = rows[pairs[0][0]]  # what is sent by nobody may be anything: like the others, it needs no table
    return Round(tuple(sorted(pairs)), rows)


def received(sizes: Sequence[int], blocks: int, runs: Runs, units: Units = (1, 1)) -> float:
    """The entries that a device receives, on the mean."""
    return 0.0 if blocks == 1 or not any(sizes) else route(tuple(sizes), runs, blocks, units).received
