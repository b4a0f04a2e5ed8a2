"""The one canonical layout, and the meaning of it.

A `Layout` says, with nothing but axis names and sizes, what every position of a mesh holds of a tensor.  Both dialects
(`PlacementMapping`, `NamedMapping`) convert to it at the edge; the planner and the engine know nothing else.

**The meaning.**  Let a tensor have shape (n0, n1, …), and dim d be split over the axes (a, b, …), major to minor:

* the dim is cut into K = |a|·|b|·… blocks by one rule (`dims.split_offset`): block i starts at i·⌊n/K⌋ +
  min(i, n mod K), so that sizes differ by at most one, larger first; nested axes and one flat axis of their product
  agree;
* the device at coordinates (…, a=i, b=j, …) holds block i·|b| + j; axes that aren't named hold copies;
* along a Partial axis the devices hold *pieces*, and the global value is the reduction of the pieces.  Where several
  axes are Partial, the reduction goes from the last mesh axis to the first (it matters when their ops don't commute).

Invariants, checked by the constructor in this order:

1. Every axis in `dims` and `partial` is an axis of the mesh, and the mesh has no name twice.
2. No axis is used twice.
3. Axes of size 1 are dropped, and `partial` stands in mesh order: layouts that mean the same are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any

from lamina.errors import LayoutError, Problems
from lamina.sharding.dims import split_offset
from lamina.sharding.frozen import Frozen
from lamina.sharding.placements import ReduceOp, as_reduce_op

Axes = tuple[str, ...]
Block = tuple[tuple[int, int], ...]


class Layout(Frozen):
    """How a tensor of some rank lies on a mesh; see the module's docstring for what it means.

    `grid` says into how many blocks each dim is cut.

    >>> Layout({"x": 2, "y": 2}, [("y", "x"), ()])
    Layout('[x=2,y=2] (y,x),-')
    >>> Layout({"x": 2, "y": 1}, [("x", "y"), ()]) == Layout({"x": 2, "y": 1}, [("x",), ()])
    True
    >>> Layout({"x": 2, "y": 4}, [("y", "x"), ()]).grid
    (8, 1)
    >>> Layout({"x": 2}, [("x",), ("x",)])
    Traceback (most recent call last):
    lamina.errors.LayoutError: axis 'x' is used twice: by dim 0 and by dim 1
    """

    __slots__ = ("_hash", "axes", "dims", "grid", "partial", "sizes")

    axes: tuple[tuple[str, int], ...]
    dims: tuple[Axes, ...]
    partial: tuple[tuple[str, ReduceOp], ...]
    sizes: Mapping[str, int]
    grid: tuple[int, ...]
    _hash: int

    def __init__(
        self,
        axes: Mapping[str, int] | Iterable[tuple[str, int]],
        dims: Iterable[Sequence[str]],
        partial: Mapping[str, ReduceOp] | Iterable[tuple[str, ReduceOp]] = (),
    ):
        axes, dims, partial = _pairs(axes), tuple(tuple(entry) for entry in dims), _pairs(partial)
        sizes, pieces = dict(axes), dict(partial)
        _check_use(axes, sizes, dims, partial)
        set_ = object.__setattr__
        set_(self, "sizes", MappingProxyType(sizes))
        set_(self, "axes", tuple(sizes.items()))
        set_(self, "dims", tuple(tuple(a for a in entry if sizes[a] > 1) for entry in dims))
        set_(self, "grid", tuple(math.prod([sizes[a] for a in entry]) for entry in self.dims))
        set_(self, "partial", tuple((a, _op(a, pieces[a])) for a in sizes if a in pieces and sizes[a] > 1))
        set_(self, "_hash", hash((self.axes, self.dims, self.partial)))

    def replace(
        self, dims: Iterable[Sequence[str]] | None = None, partial: Iterable[tuple[str, ReduceOp]] | None = None
    ) -> Layout:
        """The same mesh with other dims or other Partial axes."""
        return Layout(self.axes, self.dims if dims is None else dims, self.partial if partial is None else partial)

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_replicated(self) -> bool:
        return not self.partial and not any(self.dims)

    @property
    def partial_axes(self) -> Axes:
        return tuple(axis for axis, _ in self.partial)

    @property
    def sharded_axes(self) -> Axes:
        """The axes that split some dim, in the order of the dims."""
        return tuple(axis for entry in self.dims for axis in entry)

    @property
    def replicated_axes(self) -> Axes:
        """The axes (larger than 1) along which devices hold copies."""
        used = {*self.sharded_axes, *self.partial_axes}
        return tuple(axis for axis, size in self.axes if size > 1 and axis not in used)

    def reduce_op(self, axis: str) -> ReduceOp | None:
        """The op of a Partial axis; None for any other."""
        return dict(self.partial).get(axis)

    def count(self, axes: Iterable[str]) -> int:
        """How many devices stand along these axes together."""
        return math.prod(self.sizes[axis] for axis in axes)

    @property
    def num_devices(self) -> int:
        return self.count(self.sizes)

    def is_even(self, shape: Sequence[int]) -> bool:
        """Do all devices hold blocks of one size?"""
        return all(size % blocks == 0 for size, blocks in zip(shape, self.grid, strict=True))

    def padded_block(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the largest block.

        >>> Layout({"x": 4}, [("x",), ()]).padded_block((10, 3))
        (3, 3)
        """
        return tuple(-(-size // blocks) for size, blocks in zip(shape, self.grid, strict=True))

    # -- what a device holds ------------------------------------------------------------------------------------

    def block_index(self, where: Mapping[str, int]) -> tuple[int, ...]:
        """Which block of each dim the device at these coordinates holds.

        >>> Layout({"x": 2, "y": 4}, [("y", "x"), ()]).block_index({"x": 1, "y": 2})
        (5, 0)
        """
        index = []
        for entry in self.dims:
            block = 0
            for axis in entry:
                block = block * self.sizes[axis] + where[axis]
            index.append(block)
        return tuple(index)

    def block(self, shape: Sequence[int], where: Mapping[str, int]) -> Block:
        """The slice of the global tensor at these coordinates, as one (start, stop) per dim.

        >>> [Layout({"x": 4}, [("x",)]).block((10,), {"x": i}) for i in range(4)]
        [((0, 3),), ((3, 6),), ((6, 8),), ((8, 10),)]
        """
        return tuple(
            (split_offset(size, blocks, i), split_offset(size, blocks, i + 1))
            for size, blocks, i in zip(shape, self.grid, self.block_index(where), strict=True)
        )

    def positions(self) -> Iterator[dict[str, int]]:
        """The coordinates of every position of the mesh, row-major, by axis name.

        >>> list(Layout({"x": 1, "y": 2}, []).positions())
        [{'x': 0, 'y': 0}, {'x': 0, 'y': 1}]
        """
        for where in product(*(range(size) for _, size in self.axes)):
            yield dict(zip(self.sizes, where, strict=True))

    def keeps_the_value(self, where: Mapping[str, int]) -> str | None:
        """How a replicated value becomes pieces: the axis whose identity this device holds, or None for the value.

        The first device along a Partial axis keeps the value and the others hold the op's identity; along an AVG
        axis all keep it.  Where several axes are Partial the last one that isn't at 0 decides.
        """
        marked = [axis for axis, op in self.partial if op is not ReduceOp.AVG and where[axis] != 0]
        return marked[-1] if marked else None

    # -- a value ------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple:
        return Layout, (self.axes, self.dims, self.partial)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Layout) or self._hash != other._hash:
            return False
        return (self.dims, self.partial, self.axes) == (other.dims, other.partial, other.axes)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        from lamina.sharding.text import layout_text  # text knows Layout; only printing needs text

        return layout_text(self)

    def __repr__(self) -> str:
        return f"Layout({str(self)!r})"


def check_rank(layout: Layout, shape: Sequence[object]) -> None:
    if layout.rank != len(shape):
        raise LayoutError(f"the layout {layout} has {layout.rank} dims, but the shape {tuple(shape)} has {len(shape)}")


def _pairs(given: Any) -> tuple:
    """A mapping or an iterable of pairs as pairs, twins included."""
    if type(given) is tuple:
        return given
    return tuple(given.items() if isinstance(given, Mapping) else given)


def _op(axis: str, op: Any) -> ReduceOp:
    return op if type(op) is ReduceOp else as_reduce_op(op, f"partial[{axis!r}]={op!r}")


def _check_use(axes: tuple, sizes: Mapping[str, int], dims: Sequence[Sequence[str]], partial: tuple) -> None:
    if len(sizes) < len(axes):
        there = ",".join(f"{name}={size}" for name, size in axes)
        raise LayoutError(f"an axis stands twice in the mesh [{there}]")
    users: dict[str, list[str]] = {}
    for d, entry in enumerate(dims):
        for axis in entry:
            users.setdefault(axis, []).append(f"by dim {d}")
    for axis, _ in partial:
        users.setdefault(axis, []).append("as Partial")
    check_axis_use(sizes, users)


def check_axis_use(sizes: Mapping[str, int], users: Mapping[str, Sequence[str]]) -> None:
    """Invariants 1 and 2, for everything that assigns axes to users ("by dim 0", "as Partial")."""
    problems = Problems()
    for axis, by in users.items():
        if axis not in sizes:
            there = ",".join(f"{name}={size}" for name, size in sizes.items())
            problems.add(f"{axis!r} is not an axis of the mesh [{there}]")
        elif len(by) > 1:
            problems.add(f"axis {axis!r} is used twice: {' and '.join(by)}")
    problems.check()
