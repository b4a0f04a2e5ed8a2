"""The rules of what neural networks are made of: normalisations, attention, look-ups in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lamina.errors import LayoutError, Problems, with_fix
from lamina.rules.elementwise import elementwise, letters, linear
from lamina.rules.factors import Dims, Factors
from lamina.sharding.placements import ReduceOp

Shape = Sequence[Any]


def along(shapes: Sequence[Shape], dims: tuple[int, ...]) -> Factors:
    """Each run of elements along `dims` of the first operand on its own; what broadcasts against it scales or shifts.

    >>> rule = along([(4, 6), (6,)], (1,))
    >>> str(rule), sorted(rule.whole)
    ('ab,b->ab', ['b'])
    """
    alone = elementwise(shapes)
    if alone.result_shapes[0] != tuple(shapes[0]):
        fact = f"shapes {' and '.join(str(tuple(shape)) for shape in shapes)}: the result would be larger than x"
        raise LayoutError(with_fix(fact, "a scale or bias must broadcast to x"))
    names = letters(len(shapes[0]))
    return replace(alone, whole=frozenset(names[d] for d in dims))


def attention(shapes: Sequence[Shape]) -> Factors:
    """Queries `btnc`, keys and values `bsnc` (with or without b), and perhaps a mask `bnts`.

    A query needs all keys, so s is whole, and c with it; batch, heads and queries may be split.  Groups of g query
    heads may share one of n key heads.

    >>> print(attention([(2, 8, 4, 16), (2, 8, 2, 16), (2, 8, 2, 16), (8, 8)]))
    bt(ng)c,bsnc,bsnc,ts->bt(ng)c
    """
    query, key = shapes[0], shapes[1]
    _check_attention(shapes)
    groups = query[-2] // key[-2] if key[-2] else 1
    sizes = {"b": query[0], "t": query[-3], "s": key[-3], "n": key[-2], "g": groups, "c": query[-1]}
    heads = tuple(factor for factor in "ng" if sizes[factor] != 1)
    batch: Dims = (("b",),) if len(query) == 4 else ()
    asking: Dims = (*batch, ("t",), heads, ("c",))
    told: Dims = (*batch, ("s",), ("n",) if sizes["n"] != 1 else (), ("c",))
    masking: Dims = (("b",), heads, ("t",), ("s",)) if batch else (heads, ("t",), ("s",))
    full = (*([query[0]] if batch else []), query[-2], query[-3], key[-3])
    masks = tuple(
        tuple(
            entry if size == most else () for entry, size, most in zip(masking[skip:], mask, full[skip:], strict=True)
        )
        for mask in shapes[3:]
        for skip in [len(full) - len(mask)]
    )
    return Factors(
        (asking, told, told, *masks),
        (asking,),
        tuple(map(tuple, shapes)),
        (tuple(query),),
        whole=frozenset("sc"),
        sizes=(("n", sizes["n"]), ("g", groups)),
    )


def _check_attention(shapes: Sequence[Shape]) -> None:
    query, key, value, *masks = shapes
    problems = Problems()
    if len(query) not in (3, 4) or len(key) != len(query):
        fact = f"attention: q {tuple(query)} and k {tuple(key)} must both be of rank 3 or 4"
        raise LayoutError(with_fix(fact, "dims are (batch, length, heads, channels), the batch may be left out"))
    if tuple(key) != tuple(value):
        problems.add(f"attention: k {tuple(key)} and v {tuple(value)} have different shapes", "they must be equal")
    if query[:-3] != key[:-3] or query[-1] != key[-1]:
        fact = f"attention: q {tuple(query)} and k {tuple(key)} differ in batch or channels"
        problems.add(fact, "only length and heads may differ")
    if query[-2] != key[-2] and (not key[-2] or query[-2] % key[-2]):
        fact = f"attention: {query[-2]} heads of q can't share {key[-2]} heads of k evenly"
        problems.add(fact, "q needs a multiple of k's heads")
    full = (*query[:-3], query[-2], query[-3], key[-3])
    for mask in masks:
        ends = full[len(full) - len(mask) :]
        if len(mask) > len(full) or any(size not in (1, most) for size, most in zip(mask, ends, strict=True)):
            problems.add(f"attention: mask {tuple(mask)} doesn't broadcast to {full}", "its dims are (…, heads, q, k)")
    problems.check()


def lookup(shapes: Sequence[Shape]) -> Factors:
    """Rows of a table by their numbers; a device that has a part of the rows finds those, and zeros for the others.

    >>> print(lookup([(100, 16), (2, 8)]))
    va,bc->bca
    """
    table, ids = shapes
    if not len(table):
        raise LayoutError(with_fix(f"a table of shape {tuple(table)} has no rows", "give one of rank 1 or more"))
    names = letters(len(table) - 1 + len(ids))
    row, where = names[: len(table) - 1], names[len(table) - 1 :]
    return Factors.of(
        f"{_free(row, 'v')},{where}->{where}{row}",
        shapes,
        [(*ids, *table[1:])],
        reduced={_free(row, "v")[0]: ReduceOp.SUM},
        passing=linear(0),
    )


def _free(row: str, wanted: str) -> str:
    """The table's letters: its rows' own first."""
    return (wanted if wanted not in row else chr(0x3B1)) + row


def labelled(shapes: Sequence[Shape], dim: int) -> Factors:
    """Runs along a whole dim, and one label for each.

    >>> print(labelled([(2, 8, 100), (2, 8)], 2))
    abc,ab->ab
    """
    names, kept = _labelled(shapes[0], shapes[-1], dim)
    return Factors.of(f"{names},{kept}->{kept}", shapes, whole=names[dim])


def labelled_sums(shapes: Sequence[Shape], dim: int) -> Factors:
    """The same along a dim that may be split, with the run's peak: two sums, in front.

    >>> print(labelled_sums([(2, 8, 100), (2, 8, 1), (2, 8)], 2))
    abc,ab1,ab->dab
    """
    names, kept = _labelled(shapes[0], shapes[-1], dim)
    one, both = names[:dim] + "1" + names[dim + 1 :], letters(len(names) + 1)[-1]
    made = [(2, *shapes[-1])]
    return Factors.of(f"{names},{one},{kept}->{both}{kept}", shapes, made, reduced={names[dim]: ReduceOp.SUM})


def _labelled(values: Shape, labels: Shape, dim: int) -> tuple[str, str]:
    """Letters for the dims, and those of the labels."""
    expected = (*values[:dim], *values[dim + 1 :])
    if tuple(labels) != expected:
        fact = f"labels of shape {tuple(labels)} don't fit logits of shape {tuple(values)}"
        raise LayoutError(with_fix(fact, f"there must be one label per run along dim {dim}: {expected}"))
    names = letters(len(values))
    return names, names[:dim] + names[dim + 1 :]


def unstacked(shapes: Sequence[Shape], dim: int) -> Factors:
    """The entries of a dim, which is whole, each a result.

    >>> print(unstacked([(2, 5, 6)], 0))
    abc->bc,bc
    """
    (shape,) = shapes
    names = letters(len(shape))
    rest = names[:dim] + names[dim + 1 :]
    made = (*shape[:dim], *shape[dim + 1 :])
    text = f"{names}->{','.join([rest] * shape[dim])}"
    return Factors.of(text, shapes, [made] * shape[dim], whole=names[dim], passing=linear(0))
