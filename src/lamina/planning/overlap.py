"""How much of what devices want do they hold already?  Counted without looking at devices.

An element e of the tensor is held, in a layout, by the devices whose coordinates along the split axes are e's block
numbers.  Let H be the devices that hold e in the source, D those that hold it in the target.  They have a device in
common just if no axis is asked for two coordinates: an axis that splits dim d in the source and dim d' in the target
must get the same number from both.

Where all blocks are even and cut at the same points, e's block numbers are independent digits (one per prime factor of
an axis), each such condition says that two digits are equal, and the share of elements that meet all conditions is a
product of 1/radix, one for each condition that isn't implied by the others.  So the count needs no enumeration and
doesn't depend on the size of the mesh.  Elsewhere (uneven dims, 2 against 3) the dims' cells between cut points are
enumerated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import prod

from lamina.sharding.dims import split_offset
from lamina.sharding.layout import Axes, Layout

Shape = tuple[int, ...]
ENUMERATED_CELLS = 20_000  # ~10 ms; past it the conditions are left out, which can only lower a lower bound


def common_elements(
    source: Layout, target: Layout, shape: Shape, zero: Axes = (), outer: frozenset[str] | None = None
) -> float:
    """The number of elements for which H and D have a device in common.

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


def _count_cells(source: Layout, target: Layout, shape: Shape, shared: frozenset[str], zero: Axes) -> float:
    """Enumerates the cells between cut points of the dims that the shared axes tie together."""
    dims = [_dim_cells(source, target, shape[d], d, shared) for d in range(len(shape))]
    if prod(len(cells) for cells in dims) > ENUMERATED_CELLS:
        return float(prod(shape))
    total = 0.0
    for cell in product(*(cells.items() for cells in dims)):
        held: dict[str, int] = {}
        wanted: dict[str, int] = dict.fromkeys(zero, 0)
        for (mine, theirs), _ in cell:
            held.update(mine)
            wanted.update(theirs)
        if all(wanted.get(axis, number) == number for axis, number in held.items()):
            total += prod(length for _, length in cell)
    return total


def _dim_cells(source: Layout, target: Layout, size: int, dim: int, shared: frozenset[str]) -> Counter:
    """Lengths of the dim by the coordinates that the source and the target give to the shared axes there."""
    cells: Counter = Counter()
    for start, stop, mine, theirs in cuts(size, source.grid[dim], target.grid[dim]):
        key = _coordinates(source, dim, mine, shared), _coordinates(target, dim, theirs, shared)
        cells[key] += stop - start
    return cells


def cuts(size: int, mine: int, theirs: int) -> Iterator[tuple[int, int, int, int]]:
    """The parts of a dim between the cut points of two grids: (start, stop, block of one, block of the other).

    >>> list(cuts(6, 2, 3))
    [(0, 2, 0, 0), (2, 3, 0, 1), (3, 4, 1, 1), (4, 6, 1, 2)]
    """
    start = i = j = 0
    while start < size:
        ends = split_offset(size, mine, i + 1), split_offset(size, theirs, j + 1)
        stop = min(ends)
        yield start, stop, i, j
        start, i, j = stop, i + (ends[0] == stop), j + (ends[1] == stop)


def _coordinates(layout: Layout, dim: int, block: int, shared: frozenset[str]) -> tuple[tuple[str, int], ...]:
    found = []
    for axis in reversed(layout.dims[dim]):
        block, coordinate = divmod(block, layout.sizes[axis])
        if axis in shared:
            found.append((axis, coordinate))
    return tuple(found)
