"""How long a step takes: rounds, bytes over links, copies.  `steps` and `bounds` count, and this weighs."""

from __future__ import annotations

from functools import partial
from math import prod

from lamina.planning.bounds import elements_crossing, elements_needed
from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
    Unreduce,
    most_held,
    most_received,
)
from lamina.planning.topology import Topology
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]


def rounds(step: Step, layout: Layout, shape: Shape) -> int:
    """How many collectives the step is lowered to; of an Exchange, an estimate from above (see `schedule`)."""
    match step:
        case Slice() | Unreduce():
            return 0
        case Exchange() | Transfer():
            return exchange_rounds(layout, step.after(layout), shape)
        case _:
            return 1


def exchange_rounds(source: Layout, target: Layout, shape: Shape) -> int:
    """From how many blocks a wanted block is made, at most, times the pieces of each."""
    count = prod(source.sizes[axis] for axis in source.partial_axes if axis not in target.partial_axes)
    for size, mine, theirs in zip(shape, source.grid, target.grid, strict=True):
        even = size % mine == 0 and size % theirs == 0
        if even and theirs % mine == 0:
            continue
        count *= mine // theirs if even and mine % theirs == 0 else min(mine, -(-mine // theirs) + 1)
    return max(1, count)


def seconds(step: Step, layout: Layout, shape: Shape, itemsize: float, links: Topology) -> float:
    """The time of a step on these links: α per round, bytes over the slowest link they cross, copies in memory.

    A step takes as long as the device that receives most; where only bytes count, all devices' count alike.
    """
    if isinstance(step, Unreduce) and step.op is ReduceOp.AVG:
        return 0.0  # the copies are the pieces: in memory, nothing changes
    received = (step.received if links.only_bytes else partial(most_received, step))(layout, shape) * itemsize
    copied = 0.0
    if links.copy != float("inf"):
        passes = 2 if isinstance(step, Exchange) and rounds(step, layout, shape) > 1 else 1  # parts are cut, and put
        copied = passes * most_held(step, layout, shape) * itemsize / links.copy
    if not received:
        return copied
    axes = crossed(step, layout)
    count = rounds(step, layout, shape)
    latency = max((links.link(axis).latency for axis in axes), default=links.default.latency)
    shared = links.shared_axes & set(axes)
    if not shared:
        return count * latency + received / _slowest(links, axes) + copied
    crossing = received * _crossing_share(step, layout, shape, links)
    host = prod(size for axis, size in layout.axes if axis not in links.shared_axes)
    outside = crossing * host / _slowest(links, tuple(shared))
    inner = tuple(axis for axis in axes if axis not in shared)
    inside = (received - crossing) / _slowest(links, inner) if inner else 0.0
    return count * latency + max(outside, inside) + copied


def least_seconds(layout: Layout, target: Layout, shape: Shape, itemsize: float, links: Topology) -> float:
    """No route can be faster: the lower bounds over the fastest links, per device and per host."""
    if layout == target:
        return 0.0
    fastest = max(link.bandwidth for link in (links.default, *links.axes.values()))
    least = elements_needed(layout, target, shape) * itemsize / fastest
    if shared := links.shared_axes:
        best = max(links.link(axis).bandwidth for axis in shared)
        least = max(least, elements_needed(layout, target, shape, shared) * itemsize / best)
    return least


def crossed(step: Step, layout: Layout) -> Axes:
    """The axes along which data moves in the step."""
    match step:
        case Slice() | Unreduce():
            return ()
        case Transfer():
            return ()  # between meshes: over the default link
        case AllToAll():
            return step.axes
        case AllGather(_, axes) | AllReduce(axes) | ReduceScatter(axes):
            return axes
        case Permute(dims):
            moving = [pair for pair in zip(layout.dims, dims, strict=True) if pair[0] != pair[1]]
            return tuple(axis for axis in layout.sizes if any(axis in old + new for old, new in moving))
        case Exchange():
            after = step.after(layout)
            moving = [pair for pair in zip(layout.dims, after.dims, strict=True) if pair[0] != pair[1]]
            pieces = {axis for axis, op in layout.partial if after.reduce_op(axis) is not op}
            return tuple(
                axis for axis in layout.sizes if axis in pieces or any(axis in old + new for old, new in moving)
            )


def _crossing_share(step: Step, layout: Layout, shape: Shape, links: Topology) -> float:
    """The share of a step's bytes that comes from other hosts."""
    shared = links.shared_axes
    match step:
        case AllGather() | AllToAll() | AllReduce() | ReduceScatter():
            axes = step.axes
            near = layout.count(axis for axis in axes if axis not in shared)
            count = layout.count(axes)
            return (count - near) / (count - 1)
        case _:
            received = step.received(layout, shape)
            return min(1.0, elements_crossing(layout, step.after(layout), shape, shared) / received)


def _slowest(links: Topology, axes: Axes) -> float:
    return min((links.link(axis).bandwidth for axis in axes), default=links.default.bandwidth)
