"""The route between two layouts: the fastest chain of steps.

Best-first search over layouts.  A route is ranked by the time that it has taken plus the least that any route from
there can take (the lower bound over the fastest links, which never overestimates, so the first route to arrive is the
best).  Ties go to fewer rounds, then fewer steps, then to the move that was offered first, and moves come in a fixed
order: every process finds the same plan.  The states are layouts, of which there are the same few whatever the axes'
sizes, and all weights are counted without looking at devices: 65,536 of them plan as fast as 8.

Axes move whole.  To split an axis of 4 into 2·2 would be a larger space of states for next to nothing, for whatever
composed collectives can't reach an exchange does; `tests/pure/test_factors.py` measures what it could save.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from lamina.errors import PlanError
from lamina.planning.cost import least_seconds, rounds, seconds
from lamina.planning.moves import goals, moves
from lamina.planning.pieces import kept_pieces
from lamina.planning.plan import Plan, block_bytes
from lamina.planning.steps import Step, most_held
from lamina.planning.topology import Topology, topology
from lamina.sharding.layout import Layout, check_rank

CACHED_PLANS = 4096
Shape = tuple[int, ...]


def plan(
    source: Layout,
    target: Layout,
    shape: Sequence[int],
    itemsize: float = 4,
    memory_limit: float | None = None,
    links: Topology | str | None = None,
) -> Plan:
    """The fastest route of a tensor of `shape` from `source` to `target`, two layouts on one mesh.

    Without a `memory_limit` a device holds no more than its source and target blocks at once, unless nothing else leads
    there.  Without `links` only bytes count.

    >>> axes = {"x": 2, "y": 2}
    >>> print(plan(Layout(axes, [("x", "y"), ()]), Layout(axes, [("y", "x"), ()]), (8, 8)))
    [x=2,y=2] (x,y),-  →  [x=2,y=2] (y,x),-   (8, 8), itemsize 4
      1. permute to (y,x),-: 32 B
    receives 32 B (bound 32 B, ratio 1.00), holds at most 128 B
    >>> plan(Layout(axes, [("x",)]), Layout(axes, [()]), (8,), memory_limit=40)
    Traceback (most recent call last):
    lamina.errors.PlanError: no route from [x=2,y=2] x to [x=2,y=2] - keeps ... under 40 bytes; the best needs 48
    """
    return _plan(source, target, tuple(shape), itemsize, memory_limit, links if links is None else topology(links))


@lru_cache(maxsize=CACHED_PLANS)
def _plan(
    source: Layout, target: Layout, shape: Shape, itemsize: float, memory_limit: float | None, links: Topology | None
) -> Plan:
    check_rank(source, shape)
    check_rank(target, shape)
    if source.axes != target.axes:
        raise PlanError(f"the layouts {source} and {target} are on different meshes")
    known = topology(links)
    usual = block_bytes(source, shape, itemsize) + block_bytes(target, shape, itemsize)
    search = _Search(source, target, shape, itemsize, known)
    steps = search.run(usual if memory_limit is None else memory_limit)
    if steps is None and memory_limit is None:
        steps = search.run(None)
    if steps is None:
        best = _plan(source, target, shape, itemsize, None, links)
        raise PlanError(
            f"no route from {source} to {target} keeps a device under {memory_limit:.0f} bytes; "
            f"the best needs {best.peak_memory:.0f}"
        )
    return Plan(source, target, shape, itemsize, steps, known)


class _Search:
    """One search: what stays the same while it runs, and the run."""

    def __init__(self, source: Layout, target: Layout, shape: Shape, itemsize: float, links: Topology):
        self.source, self.target, self.shape, self.itemsize, self.links = source, target, shape, itemsize, links
        self.goals = goals(source, target, shape, links)

    def run(self, memory_limit: float | None) -> tuple[Step, ...] | None:
        """The steps of the best route under the limit; None if there is none."""
        kept = kept_pieces(self.source, self.target)
        # The target may have an axis Partial that still has to be resolved first (its op doesn't commute with another
        # that goes), so a layout alone doesn't say how far the route has come: the state holds what is unresolved, too.
        unresolved = frozenset(axis for axis, _ in self.source.partial if axis not in kept)
        order = count()
        queue: list[tuple] = [(0.0, 0, 0, next(order), 0.0, self.source, unresolved, ())]
        done: set[tuple] = set()
        while queue:
            _, turns, length, _, spent, layout, unresolved, steps = heapq.heappop(queue)
            if layout == self.target and not unresolved:
                return steps
            if (layout, unresolved) in done:
                continue
            done.add((layout, unresolved))
            for step, after in self._edges(layout, unresolved, memory_limit):
                left = unresolved.intersection(after.partial_axes)
                if (after, left) in done:
                    continue
                time = spent + seconds(step, layout, self.shape, self.itemsize, self.links)
                least = time + least_seconds(after, self.target, self.shape, self.itemsize, self.links)
                more = turns + rounds(step, layout, self.shape)
                rank: Any = (_rounded(least), more, length + 1, next(order))
                heapq.heappush(queue, (*rank, time, after, left, (*steps, step)))
        return None

    def _edges(self, layout: Layout, unresolved: frozenset[str], limit: float | None) -> list[tuple[Step, Layout]]:
        """The steps from a layout, each leading somewhere else, within the memory limit."""
        found: dict[Step, Layout] = {}
        for step in moves(layout, self.goals, self.shape, unresolved):
            if step not in found:
                after = step.after(layout)
                if limit is None or most_held(step, layout, self.shape) * self.itemsize <= limit:
                    found[step] = after
        return list(found.items())


def _rounded(time: float) -> float:
    """Sums of the same numbers in another order must tie."""
    return float(f"{time:.9e}")
