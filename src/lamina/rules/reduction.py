"""The rule of reductions over dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.rules.elementwise import letters, linear
from lamina.rules.factors import Factors, Passing
from lamina.sharding.placements import ReduceOp

PASSES = {  # how pieces pass through a reduction of that op: a sum of sums, the largest of the largest
    ReduceOp.SUM: linear(0),
    ReduceOp.MAX: (Passing(ReduceOp.MAX, (0,)),),
    ReduceOp.MIN: (Passing(ReduceOp.MIN, (0,)),),
    ReduceOp.PROD: (Passing(ReduceOp.PROD, (0,)),),
}


def reduction(shapes: Sequence[Sequence[Any]], dims: tuple[int, ...], op: ReduceOp, keepdims: bool = False) -> Factors:
    """The dims go, or stay as 1; a split one makes pieces.

    >>> str(reduction([(2, 3, 4)], (1,), ReduceOp.SUM)), str(reduction([(2, 3)], (1,), ReduceOp.MAX, True))
    ('abc->ac', 'ab->a1')
    """
    (shape,) = shapes
    names = letters(len(shape))
    kept = [d for d in range(len(shape)) if keepdims or d not in dims]
    made = tuple(() if d in dims else (names[d],) for d in kept)
    return Factors(
        (tuple((name,) for name in names),),
        (made,),
        (tuple(shape),),
        (tuple(1 if d in dims else shape[d] for d in kept),),
        tuple((names[d], op) for d in dims),
        passing=PASSES[op],
    )
