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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from lamina.sharding.layout import Axes, Layout

Shape = tuple[int, ...]
Sizes = tuple[tuple[str, int], ...]  # axes with their sizes, major to minor
# A mesh of 65,536 devices must plan in 20 ms: where there are more cells, they aren't counted.
ENUMERATED_CUTS = 1024
ENUMERATED_PAIRS = 20_000


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


@dataclass(frozen=True, slots=True)
class _Cells:
    """How many elements of some dims have these coordinates along these axes."""

    axes: Axes
    lengths: dict[tuple[int, ...], int]


def _count_cells(source: Layout, target: Layout, shape: Shape, shared: frozenset[str], zero: Axes) -> float | None:
    """Counts by the cells between cut points, one dim after the other.

    Of the dims so far it keeps the coordinates along axes of which only one side is known yet: once the other side is,
    it must agree, and the axis is done with.  So dims that no axis ties together multiply.
    """
    if any(sum(pair) > ENUMERATED_CUTS for pair in zip(source.grid, target.grid, strict=True)):
        return None
    asked = tuple(axis for axis in zero if axis in shared)
    found = _Cells(asked, {(0,) * len(asked): 1})
    for d, size in enumerate(shape):
        entries = [tuple((axis, layout.sizes[axis]) for axis in layout.dims[d]) for layout in (source, target)]
        cells = _dim_cells(size, *entries, shared)
        if len(found.lengths) * len(cells.lengths) > ENUMERATED_PAIRS:
            return None
        found = _joined(found, cells)
    return float(sum(found.lengths.values()))


def _joined(one: _Cells, other: _Cells) -> _Cells:
    """The products of those that agree on the axes that both know, by the axes that just one of them knows."""
    common, alone = _split(one.axes, other.axes)
    _, other_alone = _split(other.axes, one.axes)
    order = [other.axes.index(one.axes[i]) for i in common]  # both sides' coordinates in one order
    agreeing: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for place, length in other.lengths.items():
        rest = tuple(place[i] for i in other_alone)
        agreeing.setdefault(tuple(place[i] for i in order), []).append((rest, length))
    found: dict[tuple[int, ...], int] = {}
    for place, length in one.lengths.items():
        mine = tuple(place[i] for i in alone)
        for rest, times in agreeing.get(tuple(place[i] for i in common), ()):
            found[mine + rest] = found.get(mine + rest, 0) + length * times
    axes = *(one.axes[i] for i in alone), *(other.axes[i] for i in other_alone)
    return _Cells(axes, found)


def _split(axes: Axes, others: Axes) -> tuple[list[int], list[int]]:
    """The numbers of the axes that the others have too, and of those that they haven't."""
    common = [i for i, axis in enumerate(axes) if axis in others]
    return common, [i for i in range(len(axes)) if i not in common]


@lru_cache(maxsize=4096)
def _dim_cells(size: int, mine: Sizes, theirs: Sizes, shared: frozenset[str]) -> _Cells:
    """Lengths of the dim by the coordinates that the source and the target give to the shared axes there.

    Where both give one to an axis, only the cells count on which they agree.
    """
    (held_axes, held), (wanted_axes, wanted) = (_places(entry, shared) for entry in (mine, theirs))
    if not held_axes and not wanted_axes:
        return _Cells((), {(): size})
    same = [(held_axes.index(axis), wanted_axes.index(axis)) for axis in held_axes if axis in wanted_axes]
    done = {held_axes[i] for i, _ in same}
    axes = held_axes + wanted_axes
    kept = [i for i, axis in enumerate(axes) if axis not in done]
    lengths: dict[tuple[int, ...], int] = {}
    for start, stop, i, j in cuts(size, len(held), len(wanted)):
        a, b = held[i], wanted[j]
        if same and any(a[p] != b[q] for p, q in same):
            continue
        place = tuple([(a + b)[k] for k in kept]) if same else a + b
        lengths[place] = lengths.get(place, 0) + stop - start
    return _Cells(tuple(axes[k] for k in kept), lengths)


def _places(entry: Sizes, shared: frozenset[str]) -> tuple[Axes, list[tuple[int, ...]]]:
    """The shared axes of a dim's entry, and for each of its blocks where the holders stand along them."""
    axes = tuple(axis for axis, _ in entry if axis in shared)
    if not axes:
        return (), [()] * prod(count for _, count in entry)
    if len(axes) == len(entry):
        return axes, list(product(*(range(count) for _, count in entry)))
    ranges = [[(i,) if axis in shared else () for i in range(count)] for axis, count in entry]
    return axes, [sum(place, ()) for place in product(*ranges)]


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
