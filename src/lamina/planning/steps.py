"""The steps that a plan is made of.

A step says what happens along some mesh axes, with no devices and no data.  `step.after(layout)` is the only
definition of what it does to a layout; the engine lowers it, the numpy interpreter plays it, the cost model weighs it.
`step.transpose(layout)` takes cotangents back: from those of `after(layout)` to those of `layout`, where reduced pieces
and the value they make have one cotangent (None: nothing has to move).

======================================  ===================================================  ==========================
step                                    layout before → after                               what a device receives
======================================  ===================================================  ==========================
`Slice(dim, axes)`                      copies along axes → axes appended to dim             nothing
`AllGather(dim, axes)`                  axes at the minor end of dim → copies                (k-1) · block
`AllToAll(moves)`                       axes from the minor ends of dims to those of others  (k-1)/k · block
`Permute(dims)`                         the same blocks on other devices                     block
`AllReduce(axes, op)`                   Partial → copies                                     2(k-1)/k · block
`ReduceScatter(axes, op, dim)`          Partial → axes appended to dim                       (k-1)/k · block
`Unreduce(axis, op)`                    copies → Partial (the first keeps, others identity)  nothing
`Exchange(dims, partial)`               any → any                                            what it lacks (mean)
`Transfer(axes, dims, homes)`           any, whole pieces → any, on another mesh             what it lacks (mean)
======================================  ===================================================  ==========================

with k devices along the axes and `block` the padded block before the step; where a dim is cut unevenly, its padded
parts count.

*When a step may be taken.*  A dim that doesn't divide evenly has blocks that nest in no other grid (10 over (2,2) is
3,3,2,2, but over 2 is 5,5), so its axes come and go all at once: see `Layout`'s one rule and `may_append`.
Reductions go from the last Partial axis to the first unless their ops commute: see `pieces.may_reduce`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lamina.errors import LayoutError
from lamina.planning.bounds import elements_exchanged, elements_transferred, largest_exchanged
from lamina.planning.pieces import kept_pieces
from lamina.sharding.layout import Axes, Layout
from lamina.sharding.placements import ReduceOp
from lamina.sharding.specs import DimSpec
from lamina.sharding.text import axes_text, spec_text

Shape = Sequence[int]


def block_size(layout: Layout, shape: Shape) -> int:
    """The elements of the largest block."""
    return prod(layout.padded_block(shape))


@dataclass(frozen=True, slots=True)
class Slice:
    """Every device keeps its part of the block that it holds.

    >>> Slice(0, ("x",)).after(Layout({"x": 2, "y": 2}, [("y",), ()]))
    Layout('[x=2,y=2] (y,x),-')
    """

    dim: int
    axes: Axes

    def after(self, layout: Layout) -> Layout:
        return _append(layout, self.dim, self.axes)

    def received(self, layout: Layout, shape: Shape) -> float:
        return 0.0

    def transpose(self, layout: Layout) -> Step | None:
        return AllGather(self.dim, self.axes)

    def __str__(self) -> str:
        return f"slice dim {self.dim} over {_names(self.axes)}"


@dataclass(frozen=True, slots=True)
class AllGather:
    """Every device gets the blocks of its group, concatenated along the dim.

    >>> AllGather(0, ("x",)).after(Layout({"x": 2, "y": 2}, [("y", "x"), ()]))
    Layout('[x=2,y=2] y,-')
    >>> AllGather(0, ("y",)).after(Layout({"x": 2, "y": 2}, [("y", "x"), ()]))
    Traceback (most recent call last):
    lamina.errors.LayoutError: ('y',) is not the minor end of dim 0 in [x=2,y=2] (y,x),-
    """

    dim: int
    axes: Axes

    def after(self, layout: Layout) -> Layout:
        return _remove(layout, self.dim, self.axes)

    def received(self, layout: Layout, shape: Shape) -> float:
        return (layout.count(self.axes) - 1) * block_size(layout, shape)

    def transpose(self, layout: Layout) -> Step | None:
        return Slice(self.dim, self.axes)

    def __str__(self) -> str:
        return f"all-gather dim {self.dim} over {_names(self.axes)}"


@dataclass(frozen=True, slots=True)
class AllToAll:
    """Axes stop splitting some dims and start splitting others: one collective for any number of axes and dims.

    1. A move is (axis, dim that it leaves, dim that it goes to).  No dim both loses and gains axes.
    2. Of each dim that loses axes they are the minor end, in whatever order; each dim that gains some appends them in
       the order of the moves.

    >>> AllToAll.of(("x",), 0, 1).after(Layout({"x": 2, "y": 2}, [("y", "x"), ()]))
    Layout('[x=2,y=2] y,x')
    >>> AllToAll((("y", 0, 1), ("x", 0, 1))).after(Layout({"x": 2, "y": 2}, [("x", "y"), ()]))
    Layout('[x=2,y=2] -,(y,x)')
    """

    moves: tuple[tuple[str, int, int], ...]

    def __post_init__(self) -> None:
        leaving, joining = ({move[end] for move in self.moves} for end in (1, 2))
        if not self.moves or leaving & joining:
            raise LayoutError(f"{self} is no all-to-all: no dim can both lose and gain axes")

    @staticmethod
    def of(axes: Axes, source: int, target: int) -> AllToAll:
        """All these axes from one dim to another."""
        return AllToAll(tuple((axis, source, target) for axis in axes))

    @property
    def axes(self) -> Axes:
        return tuple(axis for axis, _, _ in self.moves)

    def leaving(self, layout: Layout) -> dict[int, Axes]:
        """For each dim that loses axes: these, major to minor."""
        dims = sorted({source for _, source, _ in self.moves})
        return {dim: tuple(axis for axis in layout.dims[dim] if (axis, dim) in self._from) for dim in dims}

    @property
    def joining(self) -> dict[int, Axes]:
        """For each dim that gains axes: these, major to minor."""
        dims = sorted({target for _, _, target in self.moves})
        return {dim: tuple(axis for axis, _, target in self.moves if target == dim) for dim in dims}

    @property
    def _from(self) -> set[tuple[str, int]]:
        return {(axis, source) for axis, source, _ in self.moves}

    def after(self, layout: Layout) -> Layout:
        if absent := [f"{axis!r} doesn't split dim {d}" for axis, d in self._from if axis not in layout.dims[d]]:
            raise LayoutError(f"{' and '.join(sorted(absent))} in {layout}")
        for dim, axes in self.leaving(layout).items():
            layout = _remove(layout, dim, axes)
        for dim, axes in self.joining.items():
            layout = _append(layout, dim, axes)
        return layout

    def received(self, layout: Layout, shape: Shape) -> float:
        part, after = list(layout.padded_block(shape)), self.after(layout).padded_block(shape)
        for dim in self.joining:
            part[dim] = after[dim]
        return (layout.count(self.axes) - 1) * prod(part)

    def transpose(self, layout: Layout) -> Step | None:
        goes = {axis: target for axis, _, target in self.moves}
        return AllToAll(tuple((a, goes[a], dim) for dim, axes in self.leaving(layout).items() for a in axes))

    def __str__(self) -> str:
        ways: dict[tuple[int, int], Axes] = {}
        for axis, source, target in self.moves:
            ways[source, target] = (*ways.get((source, target), ()), axis)
        parts = (f"{_names(axes)} from dim {source} to dim {target}" for (source, target), axes in ways.items())
        return "all-to-all over " + " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Permute:
    """The devices swap whole blocks, so that the dims are split by other axes into the same grid.

    >>> Permute((("x", "y"), ())).after(Layout({"x": 2, "y": 2}, [("y", "x"), ()]))
    Layout('[x=2,y=2] (x,y),-')
    >>> Permute((("x",), ())).after(Layout({"x": 2, "y": 2}, [("y", "x"), ()]))
    Traceback (most recent call last):
    lamina.errors.LayoutError: a permute can't change the grid (4, 1) of [x=2,y=2] (y,x),- into (2, 1)
    """

    dims: tuple[Axes, ...]

    def after(self, layout: Layout) -> Layout:
        after = layout.replace(dims=self.dims)
        if after.grid != layout.grid:
            raise LayoutError(f"a permute can't change the grid {layout.grid} of {layout} into {after.grid}")
        return after

    def received(self, layout: Layout, shape: Shape) -> float:
        blocks = elements_exchanged(layout, self.after(layout), layout.grid)  # on the mean: some keep theirs
        return blocks * block_size(layout, shape)

    def transpose(self, layout: Layout) -> Step | None:
        return Permute(layout.dims)

    def __str__(self) -> str:
        return "permute to " + ",".join(_names(axes) for axes in self.dims)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """The pieces along the axes become the value, on every device.

    >>> AllReduce(("x",), ReduceOp.SUM).after(Layout({"x": 2}, [()], {"x": ReduceOp.SUM}))
    Layout('[x=2] -')
    """

    axes: Axes
    op: ReduceOp

    def after(self, layout: Layout) -> Layout:
        return _resolve(layout, self.axes, self.op)

    def received(self, layout: Layout, shape: Shape) -> float:
        count = layout.count(self.axes)
        return 2 * (count - 1) / count * block_size(layout, shape)

    def transpose(self, layout: Layout) -> Step | None:
        return None  # the cotangent of the value is that of every piece

    def __str__(self) -> str:
        return f"all-reduce {self.op} over {_names(self.axes)}"


@dataclass(frozen=True, slots=True)
class ReduceScatter:
    """The pieces along the axes become the value, of which each device keeps its part.

    >>> ReduceScatter(("x",), ReduceOp.SUM, 0).after(Layout({"x": 2}, [()], {"x": ReduceOp.SUM}))
    Layout('[x=2] x')
    """

    axes: Axes
    op: ReduceOp
    dim: int

    def after(self, layout: Layout) -> Layout:
        return _append(_resolve(layout, self.axes, self.op), self.dim, self.axes)

    def received(self, layout: Layout, shape: Shape) -> float:
        return (layout.count(self.axes) - 1) * block_size(self.after(layout), shape)

    def transpose(self, layout: Layout) -> Step | None:
        return AllGather(self.dim, self.axes)

    def __str__(self) -> str:
        return f"reduce-scatter {self.op} over {_names(self.axes)} into dim {self.dim}"


@dataclass(frozen=True, slots=True)
class Unreduce:
    """A value becomes pieces: the first device along the axis keeps it, the others hold the op's identity.

    >>> Unreduce("x", ReduceOp.MAX).after(Layout({"x": 2}, [()]))
    Layout('[x=2] - +max(x)')
    """

    axis: str
    op: ReduceOp

    def after(self, layout: Layout) -> Layout:
        if self.axis not in layout.replicated_axes:
            raise LayoutError(f"axis {self.axis!r} is not replicated in {layout}")
        return layout.replace(partial=(*layout.partial, (self.axis, self.op)))

    def received(self, layout: Layout, shape: Shape) -> float:
        return 0.0

    def transpose(self, layout: Layout) -> Step | None:
        return None  # as for AllReduce

    def __str__(self) -> str:
        return f"unreduce {self.op} over {self.axis}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Every device gets just the blocks that it lacks, from their holders, in rounds of point-to-point messages.

    From any layout to any other: uneven, 2 against 3, any number of axes and dims at once.  Pieces of one op are
    reduced on arrival.  `planning.schedule` says who sends what in which round.

    >>> Exchange((("y",), ("x",))).after(Layout({"x": 2, "y": 3}, [("x",), ("y",)]))
    Layout('[x=2,y=3] y,x')
    """

    dims: tuple[Axes, ...]
    partial: tuple[tuple[str, ReduceOp], ...] = ()

    def after(self, layout: Layout) -> Layout:
        return Layout(layout.axes, self.dims, self.partial)

    def received(self, layout: Layout, shape: Shape) -> float:
        return elements_exchanged(layout, self.after(layout), tuple(shape))

    def transpose(self, layout: Layout) -> Step | None:
        stays = kept_pieces(layout, self.after(layout))
        return Exchange(layout.dims, tuple(stays.items()))

    def __str__(self) -> str:
        return "exchange to " + spec_text(map(DimSpec, self.dims), self.partial)


@dataclass(frozen=True, slots=True)
class Transfer:
    """The value goes to another mesh, of `axes`: every device there gets its block, each part from one that holds it.

    `homes[i]` is the position on this mesh of the device that is at position i there, or None for a device that is only
    there.  What a device holds already isn't sent.  Pieces don't travel: they are reduced before, and made after.

    >>> there = Transfer((("b", 4),), (("b",),), (None,) * 4)
    >>> there.after(Layout({"a": 2}, [("a",)])), there.received(Layout({"a": 2}, [("a",)]), (8,))
    (Layout('[b=4] b'), 2.0)
    """

    axes: tuple[tuple[str, int], ...]
    dims: tuple[Axes, ...]
    homes: tuple[int | None, ...]

    def after(self, layout: Layout) -> Layout:
        if layout.partial:
            raise LayoutError(f"pieces can't be transferred: {layout} has to be reduced first")
        return Layout(self.axes, self.dims)

    def received(self, layout: Layout, shape: Shape) -> float:
        return sum(elements_transferred(layout, self.after(layout), tuple(shape), self.homes)) / len(self.homes)

    def transpose(self, layout: Layout) -> Step | None:
        back = {home: there for there, home in enumerate(self.homes) if home is not None}
        return Transfer(layout.axes, layout.dims, tuple(map(back.get, range(layout.num_devices))))

    def __str__(self) -> str:
        return f"transfer to {axes_text(self.axes)} {spec_text(map(DimSpec, self.dims))}"


Step = Slice | AllGather | AllToAll | Permute | AllReduce | ReduceScatter | Unreduce | Exchange | Transfer


def most_received(step: Step, layout: Layout, shape: Shape) -> float:
    """What the device receives that receives most; `step.received` is the mean, which for most steps is the same.

    >>> swap, rows = Permute((("y", "x"),)), Layout({"x": 2, "y": 2}, [("x", "y")])
    >>> swap.received(rows, (8,)), most_received(swap, rows, (8,))
    (1.0, 2.0)
    """
    mean = step.received(layout, shape)
    match step:
        case Permute():
            return float(block_size(layout, shape)) if mean else 0.0
        case Exchange():
            return max(mean, largest_exchanged(layout, step.after(layout), tuple(shape)))
        case Transfer():
            return max(elements_transferred(layout, step.after(layout), tuple(shape), step.homes))
        case _:
            return mean


def most_held(step: Step, layout: Layout, shape: Shape) -> int:
    """The elements that a device holds while the step runs: its block before and its block after.

    Pieces of an average are the copies themselves: nothing is made.

    >>> rows = Layout({"x": 2}, [()])
    >>> most_held(Unreduce("x", ReduceOp.SUM), rows, (8,)), most_held(Unreduce("x", ReduceOp.AVG), rows, (8,))
    (16, 8)
    """
    if isinstance(step, Unreduce) and step.op is ReduceOp.AVG:
        return block_size(layout, shape)
    return block_size(layout, shape) + block_size(step.after(layout), shape)


# -- when a step may be taken -----------------------------------------------------------------------------------------


def may_append(layout: Layout, shape: Shape, dim: int, axes: Axes) -> bool:
    """Do blocks of the dim stay within blocks when these axes are appended (or, after it, taken away again)?

    >>> layout = Layout({"x": 2, "y": 2}, [("x",), ()])
    >>> (
    ...     may_append(layout, (8, 10), 0, ("y",)),
    ...     may_append(layout, (10, 10), 0, ("y",)),
    ...     may_append(layout, (8, 9), 1, ("y",)),
    ... )
    (True, False, True)
    """
    current = layout.dims[dim]
    return not current or shape[dim] % layout.count((*current, *axes)) == 0


def may_remove(layout: Layout, shape: Shape, dim: int, axes: Axes) -> bool:
    """Is what remains of the dim's blocks, once these minor axes are gathered, what the smaller grid says?"""
    return len(axes) == len(layout.dims[dim]) or shape[dim] % layout.grid[dim] == 0


# -- layout algebra ---------------------------------------------------------------------------------------------------


def _append(layout: Layout, dim: int, axes: Axes) -> Layout:
    busy = [axis for axis in axes if axis not in layout.replicated_axes]
    if busy:
        raise LayoutError(f"axes {tuple(busy)} are not replicated in {layout}")
    return layout.replace(dims=(*layout.dims[:dim], layout.dims[dim] + tuple(axes), *layout.dims[dim + 1 :]))


def _remove(layout: Layout, dim: int, axes: Axes) -> Layout:
    current = layout.dims[dim]
    if not axes or current[-len(axes) :] != tuple(axes):
        raise LayoutError(f"{tuple(axes)} is not the minor end of dim {dim} in {layout}")
    return layout.replace(dims=(*layout.dims[:dim], current[: -len(axes)], *layout.dims[dim + 1 :]))


def _resolve(layout: Layout, axes: Axes, op: ReduceOp) -> Layout:
    for axis in axes:
        if layout.reduce_op(axis) is not op:
            raise LayoutError(f"axis {axis!r} is not Partial({op.name}) in {layout}")
    return layout.replace(partial=[(axis, o) for axis, o in layout.partial if axis not in axes])


def _names(axes: Axes) -> str:
    return axes[0] if len(axes) == 1 else f"({','.join(axes)})" if axes else "-"
