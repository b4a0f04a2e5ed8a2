"""Entries of a split dim find their way: messages and tables of `engine.routes`, played in numpy, and on devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina.engine import rows
from lamina.engine.routes import Units, numbers, route
from lamina.rules.rows import Run, Runs, length, new
from lamina.sharding import DeviceMesh
from lamina.sharding.dims import split_offset


def _blocks(size: int, count: int, unit: int = 1) -> list[range]:
    """Which entries each block holds, where no cut parts a unit."""
    ends = [unit * split_offset(size // unit, count, i) for i in range(count + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(ends)]


@st.composite
def runs_of(draw: st.DrawFn, size: int) -> Runs:
    found = []
    for _ in range(draw(st.integers(1, 4))):
        if not size or draw(st.integers(0, 4)) == 0:
            found.append(new(draw(st.integers(0, 4))))
            continue
        start, step = draw(st.integers(0, size - 1)), draw(st.sampled_from([1, 1, -1, 2, -3, 0]))
        most = 5 if step == 0 else (size - 1 - start) // step + 1 if step > 0 else start // -step + 1
        each = draw(st.sampled_from([1, 1, 2])) if step else 1
        found.append(Run(start, step, draw(st.integers(0, most)) * each, each))
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], Runs, int]:
    sizes = tuple(draw(st.lists(st.integers(0, 13), min_size=1, max_size=3)))
    return sizes, draw(runs_of(sum(sizes))), draw(st.integers(2, 6))


@st.composite
def regrouped(draw: st.DrawFn) -> tuple[tuple[int, ...], Runs, int, Units]:
    """As a reshape has it: all entries, in blocks of other units."""
    units = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = draw(st.integers(1, 9)) * lcm(*units)
    return (size,), (Run(0, 1, size),), draw(st.integers(2, 6)), units


@given(cases().map(lambda case: (*case, (1, 1))) | regrouped())
def test_every_entry_arrives(case: tuple[tuple[int, ...], Runs, int, Units]) -> None:
    sizes, runs, count, units = case
    index = numbers(runs)
    if not any(sizes) or not len(index):
        return
    way = route(sizes, runs, count, units)
    own = [_held(sizes, block, count, units[0]) for block in range(count)]
    behind = [list(block) for block in own]
    for turn in way.rounds:
        for ends in zip(*turn.pairs, strict=True):
            assert len(set(ends)) == len(ends), "a device sends or receives twice in a round"
        arrived = {receiver: [_at(own[sender], row) for row in turn.rows[sender]] for sender, receiver in turn.pairs}
        for block in range(count):
            behind[block] += arrived.get(block, [None] * turn.rows.shape[1])
    for block, entries in enumerate(_blocks(len(index), count, units[1])):
        found = [_at(behind[block], row) for row in way.rows[block][: len(entries)]]
        assert found == [None if index[p] < 0 else int(index[p]) for p in entries]


def _held(sizes: tuple[int, ...], block: int, count: int, unit: int = 1) -> list[int | None]:
    """The padded blocks of all operands, one after the other, by number among all entries."""
    found: list[int | None] = []
    for size, before in zip(sizes, itertools.accumulate(sizes, initial=0), strict=False):
        every = _blocks(size, count, unit)
        found += [before + i for i in every[block]] + [None] * (len(every[0]) - len(every[block]))
    return found


def _at(block: list[int | None], row: int) -> int | None:
    return block[row] if row < len(block) else None


@given(cases())
def test_only_what_is_lacking_is_received(case: tuple[tuple[int, ...], Runs, int]) -> None:
    """Each message holds each entry once, and only the padding to a round's longest message comes on top."""
    sizes, runs, count = case
    index = numbers(runs)
    if not any(sizes) or not len(index):
        return
    lacking: dict[tuple[int, int], set[int]] = {}
    homes = {entry: b for b in range(count) for entry in _held(sizes, b, count) if entry is not None}
    for block, entries in enumerate(_blocks(len(index), count)):
        for number in {int(index[p]) for p in entries if index[p] >= 0}:
            if homes[number] != block:
                lacking.setdefault((homes[number], block), set()).add(number)
    way = route(sizes, runs, count)
    assert sorted(pair for turn in way.rounds for pair in turn.pairs) == sorted(lacking)
    for turn in way.rounds:
        assert turn.rows.shape[1] == max(len(lacking[pair]) for pair in turn.pairs)
    assert way.received * count <= sum(map(len, lacking.values())) + sum(
        turn.rows.shape[1] - len(lacking[pair]) for turn in way.rounds for pair in turn.pairs
    )


@given(cases())
def test_where_the_dim_is_whole(case: tuple[tuple[int, ...], Runs, int]) -> None:
    sizes, runs, _ = case
    x = np.arange(float(sum(sizes)), dtype="float32")
    index = numbers(runs)
    assert length(runs) == len(index)
    expected = np.where(index < 0, -1, x[np.maximum(index, 0)] if len(x) else -1)
    np.testing.assert_array_equal(rows.run_by_run(x, 0, runs, -1), expected)


LONG = np.arange(1.0, 38.0, dtype="float32")
OPS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "slice": (lambda x: x[3:30], lambda x: x[3:30]),
    "backwards": (lambda x: x[30:2:-3], lambda x: x[30:2:-3]),
    "roll": (lambda x: lamina.roll(x, 5), lambda x: np.roll(x, 5)),
    "pad": (lambda x: lamina.pad(x, (2, 9), constant_values=7), lambda x: np.pad(x, (2, 9), constant_values=7)),
    "wrap": (lambda x: lamina.pad(x, (2, 50), mode="wrap"), lambda x: np.pad(x, (2, 50), mode="wrap")),
    "repeat": (lambda x: lamina.repeat(x, 2), lambda x: np.repeat(x, 2)),
    "concatenate": (lambda x: lamina.concatenate([x, x[:7]]), lambda x: np.concatenate([x, x[:7]])),
}


@pytest.mark.parametrize("name", OPS)
def test_long_tables_are_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long tables are; on uneven blocks along two axes, in an order that isn't the mesh's."""
    monkeypatch.setattr(rows, "TABLED", 0)
    ours, theirs = OPS[name]
    x = lamina.shard(LONG, DeviceMesh.create((2, 3), ("x", "y")), [("y", "x")])
    np.testing.assert_array_equal(ours(x).numpy(), theirs(LONG))


def test_tables_of_many_stretches_stay_tables() -> None:
    assert rows._stretches(np.array([[0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]])) is None
