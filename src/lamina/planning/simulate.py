"""Plans played on numpy arrays, one per device: the reference that every engine is tested against.

The state is a layout's meaning made concrete: `Blocks` maps the coordinates of every device, in the order of
`layout.axes`, to exactly the array that it holds, with no padding.

* `scatter` lays a global value out; `collect` reads it back: Partial axes are reduced from the last mesh axis to the
  first, each block is put in its place, and devices that hold the same block must agree on every element.
* `step_forward` plays one step with nothing but the arrays at hand: a device cuts what it holds, or joins or reduces
  what its group holds.  It shares no code with any engine.
* `combine` and `identity` say what the reductions are, for every dtype that numpy and ml_dtypes have:

====  ============================================================  =====  ===============================
op    of numbers                                                    bools  identity
====  ============================================================  =====  ===============================
SUM   a + b, integers wrap                                          or     0
PROD  a · b, integers wrap                                          and    1
MAX   the larger, nan if there is one; complex: ValueError          or     -inf, else the smallest value
MIN   the smaller, nan if there is one; complex: ValueError         and    +inf, else the largest value
AVG   sum / n; of integers the floor of the exact mean              and    none: all devices keep the value
====  ============================================================  =====  ===============================

Several axes are reduced one by one, the last first, so the floor of an integer AVG falls once per axis.

>>> from lamina.sharding import Layout
>>> scatter([1, 2, 3], Layout({"x": 2}, [("x",)]))
{(0,): array([1, 2]), (1,): array([3])}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

from lamina.planning.pieces import kept_pieces
from lamina.planning.plan import Plan
from lamina.planning.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Unreduce,
)
from lamina.sharding.layout import Axes, Block, Layout
from lamina.sharding.placements import ReduceOp

# numpy is imported by the functions that use it, because lamina.planning must import without it.
Array = Any  # a numpy array
Where = tuple[int, ...]
Blocks = dict[Where, Array]


def run(plan: Plan, blocks: Mapping[Where, Array]) -> Blocks:
    """The blocks after all steps of the plan.

    >>> from lamina.planning.search import plan
    >>> columns, rows = Layout({"x": 2}, [(), ("x",)]), Layout({"x": 2}, [("x",), ()])
    >>> run(plan(columns, rows, (2, 2)), scatter([[1, 2], [3, 4]], columns))
    {(0,): array([[1, 2]]), (1,): array([[3, 4]])}
    """
    blocks = dict(blocks)
    for step, layout in zip(plan.steps, plan.layouts, strict=False):
        blocks = step_forward(step, blocks, layout, plan.shape)
    return blocks


def scatter(value: Any, layout: Layout) -> Blocks:
    """What every device holds of the value, each in an array of its own."""
    import numpy as np

    value, blocks = np.asarray(value), {}
    for where in positions(layout):
        block = value[_slices(_bounds(layout, value.shape, where))]
        marked = layout.keeps_the_value(_named(layout, where))
        op = layout.reduce_op(marked) if marked else None
        blocks[where] = np.full_like(block, identity(op, value.dtype)) if op else block.copy()
    return blocks


def collect(blocks: Mapping[Where, Array], layout: Layout, shape: Sequence[int], dtype: Any) -> Array:
    """The global value; an AssertionError where two devices disagree on it.

    >>> import numpy as np
    >>> collect({(0,): np.array([1]), (1,): np.array([3])}, Layout({"x": 2}, [()], {"x": ReduceOp.SUM}), (1,), int)
    array([4])
    """
    import numpy as np

    blocks = _reduced(blocks, layout, layout.partial_axes)
    value = np.zeros(shape, dtype)
    filled: dict[Block, Where] = {}
    for where in positions(layout):
        bounds, held = _bounds(layout, shape, where), blocks[where]
        part = value[_slices(bounds)]
        assert (held.shape, held.dtype) == (part.shape, part.dtype), (
            f"{where} holds {held.dtype}{held.shape}, but its block of {layout} is {part.dtype}{part.shape}"
        )
        if filled.setdefault(bounds, where) == where:
            part[...] = held
        same = (part == held) | ((part != part) & (held != held))  # nan is the one value that differs from itself
        assert same.all(), f"{filled[bounds]} and {where} hold one block of {layout}, but different values"
    return value


def step_forward(step: Step, blocks: Mapping[Where, Array], layout: Layout, shape: Sequence[int]) -> Blocks:
    """The blocks after the step, from those in `layout` before it."""
    import numpy as np

    after = step.after(layout)

    def part(block: Array, holder: Where, receiver: Where, dims: Collection[int] = range(layout.rank)) -> Array:
        """What the receiver shall have, in these dims, of the holder's block."""
        held, wanted = _bounds(layout, shape, holder), _bounds(after, shape, receiver)
        return _cut(block, held, [wanted[d] if d in dims else held[d] for d in range(layout.rank)])

    match step:
        case Slice():
            return {w: part(block, w, w) for w, block in blocks.items()}
        case AllGather(dim, axes):
            return {w: np.concatenate([blocks[p] for p in _group(layout, axes, w)], dim) for w in blocks}
        case AllToAll():
            cut = {w: {p: part(blocks[p], p, w, step.joining) for p in _group(layout, step.axes, w)} for w in blocks}
            return {w: _joined(parts, list(step.leaving(layout)), layout, shape) for w, parts in cut.items()}
        case Permute():
            before = {_content(layout, w): block for w, block in blocks.items()}
            return {w: before[_content(after, w)] for w in blocks}
        case AllReduce(axes):
            return _reduced(blocks, layout, axes)
        case ReduceScatter(axes):
            return {w: part(block, w, w) for w, block in _reduced(blocks, layout, axes).items()}
        case Exchange():
            return _exchanged(blocks, layout, after, shape)
        case Unreduce(axis, op):
            keeps = {w for w in blocks if op is ReduceOp.AVG or _named(layout, w)[axis] == 0}
            return {w: b if w in keeps else np.full_like(b, identity(op, b.dtype)) for w, b in blocks.items()}


def combine(pieces: Sequence[Array], op: ReduceOp) -> Array:
    """The reduction of the pieces, in their own dtype.

    >>> import numpy as np
    >>> pieces = np.array([100, -3], "int8"), np.array([50, -4], "int8")
    >>> combine(pieces, ReduceOp.SUM), combine(pieces, ReduceOp.AVG)
    (array([-106,   -7], dtype=int8), array([75, -4], dtype=int8))
    """
    import numpy as np

    dtype = pieces[0].dtype
    _check_order(op, dtype)
    if op is ReduceOp.AVG and _is_integer(dtype):
        found = sum(piece.astype(object) for piece in pieces) // len(pieces)  # Python's integers don't overflow
    elif op is ReduceOp.AVG:
        found = reduce(np.add, pieces) / dtype.type(len(pieces))
    else:
        ufuncs = {ReduceOp.SUM: np.add, ReduceOp.PROD: np.multiply, ReduceOp.MAX: np.maximum, ReduceOp.MIN: np.minimum}
        found = reduce(ufuncs[op], pieces)
    return np.asarray(found, dtype)


def identity(op: ReduceOp, dtype: Any) -> Any:
    """The scalar that changes nothing when it is reduced with others.

    >>> identity(ReduceOp.MAX, "int8"), identity(ReduceOp.MIN, "float32"), identity(ReduceOp.PROD, bool)
    (np.int8(-128), np.float32(inf), np.True_)
    """
    import ml_dtypes
    import numpy as np

    dtype, low = np.dtype(dtype), op is ReduceOp.MAX
    _check_order(op, dtype)
    if op is ReduceOp.AVG:
        raise ValueError("avg has no identity: all devices keep the value")
    if op in (ReduceOp.SUM, ReduceOp.PROD):
        return dtype.type(op is ReduceOp.PROD)
    if dtype.kind == "b":
        return dtype.type(not low)
    if _is_integer(dtype):
        limits: Any = ml_dtypes.iinfo(dtype)
    else:
        infinity, limits = dtype.type("-inf" if low else "inf"), ml_dtypes.finfo(dtype)
        if infinity == infinity:  # some 8-bit floats have none, and read it as nan
            return infinity
    return dtype.type(limits.min if low else limits.max)


def _check_order(op: ReduceOp, dtype: Any) -> None:
    if op in (ReduceOp.MAX, ReduceOp.MIN) and dtype.kind == "c":
        raise ValueError(f"{op} of {dtype}: complex numbers have no order")


def _is_integer(dtype: Any) -> bool:
    return dtype.kind in "biu" or "int" in dtype.name  # to numpy, ml_dtypes' integers are of no kind


def _joined(parts: dict[Where, Array], dims: Sequence[int], layout: Layout, shape: Sequence[int]) -> Array:
    """What several holders sent, concatenated along these dims in the order of their blocks, the last dim first."""
    import numpy as np

    if not dims:
        (only,) = parts.values()
        return only
    *outer, dim = dims
    rows: dict[tuple, dict[int, tuple[Where, Array]]] = {}
    for holder, sent in parts.items():
        bounds = _bounds(layout, shape, holder)
        block = layout.block_index(_named(layout, holder))
        rows.setdefault(tuple(bounds[d] for d in outer), {})[block[dim]] = holder, sent
    joined = {}
    for row in rows.values():
        ordered = [row[number] for number in sorted(row)]
        joined[ordered[0][0]] = np.concatenate([sent for _, sent in ordered], dim)
    return _joined(joined, outer, layout, shape)


def _exchanged(blocks: Mapping[Where, Array], layout: Layout, after: Layout, shape: Sequence[int]) -> Blocks:
    """Everyone's new block, cell by cell from any holder of each piece; identities where the value isn't kept."""
    import numpy as np

    kept = kept_pieces(layout, after)
    resolved = [axis for axis in layout.partial_axes if axis not in kept]
    made = after.replace(partial=[(axis, op) for axis, op in after.partial if axis not in kept])
    whole = {w: b for w, b in _reduced(blocks, layout, tuple(resolved)).items()}
    found: Blocks = {}
    for w, block in blocks.items():
        wanted = _bounds(after, shape, w)
        new = np.zeros([stop - start for start, stop in wanted], block.dtype)
        for holder, held in whole.items():
            if any(_named(layout, holder)[axis] != _named(layout, w)[axis] for axis in kept):
                continue
            bounds = _bounds(layout, shape, holder)
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(bounds, wanted, strict=True)]
            if all(a < b for a, b in common):
                here = tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(common, wanted, strict=True))
                new[here] = _cut(held, bounds, common)
        mark = made.keeps_the_value(_named(after, w))
        op = made.reduce_op(mark) if mark else None
        found[w] = np.full_like(new, identity(op, new.dtype)) if op else new
    return found


def _reduced(blocks: Mapping[Where, Array], layout: Layout, axes: Axes) -> Blocks:
    """Every device's piece replaced by the reduction over its group."""
    for axis, op in reversed(layout.partial):
        if axis in axes:
            blocks = {w: combine([blocks[p] for p in _group(layout, (axis,), w)], op) for w in blocks}
    return dict(blocks)


def positions(layout: Layout) -> Iterator[Where]:
    """The coordinates of every device, row-major."""
    return product(*(range(size) for _, size in layout.axes))


def _named(layout: Layout, where: Where) -> dict[str, int]:
    return dict(zip(layout.sizes, where, strict=True))


def _group(layout: Layout, axes: Axes, where: Where) -> list[Where]:
    """The devices that differ from this one along the axes only, ordered by them from major to minor."""
    moving = [list(layout.sizes).index(axis) for axis in axes]
    still = [i for i in range(len(where)) if i not in moving]
    peers = (p for p in positions(layout) if all(p[i] == where[i] for i in still))
    return sorted(peers, key=lambda peer: [peer[i] for i in moving])


def _content(layout: Layout, where: Where) -> tuple:
    """What tells a device's array from others: its block, and its place along the axes whose devices hold pieces."""
    at = _named(layout, where)
    return layout.block_index(at), *(at[axis] for axis in layout.partial_axes)


def _bounds(layout: Layout, shape: Sequence[int], where: Where) -> Block:
    return layout.block(shape, _named(layout, where))


def _cut(block: Array, held: Block, wanted: Iterable[tuple[int, int]]) -> Array:
    """The wanted part of a block that lies between the bounds `held`."""
    inside = []
    for (start, stop), (first, last) in zip(held, wanted, strict=True):
        assert start <= first <= last <= stop, (
            f"a device that holds {held} can't cut {first}:{last} from {start}:{stop}"
        )
        inside.append((first - start, last - start))
    return block[_slices(inside)]


def _slices(bounds: Iterable[tuple[int, int]]) -> tuple[Any, ...]:
    return *(slice(start, stop) for start, stop in bounds), ...  # with the dots, no dims give an array and no scalar
