"""Which pieces may stay, be reduced, or be made, when reductions of several ops are nested.

The value of a tensor with several Partial axes is reduced from the last mesh axis to the first.  Only ops that commute
may go in another order.
"""

from __future__ import annotations

from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp


def kept_pieces(source: Layout, target: Layout) -> dict[str, ReduceOp]:
    """The Partial axes that can stay as they are.

    An axis stays if both layouts reduce it with one op, and if that op commutes with every axis before it that has to
    be reduced or unreduced: otherwise it must be resolved first, and made anew.

    >>> S, M = ReduceOp.SUM, ReduceOp.MAX
    >>> axes = {"x": 2, "y": 2}
    >>> kept_pieces(Layout(axes, [()], {"x": S, "y": S}), Layout(axes, [()], {"y": S}))
    {'y': <ReduceOp.SUM: 'sum'>}
    >>> kept_pieces(Layout(axes, [()], {"x": S, "y": M}), Layout(axes, [()], {"y": M}))
    {}
    """
    order = [name for name, _ in source.axes]
    kept = {axis: op for axis, op in source.partial if target.reduce_op(axis) == op}
    while True:
        changing = [(a, op) for layout in (source, target) for a, op in layout.partial if a not in kept]
        clash = [
            axis
            for axis, op in kept.items()
            if any(order.index(a) < order.index(axis) and not op.commutes_with(o) for a, o in changing)
        ]
        if not clash:
            return kept
        for axis in clash:
            del kept[axis]


def may_reduce(layout: Layout, axes: Axes, op: ReduceOp) -> bool:
    """May these Partial axes be reduced before the ones that stand after them?

    >>> mixed = Layout({"x": 2, "y": 2}, [()], {"x": ReduceOp.SUM, "y": ReduceOp.MAX})
    >>> may_reduce(mixed, ("y",), ReduceOp.MAX), may_reduce(mixed, ("x",), ReduceOp.SUM)
    (True, False)
    """
    return all(op.commutes_with(other) for other in _ops_after(layout, axes))


def may_unreduce(layout: Layout, axis: str, op: ReduceOp) -> bool:
    """Does the value survive when this axis becomes Partial under the ones that stand after it?"""
    return all(op.commutes_with(other) for other in _ops_after(layout, (axis,)))


def _ops_after(layout: Layout, axes: Axes) -> list[ReduceOp]:
    order = [name for name, _ in layout.axes]
    first = min(order.index(axis) for axis in axes)
    return [op for axis, op in layout.partial if axis not in axes and order.index(axis) > first]
