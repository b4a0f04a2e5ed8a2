"""Boxes of a saved leaf: which files they stand in, and the reduction of pieces that the reader doesn't keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lamina.checkpoint.records import Record
from lamina.checkpoint.tiles import parts
from lamina.engine import compat
from lamina.engine.blocks import combine
from lamina.sharding import ReduceOp
from lamina.sharding.layout import Block

Reading = Callable[[], np.ndarray]


def start(root: Path, record: Record, box: Block, kept: Mapping[str, tuple[int, int]] | None = None) -> Reading:
    """Starts to read a box of a leaf; calling the result waits for it.

    The pieces along the axes in `kept` stay, as dims in front, in mesh order; of them, only these (start, stop) are
    read.  The pieces along all other Partial axes are reduced.
    """
    kept, array = kept or {}, record.array(root)
    partial = () if record.layout is None else record.layout.partial
    pieces = [kept.get(axis, (0, count)) for (axis, _), count in zip(partial, record.tiles.pieces, strict=True)]
    lead = tuple(slice(*some) for some in pieces)
    sizes = tuple(stop - start for start, stop in (*pieces, *box))
    runs: list[tuple[tuple[Any, ...], Any]] = []
    if all(sizes):
        runs = [((..., *inside), array.read((*lead, *stored))) for stored, inside in parts(record.tiles, box)]

    def finish() -> np.ndarray:
        if len(runs) == 1:
            value = array.finished(runs[0][1])
        else:
            value = np.empty(sizes, record.element)
            for inside, reading in runs:
                value[inside] = array.finished(reading)
        for position, (axis, op) in reversed(list(enumerate(partial))):
            if axis not in kept:
                value = _combined(value, op, position)
        return value

    return finish


def _combined(pieces: np.ndarray, op: ReduceOp, axis: int) -> np.ndarray:
    """The reduction as the engine does it, on the host."""
    with compat.wide_numbers(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return np.asarray(combine(jax.numpy.asarray(pieces), op, axis))
