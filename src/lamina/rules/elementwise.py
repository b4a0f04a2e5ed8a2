"""The rule of ops that treat every element alone, with numpy's broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.rules.factors import Dims, Factors, Passing
from lamina.sharding.placements import ReduceOp

LINEAR_OPS = (ReduceOp.SUM, ReduceOp.AVG)


def linear(*operands: int, jointly: bool = False) -> tuple[Passing, ...]:
    """Sums and averages pass through: of one operand alone (x · y, x / y), or of all these together (x + y)."""
    return tuple(Passing(op, operands, jointly) for op in LINEAR_OPS)


def elementwise(shapes: Sequence[Sequence[Any]], passing: tuple[Passing, ...] = ()) -> Factors:
    """One factor per dim of the result; an operand's dim of 1 that is stretched has none.

    >>> str(elementwise([(4, 1), (3,)])), elementwise([(4, 1), (3,)]).result_shapes
    ('a1,b->ab', ((4, 3),))
    """
    result = broadcast(shapes)
    names = letters(len(result))
    operands = []
    for shape in shapes:
        own = names[len(names) - len(shape) :]
        ends = result[len(result) - len(shape) :]
        operands.append(
            tuple((name,) if size == full else () for name, size, full in zip(own, shape, ends, strict=True))
        )
    dims: Dims = tuple((name,) for name in names)
    return Factors(tuple(operands), (dims,), tuple(map(tuple, shapes)), (result,), passing=passing)


def broadcast(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The shape that these broadcast to."""
    rank = max(map(len, shapes), default=0)
    found: list[Any] = []
    for dim in range(-rank, 0):
        sizes = {shape[dim] for shape in shapes if len(shape) >= -dim} - {1}
        if len(sizes) > 1:
            shown = " and ".join(str(tuple(shape)) for shape in shapes)
            fact = f"shapes {shown} don't broadcast: dim {dim} is {' and '.join(map(str, sorted(sizes, key=str)))}"
            raise LayoutError(with_fix(fact, "dims must be equal, or 1, counted from the last"))
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def letters(count: int) -> str:
    """Names for factors, in order."""
    return "".join(chr(ord("a") + i) if i < 26 else chr(0x100 + i) for i in range(count))
