"""The route to another mesh: reduced here, sent once, copied there.

A value leaves its mesh without pieces, in a layout that splits it over the axes that held them (a reduce-scatter costs
half of an all-reduce).  It arrives in a layout that splits it over the axes along which the target holds copies, so
that each byte is sent once between the meshes and the copies are made by an all-gather inside the destination.  Where
devices are on both meshes, or a dim doesn't divide, the direct way may be shorter: all the ways are planned, and the
fastest is taken; of equal ones that which sends least between the meshes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from lamina.planning.plan import Plan
from lamina.planning.search import CACHED_PLANS, plan
from lamina.planning.steps import Transfer
from lamina.planning.topology import Topology, topology
from lamina.sharding.layout import Axes, Layout, check_rank
from lamina.sharding.mesh import DeviceMesh

Shape = tuple[int, ...]
Homes = tuple[int | None, ...]


def homes_between(here: DeviceMesh, there: DeviceMesh) -> Homes:
    """For each position of `there`, the position of the same device in `here`, or None.

    Positions of abstract and simulated meshes stand for the first devices, as those of `DeviceMesh.create` do.

    >>> homes_between(DeviceMesh.abstract((2,), ("a",)), DeviceMesh.abstract((4,), ("b",)))
    (0, 1, None, None)
    """
    mine, theirs = here.devices, there.devices
    if here.is_abstract or there.is_abstract or here.is_simulated or there.is_simulated:
        return tuple(i if i < here.num_devices else None for i in range(there.num_devices))
    place = {device: position for position, device in enumerate(mine)}
    return tuple(place.get(device) for device in theirs)


def plan_across(
    source: Layout,
    target: Layout,
    shape: Sequence[int],
    homes: Homes,
    itemsize: float = 4,
    memory_limit: float | None = None,
    links: Topology | str | None = None,
) -> Plan:
    """The fastest route of a tensor of `shape` from `source` to `target`, a layout on another mesh.

    >>> print(plan_across(Layout({"a": 2}, [("a",)]), Layout({"b": 2}, [()]), (8,), (None, None)))
    [a=2] a  →  [b=2] -   (8,), itemsize 4
      1. transfer to [b=2] b: 16 B
      2. all-gather dim 0 over b: 16 B
    receives 16 B (bound 16 B, ratio 1.00), holds at most 48 B
    """
    known = links if links is None else topology(links)
    return _plan_across(source, target, tuple(shape), homes, itemsize, memory_limit, known)


@lru_cache(maxsize=CACHED_PLANS)
def _plan_across(
    source: Layout,
    target: Layout,
    shape: Shape,
    homes: Homes,
    itemsize: float,
    memory_limit: float | None,
    links: Topology | None,
) -> Plan:
    check_rank(source, shape)
    check_rank(target, shape)
    found = []
    for leaving in _split_over(source.replace(partial=()), source.partial_axes, shape):
        here = plan(source, leaving, shape, itemsize, memory_limit, links)
        bare = target.replace(partial=())
        for arriving in _split_over(bare, bare.replicated_axes, shape):
            there = plan(arriving, target, shape, itemsize, memory_limit, links)
            step = Transfer(arriving.axes, arriving.dims, homes)
            steps = (*here.steps, step, *there.steps)
            sent = step.received(leaving, shape) * len(homes)
            found.append((sent, Plan(source, target, shape, itemsize, steps, topology(links))))
    return min(found, key=lambda each: (float(f"{each[1].time:.9e}"), each[0], len(each[1].steps)))[1]


def _split_over(layout: Layout, axes: Axes, shape: Shape) -> Iterator[Layout]:
    """The layout itself, and with these axes splitting one of its dims too, where that divides evenly."""
    yield layout
    for dim, size in enumerate(shape):
        entry = (*layout.dims[dim], *axes)
        if axes and size % layout.count(entry) == 0:
            yield layout.replace(dims=(*layout.dims[:dim], entry, *layout.dims[dim + 1 :]))
