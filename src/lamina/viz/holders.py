"""The devices that hold a block, as a short label.

Copies stand side by side, pieces are the arguments of what reduces them: `0 4` says that devices 0 and 4 hold copies,
`Σ(0, 4)` that the value is the sum of what they hold, and `Σ(0-3, 4-7)` that each of two pieces has four copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, product

from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

SIGNS = {ReduceOp.SUM: "Σ", ReduceOp.PROD: "Π", ReduceOp.MAX: "max", ReduceOp.MIN: "min", ReduceOp.AVG: "avg"}


def label(layout: Layout, block: Sequence[int], limit: int) -> str:
    """Who holds this block (one index per dim), in about `limit` characters.

    >>> label(Layout({"x": 2, "y": 4}, [("x",)]), (1,), 20)
    '4-7'
    >>> label(Layout({"x": 2, "y": 4}, [()], {"x": ReduceOp.SUM}), (0,), 20)
    'Σ(0-3, 4-7)'
    >>> label(Layout({"x": 2, "y": 2}, [()], {"x": ReduceOp.SUM, "y": ReduceOp.MAX}), (0,), 30)
    'Σ(max(0, 1), max(2, 3))'
    """
    first = _first_device(layout, block)
    runs = [(op, [axis for axis, _ in group]) for op, group in groupby(layout.partial, key=lambda piece: piece[1])]
    return _pieces(layout, first, runs, limit)


def _pieces(layout: Layout, first: int, runs: list[tuple[ReduceOp, list[str]]], limit: int) -> str:
    """The label of what hangs below one choice of pieces: the next reduction of them, or the copies of one."""
    if not runs:
        return compact(along(layout, first, layout.replicated_axes), limit)
    (op, axes), rest = runs[0], runs[1:]
    starts = along(layout, first, axes)

    def call(shown: list[int]) -> str:
        room = max(1, (limit - len(SIGNS[op]) - 2) // max(1, len(shown)) - 2)
        inside = [_pieces(layout, start, rest, room) for start in shown]
        return f"{SIGNS[op]}({', '.join([*inside[:-1], *['…'][: len(shown) < len(starts)], inside[-1]])})"

    if len(starts) <= limit // 2 and len(whole := call(starts)) <= limit:
        return whole
    for front in (3, 2):
        if front + 1 < len(starts) and len(some := call([*starts[:front], starts[-1]])) <= limit:
            return some
    return call([starts[0], starts[-1]])


def along(layout: Layout, first: int, axes: Sequence[str]) -> list[int]:
    """The devices (flat, row-major) at every coordinate of these axes, counted from the one at coordinate 0.

    >>> along(Layout({"x": 2, "y": 4}, []), 1, ["x"])
    [1, 5]
    """
    strides = _strides(layout)
    steps = [[strides[axis] * i for i in range(layout.sizes[axis])] for axis in axes]
    return [first + sum(choice) for choice in product(*steps)]


def compact(devices: Sequence[int], limit: int) -> str:
    """Ascending numbers as ranges, in about `limit` characters.

    >>> compact([0, 1, 2, 3], 20), compact([0, 4], 20), compact([0, 1, 2, 6, 7], 20)
    ('0-3', '0 4', '0-2 6 7')
    >>> compact(range(0, 64, 8), 16)
    '0 8 16 24 … 56'
    """
    parts: list[str] = []
    for _, group in groupby(enumerate(devices), key=lambda pair: pair[1] - pair[0]):
        run = [device for _, device in group]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    shown, front = " ".join(parts), len(parts) - 1
    while len(shown) > limit and front > 1:
        front -= 1
        shown = " ".join([*parts[:front], "…", parts[-1]])
    return shown


def _first_device(layout: Layout, block: Sequence[int]) -> int:
    """The first device that holds the block: at coordinate 0 of every axis that doesn't say which block it is."""
    strides, first = _strides(layout), 0
    for entry, index in zip(layout.dims, block, strict=True):
        for axis in reversed(entry):
            index, coordinate = divmod(index, layout.sizes[axis])
            first += strides[axis] * coordinate
    return first


def _strides(layout: Layout) -> dict[str, int]:
    strides, stride = {}, 1
    for axis, size in reversed(layout.axes):
        strides[axis] = stride
        stride *= size
    return strides
