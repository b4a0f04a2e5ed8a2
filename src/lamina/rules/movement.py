"""The rules of ops that only say where elements stand: transpose, reshape, broadcast, stack, and those along a dim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import Any

from lamina.errors import LayoutError, with_fix
from lamina.rules.elementwise import letters
from lamina.rules.factors import Factors, Passing
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]

# Moving elements commutes with every reduction of pieces.
MOVED = tuple(Passing(op, (0,)) for op in ReduceOp)


def moved_together(count: int) -> tuple[Passing, ...]:
    """The elements of several operands, moved into one result: pieces pass where all of them hold pieces."""
    return tuple(Passing(op, tuple(range(count)), jointly=count > 1) for op in ReduceOp)


def transpose(shapes: Sequence[Shape], order: tuple[int, ...]) -> Factors:
    """The dims in another order.

    >>> str(transpose([(2, 3, 4)], (2, 0, 1)))
    'abc->cab'
    """
    (shape,) = shapes
    names = letters(len(shape))
    dims = tuple((name,) for name in names)
    result = tuple(dims[d] for d in order)
    return Factors((dims,), (result,), (tuple(shape),), (tuple(shape[d] for d in order),), passing=MOVED)


def broadcast_to(shapes: Sequence[Shape], target: tuple[Any, ...]) -> Factors:
    """New dims in front and stretched ones are whole: every device has what it needs to make them.

    >>> str(broadcast_to([(1, 3)], (5, 2, 3)))
    '1c->abc'
    """
    (shape,) = shapes
    names = letters(len(target))
    front = len(target) - len(shape)
    if front < 0 or any(n not in (1, m) for n, m in zip(shape, target[front:], strict=True)):
        fact = f"a tensor of shape {tuple(shape)} doesn't broadcast to {target}"
        raise LayoutError(with_fix(fact, "dims, counted from the last, must be equal or 1"))
    own = tuple((name,) if n == m else () for name, n, m in zip(names[front:], shape, target[front:], strict=True))
    return Factors((own,), (tuple((name,) for name in names),), (tuple(shape),), (target,), passing=MOVED)


def stack(shapes: Sequence[Shape], dim: int) -> Factors:
    """Tensors of one shape along a new dim, which is whole.

    >>> str(stack([(2, 3), (2, 3)], 1))
    'ac,ac->abc'
    """
    first = tuple(shapes[0])
    if different := [tuple(shape) for shape in shapes if tuple(shape) != first]:
        raise LayoutError(with_fix(f"shapes {first} and {different[0]} can't be stacked", "they must be equal"))
    names = letters(len(first) + 1)
    result = tuple((name,) for name in names)
    own = tuple(entry for d, entry in enumerate(result) if d != dim)
    made = (*first[:dim], len(shapes), *first[dim:])
    count = len(shapes)
    return Factors((own,) * count, (result,), (first,) * count, (made,), passing=moved_together(count))


# -- reshape ----------------------------------------------------------------------------------------------------------


def reshape(shapes: Sequence[Shape], target: tuple[Any, ...]) -> Factors:
    """The same elements in row-major order; dims that are cut or joined are several factors, major to minor.

    Where the dims of both shapes have no common cut, they share the largest major factor, and the rest is whole.

    >>> str(reshape([(6, 4)], (3, 8))), str(reshape([(6, 5)], (2, 3, 5)))
    ('(ab)c->a(bc)', '(ab)c->abc')
    >>> str(reshape([(4, 6)], (6, 4))), reshape([(4, 6)], (6, 4)).sizes[0]
    ('(ab)d->(ac)e', ('a', 2))
    """
    (shape,) = shapes
    if not _same_size(shape, target):
        fact = f"a tensor of shape {tuple(shape)} has {_size(shape)} elements, and {target} {_size(target)}"
        raise LayoutError(with_fix(fact, "the two must be equal; one dim may be -1, for what is left"))
    cutting = _Cutting(tuple(shape), target)
    cutting.run()
    names = letters(len(cutting.sizes))
    own, made = (tuple(tuple(names[f] for f in entry) for entry in dims) for dims in (cutting.own, cutting.made))
    return Factors(
        (own,),
        (made,),
        (tuple(shape),),
        (target,),
        whole=frozenset(names[f] for f in cutting.whole),
        passing=MOVED,
        sizes=tuple(zip(names, cutting.sizes, strict=True)),
    )


Groups = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def reshape_across(shapes: Sequence[Shape], target: tuple[Any, ...], across: Groups) -> Factors:
    """The same where in some groups of dims (see `groups`) the major dims of both shapes are split alike.

    What such a split places elsewhere has to be passed on between the devices.

    >>> str(reshape_across([(5, 4)], (20,), (((0, 1), (0,)),)))
    'cd->c'
    """
    plain = reshape(shapes, target)
    if not across:
        return plain
    own, made = list(plain.operands[0]), list(plain.results[0])
    names = iter(letters(len(plain.sizes) + len(own) + len(made))[len(plain.sizes) :])
    whole = set(plain.whole)
    for dims, news in across:
        own[dims[0]] = made[news[0]] = (next(names),)
        for d in dims[1:]:
            own[d] = (next(names),)
        for e in news[1:]:
            made[e] = (next(names),)
        whole |= {entry[0] for entry in (*(own[d] for d in dims[1:]), *(made[e] for e in news[1:]))}
    return replace(plain, operands=(tuple(own),), results=(tuple(made),), whole=frozenset(whole))


def groups(shape: tuple[int, ...], target: tuple[int, ...]) -> Groups:
    """The dims that become each other, as finely as can be; dims of 1 are in none.

    >>> groups((2, 3, 1, 4), (6, 2, 2))
    (((0, 1), (0,)), ((3,), (1, 2)))
    """
    ours, theirs = list(_dims(shape)), list(_dims(target))
    found = []
    while ours:
        dims, news = [ours.pop(0)], [theirs.pop(0)]
        while (mine := prod(n for _, n in dims)) != (yours := prod(n for _, n in news)):
            (dims if mine < yours else news).append((ours if mine < yours else theirs).pop(0))
        found.append((tuple(d for d, _ in dims), tuple(e for e, _ in news)))
    return tuple(found)


def crossing(shape: tuple[int, ...], target: tuple[int, ...], layout: Layout) -> Groups:
    """The groups whose major dim alone is split, but not so that its blocks are the result's.

    >>> crossing((5, 4), (20,), Layout({"x": 2}, [("x",), ()])), crossing((4, 4), (16,), Layout({"x": 2}, [("x",), ()]))
    ((((0, 1), (0,)),), ())
    """
    if 0 in shape or not any(layout.dims):
        return ()
    plain = reshape([shape], target)
    (own,), (made,) = plain.operands, plain.results
    found = []
    for dims, news in groups(shape, target):
        axes = layout.dims[dims[0]]
        if not axes or any(layout.dims[d] for d in dims[1:]):
            continue
        splits = plain.placed(own[dims[0]], axes, layout.sizes)
        stays = splits is not None and not plain.whole & set(splits)
        if not stays or any(plain.axes_of(made[e], splits or {}, layout.sizes) is None for e in news):
            found.append((dims, news))
    return tuple(found)


def _size(shape: Shape) -> Any:
    return prod(shape)


def _same_size(shape: Shape, target: Shape) -> bool:
    return _counted(shape) != _counted(target) or bool(_size(shape) == _size(target))


def _counted(shape: Shape) -> bool:
    return all(isinstance(size, int) for size in shape)


class _Cutting:
    """Both shapes cut into factors, from the major end; factors are numbered."""

    def __init__(self, shape: tuple[Any, ...], target: tuple[Any, ...]) -> None:
        self.shape, self.target = shape, target
        self.sizes: list[Any] = []
        self.whole: list[int] = []
        self.own: list[tuple[int, ...]] = [()] * len(shape)
        self.made: list[tuple[int, ...]] = [()] * len(target)

    def run(self) -> None:
        ours, theirs = _dims(self.shape), _dims(self.target)
        left, right = next(ours, None), next(theirs, None)
        while left and right:
            (d, n), (e, m) = left, right
            if n == m:
                self._shared(d, e, n)
                left, right = next(ours, None), next(theirs, None)
                continue
            common = gcd(n, m) if n and m and _counted((n, m)) else 1
            if common == 1:
                left, right = self._uncut(left, ours, right, theirs)
                continue
            self._shared(d, e, common)
            left = (d, n // common) if n > common else next(ours, None)
            right = (e, m // common) if m > common else next(theirs, None)
        self._uncut(left, ours, right, theirs)

    def _shared(self, d: int, e: int, size: Any) -> None:
        number = self._factor(size)
        self.own[d], self.made[e] = (*self.own[d], number), (*self.made[e], number)

    def _factor(self, size: Any) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1

    def _uncut(self, left: Any, ours: Iterator, right: Any, theirs: Iterator) -> tuple[Any, Any]:
        """Both as whole factors up to where they meet again; returns what comes after."""
        mine, yours = 1, 1
        while left or right:
            if mine == yours and mine != 1:
                break
            if left and (not right or mine <= yours):
                mine = mine * left[1]
                self.own[left[0]] = (*self.own[left[0]], self._whole(left[1]))
                left = next(ours, None)
            else:
                yours = yours * right[1]
                self.made[right[0]] = (*self.made[right[0]], self._whole(right[1]))
                right = next(theirs, None)
        return left, right

    def _whole(self, size: Any) -> int:
        number = self._factor(size)
        self.whole.append(number)
        return number


def _dims(shape: tuple[Any, ...]) -> Iterator[tuple[int, Any]]:
    return ((d, size) for d, size in enumerate(shape) if size != 1)
