"""Layouts as one would draw them on a board, and a parser that reads them back.

::

    layout  =  "[" axis "=" size {"," axis "=" size} "]" spec
    spec    =  "()"  |  entry {"," entry}      then any of   " +" op "(" axis {"," axis} ")"
    entry   =  ("-" | axis | "(" axis {"," axis} ")")  ["?"]  ["!" priority]
    mapping =  layout  ["@" memory kind]

`-` is a whole dim, `(tp,dp)` a dim split over two axes, major to minor, `?` an open dim, `+sum(x)` a Partial axis.
Both `str` and `repr` of a layout and of a named mapping are read (see `parse_mapping`).

>>> parse_layout("[dp=2,tp=4] -,(tp,dp)")
Layout('[dp=2,tp=4] -,(tp,dp)')
>>> parse_spec("x?,-!2 +max(y)")
((DimSpec('x?'), DimSpec('-!2')), (('y', <ReduceOp.MAX: 'max'>),))
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lamina.errors import Problems, SpecSyntaxError
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp
from lamina.sharding.specs import DimSpec, entry_text


def axes_text(axes: Iterable[tuple[str, int]]) -> str:
    return "[" + ",".join(f"{name}={size}" for name, size in axes) + "]"


def spec_text(dims: Iterable[DimSpec], partial: Iterable[tuple[str, ReduceOp]] = ()) -> str:
    """`dims` and `partial` written down; `parse_spec` reads it back.

    >>> spec_text([DimSpec(("x",)), DimSpec()], [("y", ReduceOp.SUM)]), spec_text([])
    ('x,- +sum(y)', '()')
    """
    by_op: dict[ReduceOp, list[str]] = {}
    for axis, op in partial:
        by_op.setdefault(op, []).append(axis)
    entries = ",".join(entry_text(dim) for dim in dims) or "()"
    return " ".join([entries, *(f"+{op}({','.join(axes)})" for op, axes in by_op.items())])


def layout_text(layout: Layout) -> str:
    return f"{axes_text(layout.axes)} {spec_text(map(DimSpec, layout.dims), layout.partial)}"


def parse_layout(text: str) -> Layout:
    """Reads what `str(layout)` or `repr(layout)` wrote; open dims and priorities, which it can't say, are refused."""
    reader = _Reader(text, "Layout")
    axes = reader.mesh()
    dims, partial = reader.spec()
    reader.end()
    problems = Problems()
    for d, dim in enumerate(dims):
        if dim.is_open or dim.priority:
            problems.add(f"dim {d} is {entry_text(dim)!r} in {text!r}, but a layout has no open dims and no priorities")
    problems.check()
    return Layout(axes, [dim.axes for dim in dims], partial)


def parse_mesh(text: str) -> tuple[tuple[str, int], ...]:
    """Reads `x=2,y=4`, with or without the brackets.

    >>> parse_mesh("x=2,y=4")
    (('x', 2), ('y', 4))
    """
    reader = _Reader(text)
    axes = reader.mesh() if text.lstrip().startswith("[") else reader.axis_list()
    reader.end()
    return axes


def parse_spec(text: str) -> tuple[tuple[DimSpec, ...], tuple[tuple[str, ReduceOp], ...]]:
    """Reads one spec: an entry per dim, and the Partial axes.

    >>> parse_spec("x,(y")
    Traceback (most recent call last):
    lamina.errors.SpecSyntaxError: expected ')' at column 5 of 'x,(y'
    """
    reader = _Reader(text)
    spec = reader.spec()
    reader.end()
    return spec


def read_mapping(text: str) -> tuple[tuple[tuple[str, int], ...], tuple[DimSpec, ...], tuple, str | None]:
    """The parts of what `str(mapping)` or `repr(mapping)` of a NamedMapping wrote: axes, dims, Partial axes, memory."""
    reader = _Reader(text, "NamedMapping")
    axes = reader.mesh()
    dims, partial = reader.spec()
    memory_kind = reader.match(r"\w+", "a memory kind") if reader.take("@") else None
    reader.end()
    return axes, dims, partial, memory_kind


class _Reader:
    """A recursive-descent reader over one line, with or without the name of what it is; errors know their column."""

    def __init__(self, text: str, kind: str = ""):
        self.text, self.at = text, 0
        self.is_named = bool(kind) and self.take(f"{kind}('")

    def fail(self, fact: str, at: int | None = None) -> SpecSyntaxError:
        return SpecSyntaxError(fact, self.text, self.at if at is None else at)

    def skip_space(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip_space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"expected {token!r}")

    def match(self, pattern: str, what: str) -> str:
        self.skip_space()
        found = re.compile(pattern).match(self.text, self.at)
        if not found:
            raise self.fail(f"expected {what}")
        self.at = found.end()
        return found[0]

    def name(self) -> str:
        return self.match(r"[^\W\d]\w*", "an axis name")

    def names(self) -> tuple[str, ...]:
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        self.need(")")
        return tuple(names)

    def end(self) -> None:
        if self.is_named:
            self.need("')")
        self.skip_space()
        if self.at < len(self.text):
            raise self.fail(f"did not expect {self.text[self.at]!r}")

    def axis_list(self) -> tuple[tuple[str, int], ...]:
        axes: dict[str, int] = {}
        while True:
            self.skip_space()
            at, name = self.at, self.name()
            if name in axes:
                raise self.fail(f"axis {name!r} stands twice", at)
            self.need("=")
            self.skip_space()
            at, size = self.at, int(self.match(r"\d+", "a size"))
            if size < 1:
                raise self.fail("a size must be >= 1", at)
            axes[name] = size
            if not self.take(","):
                return tuple(axes.items())

    def mesh(self) -> tuple[tuple[str, int], ...]:
        self.need("[")
        axes = self.axis_list()
        self.need("]")
        return axes

    def entry(self) -> DimSpec:
        if self.take("-"):
            axes: tuple[str, ...] = ()
        elif self.take("("):
            axes = self.names()
        else:
            axes = (self.match(r"[^\W\d]\w*", "an axis name, '-' or '('"),)
        is_open = self.take("?")
        priority = int(self.match(r"\d+", "a priority")) if self.take("!") else 0
        return DimSpec(axes, is_open, priority)

    def spec(self) -> tuple[tuple[DimSpec, ...], tuple[tuple[str, ReduceOp], ...]]:
        dims = []
        if not self.take("()"):
            dims.append(self.entry())
            while self.take(","):
                dims.append(self.entry())
        partial = []
        while self.take("+"):
            op = self.match("|".join(ReduceOp), "one of " + ", ".join(ReduceOp))
            self.need("(")
            partial += [(axis, ReduceOp(op)) for axis in self.names()]
        return tuple(dims), tuple(partial)
