"""Tensors that hold given values in given layouts, pieces included, and the plain functions that read them back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

import lamina
from lamina.engine.blocks import combine
from lamina.planning.simulate import Blocks, positions
from lamina.sharding import DeviceMesh, ReduceOp
from lamina.sharding.layout import Layout
from tests.engine.oracles import holding
from tests.ops.rows import Row
from tests.strategies import Mesh, all_layouts, ops_for

MESHES: tuple[Mesh, ...] = ({"x": 2, "y": 2}, {"x": 2, "y": 3})


def layout_tuples(row: Row, axes: Mesh, count: int, salt: str = "") -> list[tuple[Layout, ...]]:
    """So many of the operands' layouts, drawn from all there are (pieces of every op included), always the same ones.

    All of them, if there are no more.
    """
    choices = [all_layouts(axes, len(o.shape), ops_for(o.dtype)) for o in row.operands]
    total = prod(map(len, choices))
    draw = random.Random(f"{row}{axes}{salt}")
    numbers = range(total) if total <= count else draw.sample(range(total), count)
    return [_numbered(choices, number) for number in numbers]


def _numbered(choices: Sequence[Sequence[Layout]], number: int) -> tuple[Layout, ...]:
    found = []
    for some in choices:
        number, i = divmod(number, len(some))
        found.append(some[i])
    return tuple(found)


def shown(layouts: Sequence[Layout]) -> str:
    return " × ".join(map(str, layouts))


# -- values as pieces -------------------------------------------------------------------------------------------------


def pieces_of(value: np.ndarray, layout: Layout, seed: int = 0) -> np.ndarray:
    """The value as pieces, one leading axis per Partial axis: no piece is an identity, and they reduce exactly."""
    draw = np.random.default_rng(seed)

    def split(x: np.ndarray, partial: Sequence[tuple[str, ReduceOp]]) -> np.ndarray:
        if not partial:
            return x
        (axis, op), *rest = partial
        return np.stack([split(piece, rest) for piece in _split(x, layout.sizes[axis], op, draw)])

    return split(value, layout.partial)


def _split(x: np.ndarray, count: int, op: ReduceOp, draw: np.random.Generator) -> list[np.ndarray]:
    """`count` arrays whose reduction is x."""
    noise = [draw.integers(1, 4, x.shape) for _ in range(count - 1)]
    if x.dtype.kind == "b":
        neutral = np.full_like(x, op in (ReduceOp.PROD, ReduceOp.MIN, ReduceOp.AVG))
        return [x, *[neutral] * (count - 1)]
    if op is ReduceOp.PROD:
        if x.dtype.kind in "iu":
            return [x, *[np.ones_like(x)] * (count - 1)]
        factors = [np.asarray(2.0, x.dtype) ** n.astype(np.int8) for n in noise]
        first = x
        for factor in factors:
            first = (first / factor).astype(x.dtype)
        return [first, *[f.astype(x.dtype) for f in factors]]
    if op is ReduceOp.AVG and x.dtype.kind == "u":
        return [x] * count  # less than 0 would wrap, and the mean with it
    noise = [n.astype(x.dtype) for n in noise]
    if op is ReduceOp.SUM:
        return [(x - sum(noise)).astype(x.dtype), *noise]
    if op is ReduceOp.AVG:
        return [(x - sum(noise)).astype(x.dtype), *[(x + n).astype(x.dtype) for n in noise]]
    lower = op is ReduceOp.MAX
    return [x, *[_beyond(x, n, lower) for n in noise]]


def _beyond(x: np.ndarray, n: np.ndarray, lower: bool) -> np.ndarray:
    """Less than x, or more; what would wrap stays x."""
    other = (x - n if lower else x + n).astype(x.dtype)
    return np.where((other < x) if lower else (other > x), other, x)


def read(pieces: Any, layout: Layout) -> Any:
    """The value of pieces, by plain jnp: the last axis is reduced first."""
    for position, (_, op) in reversed(list(enumerate(layout.partial))):
        pieces = combine(pieces, op, position)
    return pieces


# -- Tensors ----------------------------------------------------------------------------------------------------------


def blocks_of(pieces: np.ndarray, layout: Layout) -> Blocks:
    """What each position holds of pieces."""
    shape, found = pieces.shape[len(layout.partial) :], {}
    for where in positions(layout):
        at = dict(zip(layout.sizes, where, strict=True))
        index = (*(at[axis] for axis in layout.partial_axes), *(slice(*ends) for ends in layout.block(shape, at)))
        found[where] = np.asarray(pieces[index])
    return found


def tensor_of(value: np.ndarray, mesh: DeviceMesh, layout: Layout, seed: int = 0) -> lamina.Tensor:
    return holding(blocks_of(pieces_of(value, layout, seed), layout), mesh, layout, value.shape)
