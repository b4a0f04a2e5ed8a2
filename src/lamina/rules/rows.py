"""The rules of ops that take entries of a dim by numbers known beforehand: slices, flip, roll, pad, repeat, join, cut.

Such an op is *runs* along each dim that it changes: which entries of the operand stand where in the result.  The
result's dim is split over the axes of the operand's, in blocks of its own size; the engine passes on just the entries
that another device's block needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.rules.elementwise import letters
from lamina.rules.factors import Factors, Passing
from lamina.rules.movement import MOVED, moved_together
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Run:
    """`count` entries of the result: the operand's at `start`, `start + step`, …, each of them `each` times.

    A `start` of -1 stands for new entries, which are filled.
    """

    start: int
    step: int
    count: int
    each: int = 1

    @property
    def is_new(self) -> bool:
        return self.start < 0


Runs = tuple[Run, ...]


def new(count: int) -> Run:
    """So many entries that the operand doesn't have."""
    return Run(-1, 0, count)


def length(runs: Runs) -> int:
    """
    >>> length((Run(0, 2, 3), new(2)))
    5
    """
    return sum(run.count for run in runs)


def rearranged(shapes: Sequence[Shape], dims: tuple[Runs | None, ...], fill: float = 0) -> Factors:
    """Every dim of the result has entries of the operand's dim, as its runs say; None: all of them, as they are.

    >>> flipped = (None, (Run(2, -1, 3),))
    >>> str(rearranged([(2, 3)], flipped)), rearranged([(2, 3)], (None, (Run(0, 1, 3), new(1)))).result_shapes
    ('ab->ab', ((2, 4),))
    """
    (shape,) = shapes
    names = tuple((name,) for name in letters(len(shape)))
    made = tuple(size if runs is None else length(runs) for size, runs in zip(shape, dims, strict=True))
    fills = any(run.is_new and run.count for runs in dims if runs for run in runs)
    return Factors((names,), (names,), (tuple(shape),), (made,), passing=filled(fill) if fills else MOVED)


def filled(value: float) -> tuple[Passing, ...]:
    """How pieces pass where every piece is filled with a value: the reduction of the fillings must be the value."""
    same = [passing for passing in MOVED if passing.op in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.AVG)]
    if value == 0:
        return MOVED
    return (*same, Passing(ReduceOp.PROD, (0,))) if value == 1 else tuple(same)


def concatenate(shapes: Sequence[Shape], dim: int) -> Factors:
    """One factor along the dim, of different sizes: all of them are split over the same axes, or none is.

    >>> str(concatenate([(2, 3), (4, 3)], 0)), concatenate([(2, 3), (4, 3)], 0).result_shapes
    ('ab,ab->ab', ((6, 3),))
    """
    first, count = tuple(shapes[0]), len(shapes)
    for shape in shapes:
        if len(shape) != len(first) or any(
            d != dim and n != m for d, (n, m) in enumerate(zip(shape, first, strict=True))
        ):
            fact = f"shapes {first} and {tuple(shape)} can't be joined along dim {dim}"
            raise LayoutError(with_fix(fact, "the other dims must be equal"))
    names = tuple((name,) for name in letters(len(first)))
    made = tuple(sum(shape[d] for shape in shapes) if d == dim else size for d, size in enumerate(first))
    given = tuple(map(tuple, shapes))
    return Factors((names,) * count, (names,), given, (made,), passing=moved_together(count))


def split(shapes: Sequence[Shape], dim: int, sizes: tuple[int, ...]) -> Factors:
    """Several results, of these sizes along the dim.

    >>> str(split([(6, 3)], 0, (2, 4))), split([(6, 3)], 0, (2, 4)).result_shapes
    ('ab->ab,ab', ((2, 3), (4, 3)))
    """
    (shape,) = shapes
    names = tuple((name,) for name in letters(len(shape)))
    made = tuple(tuple(size if d == dim else n for d, n in enumerate(shape)) for size in sizes)
    return Factors((names,), (names,) * len(sizes), (tuple(shape),), made, passing=MOVED)
