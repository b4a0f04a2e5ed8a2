"""Which entries of a split dim go from which device to which: messages, in rounds, and tables of places.

Which entry goes where is known beforehand, so the messages are, too: every device that needs entries of another's block
gets them in one message, each entry once.  A round is messages of which each device sends at most one and receives at
most one, of the length of the longest; long messages are placed first, so that a round's are of like length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lamina.rules.rows import Runs
from lamina.sharding.dims import split_offset

Units = tuple[int, int]  # how many entries a cut never parts, in the operands and in the result


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


def block_length(size: int, count: int, unit: int) -> int:
    """How long the largest block is."""
    return -(-size // unit // count) * unit


def numbers(runs: Runs) -> np.ndarray:
    """For each entry of the result: which of the operand's it is, or -1.

    >>> from lamina.rules.rows import Run
    >>> numbers((Run(3, -1, 2), Run(-1, 0, 1), Run(0, 1, 3, each=2))).tolist()
    [3, 2, -1, 0, 0, 1]
    """
    parts = [np.full(r.count, -1) if r.is_new else r.start + r.step * (np.arange(r.count) // r.each) for r in runs]
    return np.concatenate(parts) if parts else np.zeros(0, int)


@lru_cache(maxsize=32)  # tables may be long; the compiled programs are kept elsewhere
def route(sizes: tuple[int, ...], runs: Runs, blocks: int, units: Units = (1, 1)) -> Route:
    """The messages, in rounds, and the tables.

    >>> from lamina.rules.rows import Run
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
    rows = np.full((blocks, block_length(len(index), blocks, units[1])), behind, np.int32)
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
        behind += block_length(size, blocks, unit)
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
