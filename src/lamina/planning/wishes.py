"""What the operands' specs ask of propagation: open dims, closed dims, priorities.

* An *open* dim keeps its axes, and may be split further.  A *closed* one keeps exactly its axes, if some way of the op
  allows it; that counts only where some dim is open, for without open dims all are closed and the cost decides.
* *Priorities*: where operands want different axes on one factor, the dim with the smaller number keeps its own,
  whatever that costs.  They count where dims that are split have different numbers; among equals the cost decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lamina.rules import Lying
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.specs import DimSpec


@dataclass(frozen=True)
class Wishes:
    """The specs of each operand's dims (None: of an operand that wants nothing), and the axes that they have now.

    >>> from lamina.sharding import P
    >>> x = Layout({"x": 2, "y": 2}, [("x",)])
    >>> firm = Wishes.of([P("x"), P(DimSpec("x", is_open=True))], [x, x])
    >>> firm.broken([((("x", "y"),), ()), ((("x", "y"),), ())]), firm.broken([((("x",),), ()), (((),), ())])
    ((1,), (0,))
    """

    dims: tuple[tuple[tuple[int, Axes, DimSpec], ...], ...]

    @staticmethod
    def of(specs: Sequence[Sequence[DimSpec] | None], layouts: Sequence[Layout]) -> Wishes | None:
        """None where nothing is asked for: no open dim, and one priority."""
        dims = tuple(
            tuple((d, axes, spec) for d, (axes, spec) in enumerate(zip(layout.dims, own or (), strict=False)))
            for own, layout in zip(specs, layouts, strict=True)
        )
        found = Wishes(dims)
        return found if found._some_open or found._levels else None

    @cached_property
    def _some_open(self) -> bool:
        return any(spec.is_open for dims in self.dims for _, _, spec in dims)

    @cached_property
    def _levels(self) -> tuple[int, ...]:
        """The priorities that are compared, the strongest first; the weakest yields to cost anyway."""
        return tuple(sorted({spec.priority for dims in self.dims for _, axes, spec in dims if axes})[:-1])

    def broken(self, required: Sequence[Lying]) -> tuple[int, ...]:
        """How many wishes a way breaks: of each priority, then of closed dims.  Less is better, the first first."""
        lost = [
            (spec, axes)
            for dims, (entries, _) in zip(self.dims, required, strict=True)
            for d, axes, spec in dims
            if (entries[d][: len(axes)] if spec.is_open else entries[d]) != axes
        ]
        by_level = [sum(spec.priority == level for spec, axes in lost if axes) for level in self._levels]
        closed = [sum(not spec.is_open for spec, _ in lost)] if self._some_open else []
        return (*by_level, *closed)
