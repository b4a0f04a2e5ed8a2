"""How much of what devices want do they hold already?  Counted without looking at devices.

An element e of the tensor is held, in a layout, by the devices whose coordinates along the split axes are e's block
numbers.  Let H be the devices that hold e in the source, D those that hold it in the target.  They have a device in
common just if no axis is asked for two coordinates: an axis that splits dim d in the source and dim d' in the target
must get the same number from both.

Where all blocks are even and cut at the same points, e's block numbers are independent digits (one per prime factor of
an axis), each such condition says that two digits are equal, and the share of elements that meet all conditions is a
product of 1/radix, one for each condition that isn't implied by the others.  So the count needs no enumeration and
doesn't depend on the size of the mesh.  Elsewhere (uneven dims, 2 against 3) each dim's cells between cut points are
enumerated, and joined with those of the other dims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from math import prod

from lamina.sharding.layout import Axes, Layout

Shape = tuple[int, ...]
Sizes = tuple[tuple[str, int], ...]  # axes with their sizes, major to minor
Known = tuple[tuple[str, int], ...]  # axes with coordinates, by name
ENUMERATED_CUTS = 2048  # of one dim, ~2 ms


def common_elements(
    source: Layout, target: Layout, shape: Shape, zero: Axes = (), outer: frozenset[str] | None = None
) -> float | None:
    """The number of elements for which H and D have a device in common; None where that would take too long to count.

    `zero` axes must stand at coordinate 0 in D (where new pieces keep the value).  With `outer`, only these axes count:
    groups of devices that agree on them take the place of devices.

    >>> x, y = Layout({"x": 2, "y": 2}, [("x",), ()]), Layout({"x": 2, "y": 2}, [(), ("x",)])
    >>> common_elements(x, x, (4, 4)), common_elements(x, y, (4, 4))
    (16.0, 8.0)
    """
    counted = frozenset(source.sizes) if outer is None else outer
    held, wanted = set(source.sharded_axes) & counted, set(target.sharded_axes) & counted
    shared = held & (wanted | set(zero))
    total = float(prod(shape))
    if not shared or not total:
        return total
    share = _share_of_digits(source, target, shape, frozenset(shared), zero)
    return total * share if share is not None else _count_cells(source, target, shape, frozenset(shared), zero)


# -- even and aligned: digits -----------------------------------------------------------------------------------------


def prime_factors(size: int) -> tuple[int, ...]:
    """Smallest first: the digits of an axis, major to minor.

    >>> prime_factors(12), prime_factors(7), prime_factors(1)
    ((2, 2, 3), (7,), ())
    """
    factors, divisor = [], 2
    while divisor * divisor <= size:
        while size % divisor == 0:
            factors.append(divisor)
            size //= divisor
        divisor += 1
    return (*factors, size) if size > 1 else tuple(factors)


def _share_of_digits(source: Layout, target: Layout, shape: Shape, shared: frozenset[str], zero: Axes) -> float | None:
    """The share of elements that meet all conditions; None where the blocks aren't even and aligned."""
    place: dict[tuple[str, int], tuple[int, int]] = {}
    conditions: list[tuple[tuple[int, int], tuple[int, int] | None, int]] = []
    digits = [(_digits(source, d), _digits(target, d)) for d in range(len(shape))]
    for d, (mine, theirs) in enumerate(digits):
        if shape[d] % source.grid[d] or shape[d] % target.grid[d]:
            return None
        if any(a[2] != b[2] for a, b in zip(mine, theirs, strict=False)):
            return None
        for position, (axis, part, _) in enumerate(mine):
            place[axis, part] = (d, position)
    for d, (_, theirs) in enumerate(digits):
        for position, (axis, part, radix) in enumerate(theirs):
            if axis in shared and (axis, part) in place:
                conditions.append((place[axis, part], (d, position), radix))
    for axis in zero:
        if axis in shared:
            parts = enumerate(prime_factors(source.sizes[axis]))
            conditions += [(place[axis, part], None, radix) for part, radix in parts]
    return _share_meeting(conditions)


def _digits(layout: Layout, dim: int) -> list[tuple[str, int, int]]:
    """(axis, part, radix) for each prime factor of each axis of the dim, major to minor."""
    return [(axis, part, r) for axis in layout.dims[dim] for part, r in enumerate(prime_factors(layout.sizes[axis]))]


def _share_meeting(conditions: list[tuple[tuple[int, int], tuple[int, int] | None, int]]) -> float:
    """The probability that random digits meet all equalities (to each other, or to zero)."""
    leader: dict[tuple[int, int] | None, tuple[int, int] | None] = {}

    def find(node: tuple[int, int] | None) -> tuple[int, int] | None:
        while leader.get(node, node) != node:
            node = leader[node]
        return node

    share = 1.0
    for one, other, radix in conditions:
        a, b = find(one), find(other)
        if a != b:
            # None stands for "zero" and must stay a leader.
            leader[b if a is None else a] = a if a is None else b
            share /= radix
    return share


# -- anything else: cells ---------------------------------------------------------------------------------------------


def _count_cells(source: Layout, target: Layout, shape: Shape, shared: frozenset[str], zero: Axes) -> float | None:
    """Counts by the cells between cut points, one dim after the other.

    `open_` says how many elements of the dims so far have these coordinates along axes of which only one side is known
    yet: once the other side is, it must agree, and the axis is done with.  So dims that no axis ties together multiply.
    """
    if any(sum(pair) > ENUMERATED_CUTS for pair in zip(source.grid, target.grid, strict=True)):
        return None
    open_: Counter[Known] = Counter({tuple((axis, 0) for axis in sorted(zero) if axis in shared): 1})
    for d, size in enumerate(shape):
        entries = [tuple((axis, layout.sizes[axis]) for axis in layout.dims[d]) for layout in (source, target)]
        open_ = _joined(open_, _dim_cells(size, *entries, shared))
    return float(sum(open_.values()))


def _joined(one: Counter[Known], other: Counter[Known]) -> Counter[Known]:
    """The products of those that agree on the axes that both know, by the axes that just one of them knows."""
    both = {axis for axis, _ in next(iter(one), ())} & {axis for axis, _ in next(iter(other), ())}

    def parted(known: Known) -> tuple[Known, Known]:
        return tuple(k for k in known if k[0] in both), tuple(k for k in known if k[0] not in both)

    agreeing: dict[Known, list[tuple[Known, int]]] = {}
    for known, length in other.items():
        common, alone = parted(known)
        agreeing.setdefault(common, []).append((alone, length))
    found: Counter[Known] = Counter()
    for known, length in one.items():
        common, alone = parted(known)
        for rest, times in agreeing.get(common, ()):
            found[tuple(sorted((*alone, *rest)))] += length * times
    return found


@lru_cache(maxsize=4096)
def _dim_cells(size: int, mine: Sizes, theirs: Sizes, shared: frozenset[str]) -> Counter[Known]:
    """Lengths of the dim by the coordinates that the source and the target give to the shared axes there.

    Where both give one to an axis, only the cells count on which they agree.
    """
    cells: Counter[Known] = Counter()
    blocks = [prod(count for _, count in entry) for entry in (mine, theirs)]
    places = [
        [_coordinates(entry, block, shared) for block in range(count)]
        for entry, count in zip((mine, theirs), blocks, strict=True)
    ]
    twice = {axis for axis, _ in mine} & {axis for axis, _ in theirs} & shared
    for start, stop, i, j in cuts(size, *blocks):
        held, wanted = places[0][i], places[1][j]
        if not twice or all(held[axis] == wanted[axis] for axis in twice):
            known = {**held, **wanted}
            cells[tuple(sorted((axis, place) for axis, place in known.items() if axis not in twice))] += stop - start
    return cells


def cuts(size: int, mine: int, theirs: int) -> Iterator[tuple[int, int, int, int]]:
    """The parts of a dim between the cut points of two grids: (start, stop, block of one, block of the other).

    >>> list(cuts(6, 2, 3))
    [(0, 2, 0, 0), (2, 3, 0, 1), (3, 4, 1, 1), (4, 6, 1, 2)]
    """
    (least, more), (their_least, their_more) = divmod(size, mine), divmod(size, theirs)
    start = i = j = 0
    end, their_end = least + (more > 0), their_least + (their_more > 0)
    while start < size:
        stop = min(end, their_end)
        if start < stop:  # past the size, blocks are empty
            yield start, stop, i, j
        start = stop
        if end == stop:
            i += 1
            end += least + (i < more)
        if their_end == stop:
            j += 1
            their_end += their_least + (j < their_more)


def _coordinates(entry: Sizes, block: int, shared: frozenset[str]) -> dict[str, int]:
    """Where the holders of a dim's block stand along the shared axes of its entry."""
    found = {}
    for axis, count in reversed(entry):
        block, place = divmod(block, count)
        if axis in shared:
            found[axis] = place
    return found
