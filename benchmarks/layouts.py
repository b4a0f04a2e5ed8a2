"""Which pairs of layouts are measured: meshes, shapes, families, and samples that are the same in every run."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from lamina.sharding import Layout, ReduceOp

MESHES: tuple[tuple[int, ...], ...] = ((8,), (2, 4), (2, 2, 2), (2, 3), (3, 4), (2, 2, 3))
NAMES = ("x", "y", "z", "w", "v")

Pair = tuple[Layout, Layout]


def axes_of(mesh: Sequence[int]) -> dict[str, int]:
    """The sizes with names.

    >>> axes_of((2, 4))
    {'x': 2, 'y': 4}
    """
    return dict(zip(NAMES, mesh, strict=False))


def all_layouts(axes: dict[str, int], rank: int, ops: Iterable[ReduceOp] = ()) -> list[Layout]:
    """Every layout, once, always in the same order: an axis holds copies, splits a dim, or is Partial.

    >>> [str(layout) for layout in all_layouts({"x": 2}, 2, [ReduceOp.SUM])]
    ['[x=2] -,-', '[x=2] x,-', '[x=2] -,x', '[x=2] -,- +sum(x)']
    """
    found: dict[Layout, None] = {}
    for users in product((None, *range(rank), *ops), repeat=len(axes)):
        chosen = list(zip(axes, users, strict=True))
        pieces = {axis: user for axis, user in chosen if isinstance(user, ReduceOp)}
        members = [[axis for axis, user in chosen if user == dim and axis not in pieces] for dim in range(rank)]
        for dims in product(*map(permutations, members)):
            found[Layout(axes, dims, pieces)] = None
    return list(found)


@dataclass(frozen=True)
class Family:
    """All pairs of different layouts of a tensor of one rank on one mesh.

    `even`: every layout cuts the shape evenly; otherwise the sizes are ones that some of the axes divide, or none.
    `pieces`: the pairs with a Partial(SUM) axis in the source, the target or both; otherwise those without.
    """

    mesh: tuple[int, ...]
    rank: int
    even: bool
    pieces: bool

    @property
    def axes(self) -> dict[str, int]:
        return axes_of(self.mesh)

    @property
    def shape(self) -> tuple[int, ...]:
        """
        >>> Family((2, 2, 2), 2, True, False).shape, Family((2, 2, 2), 3, False, False).shape
        ((64, 64), (60, 61, 59))
        """
        size = 8 * math.prod(self.mesh)
        return (size,) * self.rank if self.even else (size - 4, size - 3, size - 5)[: self.rank]

    @property
    def name(self) -> str:
        mesh = ",".join(map(str, self.mesh))
        return f"({mesh}) {self.rank}-D {'even' if self.even else 'uneven'}{' partial' if self.pieces else ''}"

    def pairs(self, most: int | None) -> list[Pair]:
        """All pairs in a fixed order, or a sample of `most` of them that depends on the family's name only."""
        layouts = all_layouts(self.axes, self.rank, (ReduceOp.SUM,) if self.pieces else ())
        total = len(layouts) ** 2

        def pair(number: int) -> Pair:
            return layouts[number // len(layouts)], layouts[number % len(layouts)]

        def belongs(number: int) -> bool:
            source, target = pair(number)
            return source != target and (not self.pieces or bool(source.partial or target.partial))

        numbers = [number for number in range(total) if belongs(number)]
        if most is not None and most < len(numbers):
            numbers = sorted(random.Random(self.name).sample(numbers, most))
        return [pair(number) for number in numbers]


def families(meshes: Iterable[tuple[int, ...]] = MESHES) -> list[Family]:
    """Every family of DESIGN section 9 on these meshes."""
    return [
        Family(mesh, rank, even, pieces)
        for mesh in meshes
        for pieces in (False, True)
        for even in (True, False)
        for rank in (1, 2, 3)
    ]


def block_bytes(layout: Layout, shape: Sequence[int], itemsize: int = 4) -> int:
    """The bytes of the largest block, counted here and not by the planner."""
    return itemsize * math.prod(-(-size // blocks) for size, blocks in zip(shape, layout.grid, strict=True))


def least_bytes(source: Layout, target: Layout, shape: Sequence[int], itemsize: int = 4) -> float:
    """What a device lacks of its target block, on the mean: counted device by device, from the meaning alone.

    For layouts without pieces.  The planner's own bound, which never looks at devices, has to agree.

    >>> layouts = [Layout({"x": 2}, [("x",), ()]), Layout({"x": 2}, [(), ("x",)])]
    >>> least_bytes(*layouts, (4, 4))
    16.0
    """
    lacking = 0
    for place in product(*(range(size) for size in source.sizes.values())):
        where = dict(zip(source.sizes, place, strict=True))
        held, wanted = source.block(shape, where), target.block(shape, where)
        common = [max(0, min(h[1], w[1]) - max(h[0], w[0])) for h, w in zip(held, wanted, strict=True)]
        lacking += math.prod(stop - start for start, stop in wanted) - math.prod(common)
    return itemsize * lacking / source.num_devices
