"""What must be received at least, whatever the algorithm.

**One device, no pieces to reduce.**  It must receive what its target block has and its source block lacks.

**Pieces to reduce.**  Take one element whose value is the reduction of k pieces, and let D be the devices that want it.
Some device is the first to know the value.  A message chain from each of the k pieces reaches it, so k - 1 messages
came before (k, if it holds no piece).  Each other device of D then needs one more message, which can't be among those,
for it arrives when the value is known.  So k - 1 + |D| - 1 messages at least; and one more if no device of D holds a
piece.  Summed over all elements and divided by the number of devices this is the mean; the largest share of a device is
at least what it wants, because each element must be completed by a message.

**Groups behind one link (hosts).**  The same with groups for devices: what a group's devices want together and don't
hold together has to enter it, once.

Pieces that stay pieces are as many separate problems, one per piece; new pieces are wanted only where they keep the
value.

**To another mesh.**  Each device there must receive what it wants and doesn't hold already, if it is on both meshes.
Pieces don't travel, so of k of them k - 1 messages come before.

All is counted in elements, and without looking at devices (see `overlap`), but between two meshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from lamina.planning.overlap import common_elements
from lamina.planning.pieces import kept_pieces
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """What a device receives, in bytes: on the mean over the mesh, and at most."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class _Count:
    """Of one element, on the mean over all: devices, pieces, devices that want it, and that hold it or a piece, too.

    Of `most` to `fewest` elements there is a device that wants and holds them.  They differ only on dims with thousands
    of uneven blocks (see `overlap`): there a bound reckons with the most, and what steps receive with the fewest.
    """

    total: float
    devices: int
    pieces: int
    wanting: int
    most: float
    fewest: float
    holding_too: int


@lru_cache(maxsize=65536)
def _count(source: Layout, target: Layout, shape: Shape, outer: frozenset[str] | None) -> _Count:
    kept, sizes = kept_pieces(source, target), source.sizes
    counted = [axis for axis in sizes if axis not in kept and (outer is None or axis in outer)]
    devices = prod(sizes[axis] for axis in counted)
    pieces = prod(sizes[axis] for axis, _ in source.partial if axis in counted)
    zero = tuple(a for a, op in target.partial if a not in kept and op is not ReduceOp.AVG and a in counted)
    wanted = {axis for axis in target.sharded_axes if axis in counted} | set(zero)
    held = {axis for axis in source.sharded_axes if axis in counted}
    holding_too = devices // prod(sizes[axis] for axis in wanted | held)
    total = most = float(prod(shape))
    common = common_elements(source, target, shape, zero, outer)
    if common is None and outer is None:  # no device can have more than the smaller of its blocks in common
        blocks = zip(source.padded_block(shape), target.padded_block(shape), strict=True)
        most = min(total, devices * prod(map(min, blocks)) / holding_too)
    known = (most, 0.0) if common is None else (common, common)
    return _Count(total, devices, pieces, devices // prod(sizes[axis] for axis in wanted), *known, holding_too)


@lru_cache(maxsize=65536)
def elements_needed(source: Layout, target: Layout, shape: Shape, outer: frozenset[str] | None = None) -> float:
    """The elements that a device (with `outer`: a group that agrees on these axes) must receive, on the mean.

    >>> axes = {"x": 2, "y": 2}
    >>> elements_needed(Layout(axes, [("x",), ()]), Layout(axes, [(), ("x",)]), (4, 4))
    4.0
    >>> elements_needed(Layout(axes, [()], {"x": ReduceOp.SUM}), Layout(axes, [()]), (4,))
    4.0
    """
    if source == target or not prod(shape):
        return 0.0
    n = _count(source, target, shape, outer)
    if n.pieces > 1:
        return (n.total * (n.pieces - 1 + n.wanting) - n.most) / n.devices
    return (n.total * n.wanting - n.most * n.holding_too) / n.devices


@lru_cache(maxsize=65536)
def elements_exchanged(source: Layout, target: Layout, shape: Shape) -> float:
    """The elements that a device receives, on the mean, when each gets every piece of what it wants and lacks."""
    if source == target or not prod(shape):
        return 0.0
    n = _count(source, target, shape, None)
    return (n.total * n.wanting * n.pieces - n.fewest * n.holding_too) / n.devices


@lru_cache(maxsize=65536)
def elements_crossing(source: Layout, target: Layout, shape: Shape, outer: frozenset[str]) -> float:
    """Of these, the elements that no device of its group holds: they come through the group's link."""
    if source == target or not prod(shape):
        return 0.0
    near, all_of = _count(source, target, shape, outer), _count(source, target, shape, None)
    wanted = all_of.total * all_of.wanting / all_of.devices * near.pieces
    there = near.fewest * near.holding_too / (near.total * near.wanting)
    return wanted * (1 - there / near.pieces)


@lru_cache(maxsize=4096)
def elements_transferred(
    source: Layout, target: Layout, shape: Shape, homes: tuple[int | None, ...]
) -> tuple[float, ...]:
    """For each position of another mesh, what its device wants and doesn't hold already (at `homes[position]`)."""
    here, there = list(source.positions()), list(target.positions())
    found = []
    for where, home in zip(there, homes, strict=True):
        wanted = target.block(shape, where)
        lacking = prod(stop - start for start, stop in wanted)
        if target.keeps_the_value(where) is not None:
            lacking = 0
        elif home is not None:
            held = zip(source.block(shape, here[home]), wanted, strict=True)
            lacking -= prod(max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in held)
        found.append(float(lacking))
    return tuple(found)


def bound_across(source: Layout, target: Layout, shape: Shape, itemsize: float, homes: tuple[int | None, ...]) -> Bytes:
    """The bytes that a device must receive when the value goes to another mesh: the mean over both meshes' devices."""
    lacking = elements_transferred(source.replace(partial=()), target, shape, homes)
    pieces = source.count(source.partial_axes)
    mean = (sum(lacking) + (pieces - 1) * prod(shape)) / (source.num_devices + homes.count(None))
    return Bytes(mean * itemsize, max(mean, *lacking) * itemsize)


def lower_bound(
    source: Layout, target: Layout, shape: Shape, itemsize: float, outer: frozenset[str] | None = None
) -> Bytes:
    """The bytes that a device, or a group, must receive: on the mean, and the most of any one."""
    mean = elements_needed(source, target, shape, outer)
    return Bytes(mean * itemsize, max(mean, _largest(source, target, shape) if outer is None else 0.0) * itemsize)


@lru_cache(maxsize=65536)
def _largest(source: Layout, target: Layout, shape: Shape) -> float:
    """What some device must receive, for even layouts; 0 (no claim beyond the mean) for others."""
    if source == target or not prod(shape) or not (source.is_even(shape) and target.is_even(shape)):
        return 0.0
    wanted = prod(target.padded_block(shape))
    if any(axis not in kept_pieces(source, target) for axis in source.partial_axes):
        return float(wanted)
    both = prod(size // max(a, b) for size, a, b in zip(shape, source.grid, target.grid, strict=True))
    nested = all(
        mine[: len(theirs)] == theirs[: len(mine)] for mine, theirs in zip(source.dims, target.dims, strict=True)
    )
    return float(wanted - both) if nested else float(wanted)


def largest_exchanged(source: Layout, target: Layout, shape: Shape) -> float:
    """The most that a device receives when each gets every piece of what it wants and lacks: at most so much."""
    if source == target or not prod(shape):
        return 0.0
    pieces = source.count(axis for axis in source.partial_axes if axis not in kept_pieces(source, target))
    wanted = float(prod(target.padded_block(shape)))
    if pieces == 1:
        return _largest(source, target, shape) if source.is_even(shape) and target.is_even(shape) else wanted
    nested = all(mine == theirs[: len(mine)] for mine, theirs in zip(source.dims, target.dims, strict=True))
    return wanted * (pieces - 1 if nested else pieces)
