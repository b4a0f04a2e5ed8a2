"""An op in factor form: which dims of its operands and results run together.

`ij,jk->ik` is matmul: the factor `i` is dim 0 of the first operand and of the result, `j` is reduced.  What an op may
do with a mesh axis follows from the factors alone:

* An axis that splits a factor splits every dim where the factor stands, in operands and results; each device then
  computes with its blocks, and the result's block is right.  Operands without the factor are copied along the axis.
* If the factor is *reduced* the device's result is a piece: the result is Partial along the axis, with the factor's op.
* A factor that is *whole* can't be split: the op needs all of it on one device (a sort, an FFT).
* A dim may be several factors, major to minor (a reshape: `(ab)c->a(bc)`).  Its blocks are those of the major factor,
  if the axes divide that evenly; once they have split it to single entries, the next factor's.
* A piece may pass through unreduced where the op allows it; `Passing` says when.

Numbered, as the constructor checks them:

1. Every factor of a result that isn't new stands in some operand; a reduced one stands in no result.
2. There are as many shapes as operands and results, of their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lamina.errors import LayoutError
from lamina.sharding.layout import Axes
from lamina.sharding.placements import ReduceOp

Dims = tuple[tuple[str, ...], ...]  # for each dim its factors, major to minor
Shape = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Passing:
    """How pieces of one reduce op pass through an op unreduced, to become pieces of the result.

    `jointly` (x + y): every one of `operands` must hold pieces; copies become pieces at no cost.  Otherwise (x · y):
    one of `operands` holds pieces, and the others are the same on all devices.
    """

    op: ReduceOp
    operands: tuple[int, ...]
    jointly: bool = False


@dataclass(frozen=True)
class Factors:
    """One op on operands of known shapes; see the module's docstring.

    >>> str(Factors.of("ij,jk->ik", [(4, 6), (6, 8)], reduced={"j": ReduceOp.SUM}))
    'ij,jk->ik'
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    shapes: tuple[Shape, ...]
    result_shapes: tuple[Shape, ...]
    reduced: tuple[tuple[str, ReduceOp], ...] = ()
    whole: frozenset[str] = frozenset()
    passing: tuple[Passing, ...] = ()
    sizes: tuple[tuple[str, Any], ...] = ()  # of the factors of dims that are several

    def __post_init__(self) -> None:
        given = {factor for dims in self.operands for entry in dims for factor in entry}
        kept = {factor for dims in self.results for entry in dims for factor in entry}
        assert not kept & set(dict(self.reduced)), f"reduced factors in the result: {self}"
        assert set(dict(self.reduced)) <= given, f"reduced factors in no operand: {self}"
        for dims, shape in zip((*self.operands, *self.results), (*self.shapes, *self.result_shapes), strict=True):
            assert len(dims) == len(shape), f"{self} on shapes {self.shapes} → {self.result_shapes}"

    @staticmethod
    def of(
        text: str,
        shapes: Sequence[Sequence[Any]],
        result_shapes: Sequence[Sequence[Any]] | None = None,
        reduced: Mapping[str, ReduceOp] | None = None,
        whole: str = "",
        passing: Sequence[Passing] = (),
        sizes: Mapping[str, Any] | None = None,
    ) -> Factors:
        """The factors that a text says: one letter each, `(ab)` for a dim of several, `1` for a dim of none."""
        given, _, made = text.partition("->")
        operands = tuple(_parsed(part) for part in given.split(","))
        results = tuple(_parsed(part) for part in made.split(","))
        known = dict(sizes or {})
        if result_shapes is None:
            for dims, shape in zip(operands, shapes, strict=True):
                known.update((entry[0], size) for entry, size in zip(dims, shape, strict=True) if len(entry) == 1)
            result_shapes = [tuple(known[entry[0]] if entry else 1 for entry in dims) for dims in results]
        return Factors(
            operands,
            results,
            tuple(tuple(shape) for shape in shapes),
            tuple(tuple(shape) for shape in result_shapes),
            tuple((reduced or {}).items()),
            frozenset(whole),
            tuple(passing),
            tuple((sizes or {}).items()),
        )

    @cached_property
    def kept(self) -> frozenset[str]:
        """The factors of the results."""
        return frozenset(factor for dims in self.results for entry in dims for factor in entry)

    def without_averages(self) -> Factors:
        """The same for integers and bools, whose averages are floored: they don't pass through."""
        kept = tuple(passing for passing in self.passing if passing.op is not ReduceOp.AVG)
        return replace(self, passing=kept)

    def placed(self, entry: tuple[str, ...], axes: Axes, sizes: Mapping[str, int]) -> dict[str, Axes] | None:
        """Which factor of a dim each of these axes splits, major to minor; None if blocks would cross a factor's end.

        >>> f = Factors.of("(ab)->ab", [(6,)], [(2, 3)], sizes={"a": 2, "b": 3})
        >>> f.placed(("a", "b"), ("x",), {"x": 2}), f.placed(("a", "b"), ("x",), {"x": 3})
        ({'a': ('x',)}, None)
        """
        if len(entry) == 1:
            return {entry[0]: axes} if axes else {}
        found: dict[str, Axes] = {}
        left = list(entry)
        rest = dict(self.sizes)
        for axis in axes:
            while left and rest[left[0]] == 1:
                left.pop(0)
            if not left or rest[left[0]] % sizes[axis]:
                return None
            rest[left[0]] //= sizes[axis]
            found[left[0]] = (*found.get(left[0], ()), axis)
        return found

    def axes_of(self, entry: tuple[str, ...], splits: Mapping[str, Axes], sizes: Mapping[str, int]) -> Axes | None:
        """The axes that split a dim when its factors are split so; None if no layout says that."""
        axes = tuple(axis for factor in entry for axis in splits.get(factor, ()))
        if len(entry) > 1 and axes and self.placed(entry, axes, sizes) != {f: splits[f] for f in entry if f in splits}:
            return None
        return axes

    def __str__(self) -> str:
        return f"{','.join(map(_text, self.operands))}->{','.join(map(_text, self.results))}"


def _parsed(text: str) -> Dims:
    return tuple(_entries(text.strip()))


def _entries(text: str) -> Iterator[tuple[str, ...]]:
    position = 0
    while position < len(text):
        letter = text[position]
        end = text.index(")", position) if letter == "(" else position
        if letter == ")":
            raise LayoutError(f"no bracket is open at {position} of {text!r}")
        yield tuple(text[position + 1 : end]) if letter == "(" else () if letter == "1" else (letter,)
        position = end + 1


def _text(dims: Dims) -> str:
    return "".join("1" if not entry else entry[0] if len(entry) == 1 else f"({''.join(entry)})" for entry in dims)
