"""The rules of ops that take entries by numbers known only when they run: x[i], take, take_along_axis, updates.

A dim that is indexed may be split: each device looks up what it has and has zero for the rest, so that its result is a
piece of the sum.  It is how a vocabulary split over devices is looked up; nothing moves until the value is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.rules.elementwise import broadcast, letters
from lamina.rules.factors import Dims, Factors
from lamina.rules.movement import MOVED, moved_together
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]


def gather(shapes: Sequence[Shape], dims: tuple[int, ...], at: int, op: ReduceOp) -> Factors:
    """One index tensor for each of `dims`; they broadcast, and their dims stand in the result from `at` on.

    >>> str(gather([(9, 4), (2, 3)], (0,), 0, ReduceOp.SUM)), str(gather([(9, 4, 5), (), ()], (0, 2), 0, ReduceOp.SUM))
    ('ab,cd->cdb', 'abc,,->b')
    """
    x, *indices = shapes
    places = broadcast(indices)
    names = letters(len(x) + len(places))
    own, new = names[: len(x)], names[len(x) :]
    given: list[Dims] = [tuple((name,) for name in own)]
    for shape in indices:
        ends = zip(new[len(new) - len(shape) :], shape, places[len(places) - len(shape) :], strict=True)
        given.append(tuple((name,) if size == full else () for name, size, full in ends))
    rest = [d for d in range(len(x)) if d not in dims]
    made = [*(own[d] for d in rest[:at]), *new, *(own[d] for d in rest[at:])]
    sizes = [*(x[d] for d in rest[:at]), *places, *(x[d] for d in rest[at:])]
    return Factors(
        tuple(given),
        (tuple((name,) for name in made),),
        tuple(map(tuple, shapes)),
        (tuple(sizes),),
        tuple((own[d], op) for d in dims),
        passing=MOVED,
    )


def along(shapes: Sequence[Shape], dim: int, op: ReduceOp) -> Factors:
    """An index tensor of x's rank whose other dims run with x's.

    >>> str(along([(4, 9), (4, 2)], 1, ReduceOp.SUM))
    'ab,ac->ac'
    """
    x, index = shapes
    if len(x) != len(index):
        fact = f"indices of shape {tuple(index)} for a tensor of shape {tuple(x)}"
        raise LayoutError(with_fix(fact, "give the two the same rank; a dim of 1 stretches"))
    others = broadcast([tuple(1 if d == dim else n for d, n in enumerate(shape)) for shape in (x, index)])
    names = letters(len(x) + 1)
    own = tuple((name,) if d == dim or x[d] == others[d] else () for d, name in enumerate(names[: len(x)]))
    made = tuple((names[-1] if d == dim else name,) for d, name in enumerate(names[: len(x)]))
    theirs = tuple(entry if d == dim or index[d] == others[d] else () for d, entry in enumerate(made))
    sizes = tuple(index[d] if d == dim else size for d, size in enumerate(others))
    return Factors((own, theirs), (made,), tuple(map(tuple, shapes)), (sizes,), ((names[dim], op),), passing=MOVED)


def update(shapes: Sequence[Shape]) -> Factors:
    """x with a part replaced, at starts given one by one: a dim that the part fills runs with x's, another is whole.

    >>> str(update([(8, 4), (2, 4), (), ()]))
    'ab,cb,,->ab'
    """
    x, part, *starts = shapes
    if len(part) != len(x) or len(starts) != len(x) or any(m > n for n, m in zip(x, part, strict=True)):
        fact = f"an update of shape {tuple(part)} at {len(starts)} starts for a tensor of shape {tuple(x)}"
        raise LayoutError(with_fix(fact, "give the update x's rank and no larger dims, and one start for each dim"))
    names = letters(2 * len(x))
    own = tuple((name,) for name in names[: len(x)])
    theirs = tuple(
        mine if n == m else (other,) for mine, other, n, m in zip(own, names[len(x) :], x, part, strict=True)
    )
    apart = frozenset(entry[0] for mine, entry in zip(own, theirs, strict=True) if entry != mine)
    nothing: tuple[Dims, ...] = ((),) * len(starts)
    given = tuple(map(tuple, shapes))
    return Factors((own, theirs, *nothing), (own,), given, (tuple(x),), whole=apart, passing=moved_together(2))


def one_hot(shapes: Sequence[Shape], classes: int, at: int) -> Factors:
    """A new dim of the classes, which is whole.

    >>> str(one_hot([(2, 3)], 9, 2))
    'ab->abc'
    """
    (shape,) = shapes
    *own, new = ((name,) for name in letters(len(shape) + 1))
    made = (*own[:at], new, *own[at:])
    return Factors((tuple(own),), (made,), (tuple(shape),), ((*shape[:at], classes, *shape[at:]),))
