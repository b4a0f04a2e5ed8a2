"""The route between two layouts: the cheapest chain of steps.

Uniform-cost search over layouts.  The cost of a route is (bytes received, number of steps); ties go to the route that
was found first, and moves come in a fixed order, so every process finds the same plan.  The states are layouts, of
which there are the same few whatever the axes' sizes: the cost never depends on the number of devices.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from itertools import count

from lamina.errors import PlanError
from lamina.planning.moves import kept_pieces, moves
from lamina.planning.plan import Plan, block_bytes
from lamina.planning.steps import Step
from lamina.sharding.layout import Layout, check_rank

CACHED_PLANS = 4096


def plan(
    source: Layout, target: Layout, shape: Sequence[int], itemsize: float = 4, memory_limit: float | None = None
) -> Plan:
    """The cheapest route of a tensor of `shape` from `source` to `target`, two layouts on one mesh.

    >>> axes = {"x": 2, "y": 2}
    >>> print(plan(Layout(axes, [("x", "y"), ()]), Layout(axes, [("y", "x"), ()]), (8, 8)))
    [x=2,y=2] (x,y),-  →  [x=2,y=2] (y,x),-   shape (8, 8)
      1. permute to (y,x),-: 64 B
    >>> plan(Layout(axes, [("x",)]), Layout(axes, [()]), (8,), memory_limit=40)
    Traceback (most recent call last):
    lamina.errors.PlanError: no route from [x=2,y=2] x to [x=2,y=2] - keeps ... under 40 bytes; the best needs 48
    """
    return _plan(source, target, tuple(shape), itemsize, memory_limit)


@lru_cache(maxsize=CACHED_PLANS)
def _plan(source: Layout, target: Layout, shape: tuple[int, ...], itemsize: float, memory_limit: float | None) -> Plan:
    check_rank(source, shape)
    check_rank(target, shape)
    if source.axes != target.axes:
        raise PlanError(f"the layouts {source} and {target} are on different meshes")
    steps = _search(source, target, shape, itemsize, memory_limit)
    if steps is None:
        assert memory_limit is not None, f"no route from {source} to {target} for {shape}"
        best = _plan(source, target, shape, itemsize, None)
        raise PlanError(
            f"no route from {source} to {target} keeps a device under {memory_limit:.0f} bytes; "
            f"the best needs {best.peak_memory:.0f}"
        )
    return Plan(source, target, shape, itemsize, steps)


def _search(
    source: Layout, target: Layout, shape: tuple[int, ...], itemsize: float, memory_limit: float | None
) -> tuple[Step, ...] | None:
    kept = kept_pieces(source, target)
    # The target may have an axis Partial that still has to be resolved first (its op doesn't commute with another that
    # goes), so a layout alone doesn't say how far the route has come: the state holds what is unresolved, too.
    todo = frozenset(axis for axis, _ in source.partial if axis not in kept)
    order = count()
    queue: list[tuple] = [(0.0, 0, next(order), source, todo, ())]
    done: set[tuple] = set()
    while queue:
        received, length, _, layout, unresolved, steps = heapq.heappop(queue)
        if layout == target and not unresolved:
            return steps
        if (layout, unresolved) in done:
            continue
        done.add((layout, unresolved))
        block = block_bytes(layout, shape, itemsize)
        for step in moves(layout, target, shape, unresolved):
            after = step.after(layout)
            if memory_limit is not None and block + block_bytes(after, shape, itemsize) > memory_limit:
                continue
            left = unresolved.intersection(after.partial_axes)
            cost = received + step.received(layout, shape)
            heapq.heappush(queue, (cost, length + 1, next(order), after, left, (*steps, step)))
    return None
