"""The rules of products that are summed over shared dims: einsum, matmul, tensordot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import LayoutError, Problems, with_fix
from lamina.rules.elementwise import broadcast, letters, linear
from lamina.rules.factors import Factors
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]


def einsum(shapes: Sequence[Shape], subscripts: str) -> Factors:
    """The factors of an einsum are its letters; those that the result lacks are summed.

    >>> str(einsum([(2, 3), (3, 4)], "ij,jk"))
    'ij,jk->ik'
    """
    operands, result = explicit(subscripts, [len(shape) for shape in shapes])
    sizes = _sizes(operands, shapes, subscripts)
    dims = tuple(
        tuple((letter,) if size == sizes[letter] else () for letter, size in zip(letters_, shape, strict=True))
        for letters_, shape in zip(operands, shapes, strict=True)
    )
    standing = {factor for entry in dims for names in entry for factor in names}
    made = tuple((letter,) for letter in result)
    return Factors(
        dims,
        (made,),
        tuple(map(tuple, shapes)),
        (tuple(sizes[letter] for letter in result),),
        tuple((letter, ReduceOp.SUM) for letter in sizes if letter not in result and letter in standing),
        frozenset(letter for operand in operands for letter in operand if operand.count(letter) > 1),  # diagonals
        linear(*range(len(shapes))),
    )


def explicit(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with dots and an implied result written out.

    >>> explicit("...ij,...jk", [4, 2])
    (['ABij', 'jk'], 'ABik')
    """
    given, arrow, made = subscripts.replace(" ", "").partition("->")
    parts = given.split(",")
    if len(parts) != len(ranks):
        fact = f"subscripts {subscripts!r} are for {len(parts)} operands, not {len(ranks)}"
        raise LayoutError(with_fix(fact, "separate the operands' letters by commas"))
    dots = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    problems = Problems()
    for i, (part, count) in enumerate(zip(parts, dots, strict=True)):
        if count < 0 or (count and "..." not in part):
            problems.add(f"subscripts {part!r} don't fit operand {i} of rank {ranks[i]}", "write one letter per dim")
    problems.check()
    most = max(dots, default=0)
    names = "".join(letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in subscripts)[:most]
    operands = [part.replace("...", names[most - count :]) for part, count in zip(parts, dots, strict=True)]
    if not arrow:
        single = sorted({letter for part in parts for letter in part.replace("...", "") if given.count(letter) == 1})
        made = "..." + "".join(single)
    result = made.replace("...", names)
    if unknown := [letter for letter in result if letter not in "".join(operands)]:
        fact = f"subscripts {subscripts!r}: {unknown} of the result stand in no operand"
        raise LayoutError(with_fix(fact, "name letters of the operands after the arrow"))
    if len(set(result)) < len(result):
        fact = f"subscripts {subscripts!r}: a letter stands twice in the result"
        raise LayoutError(with_fix(fact, "name each letter once after the arrow"))
    return operands, result


def _sizes(operands: Sequence[str], shapes: Sequence[Shape], subscripts: str) -> dict[str, Any]:
    seen: dict[str, list[Any]] = {}
    for letters_, shape in zip(operands, shapes, strict=True):
        for letter, size in zip(letters_, shape, strict=True):
            seen.setdefault(letter, []).append(size)
    problems = Problems()
    found = {}
    for letter, sizes in seen.items():
        different = list(dict.fromkeys(size for size in sizes if size != 1)) or [1]
        if len(different) > 1:
            problems.add(
                f"{subscripts!r}: the dims {letter!r} have different sizes, {' and '.join(map(str, different))}",
                "dims with one letter must be equal",
            )
        found[letter] = different[0]
    problems.check()
    return found


def matmul(shapes: Sequence[Shape]) -> Factors:
    """As numpy's: the last dim of x with the second to last of y, the dims before broadcast.

    >>> str(matmul([(5, 2, 3), (3, 4)]))
    'ABC,CD->ABD'
    """
    return einsum(shapes, matmul_subscripts(*shapes))


def matmul_subscripts(x: Shape, y: Shape) -> str:
    if not len(x) or not len(y):
        raise LayoutError(with_fix(f"shapes {tuple(x)} and {tuple(y)}: matmul takes no scalars", "multiply instead"))
    inner = y[-2] if len(y) > 1 else y[0]
    if x[-1] != inner:
        fact = f"shapes {tuple(x)} and {tuple(y)}: the last dim of x is {x[-1]}, and y has {inner} rows"
        raise LayoutError(with_fix(fact, "the two must be equal"))
    batch = len(broadcast([x[:-2], y[:-2]]))
    names = letters(batch + 3).upper() if batch + 3 <= 26 else letters(batch + 3)
    outer, row, shared, column = names[:batch], names[batch], names[batch + 1], names[batch + 2]
    left = outer[batch - max(len(x) - 2, 0) :] + (row if len(x) > 1 else "") + shared
    right = outer[batch - max(len(y) - 2, 0) :] + shared + (column if len(y) > 1 else "")
    made = outer + (row if len(x) > 1 else "") + (column if len(y) > 1 else "")
    return f"{left},{right}->{made}"
