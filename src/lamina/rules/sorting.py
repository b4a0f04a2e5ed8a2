"""The rules of ops that bring a dim into order, or take the best of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.rules.elementwise import letters
from lamina.rules.factors import Factors
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]


def ordered(shapes: Sequence[Shape], dim: int) -> Factors:
    """The dim must be whole.

    >>> str(ordered([(2, 3)], 1)), sorted(ordered([(2, 3)], 1).whole)
    ('ab->ab', ['b'])
    """
    (shape,) = map(tuple, shapes)
    names = tuple((name,) for name in letters(len(shape)))
    return Factors((names,), (names,), (shape,), (shape,), whole=frozenset(names[dim]))


def best(shapes: Sequence[Shape], dim: int, count: int) -> Factors:
    """The dim must be whole, and becomes a new one, in two results: values and numbers.

    >>> str(best([(2, 9)], 1, 3)), str(best([(2, 9), (2, 9)], 1, 3))
    ('ab->ac,ac', 'ab,ab->ac,ac')
    """
    shape = tuple(shapes[0])
    *own, new = ((name,) for name in letters(len(shape) + 1))
    made = (*own[:dim], new, *own[dim + 1 :])
    sizes = (*shape[:dim], count, *shape[dim + 1 :])
    given = (tuple(own),) * len(shapes)
    return Factors(given, (made, made), (shape,) * len(shapes), (sizes, sizes), whole=frozenset((*own[dim], *new)))


def candidates(shapes: Sequence[Shape], dim: int, count: int) -> Factors:
    """Fewer entries of the dim, each from its own block, and their numbers.

    >>> str(candidates([(2, 9)], 1, 6)), candidates([(2, 9)], 1, 6).result_shapes
    ('ab->ab,ab', ((2, 6), (2, 6)))
    """
    (shape,) = map(tuple, shapes)
    names = tuple((name,) for name in letters(len(shape)))
    sizes = (*shape[:dim], count, *shape[dim + 1 :])
    return Factors((names,), (names, names), (shape,), (sizes, sizes))


def search(shapes: Sequence[Shape]) -> Factors:
    """Every block counts for itself.

    >>> str(search([(9,), (2, 3)]))
    'a,bc->bc'
    """
    ordered_, values = map(tuple, shapes)
    first, *rest = ((name,) for name in letters(len(values) + 1))
    own = tuple(rest)
    return Factors(((first,), own), (own,), (ordered_, values), (values,), ((first[0], ReduceOp.SUM),))
