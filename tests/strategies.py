"""What the tests draw from: meshes, layouts, shapes and values.  No JAX: tests/pure draws from it too.

A mesh is a dict from axis name to size, as `Layout` takes it. Whatever isn't drawn by hypothesis is the same in every
run and every process.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import permutations, product
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from lamina.planning.simulate import Blocks, positions, scatter
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

Mesh = dict[str, int]
OPS = tuple(ReduceOp)
NAMES = ("x", "y", "z")

DTYPES = ("bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64")
# These need JAX's x64 mode.
WIDE_DTYPES = ("int64", "uint64", "float64", "complex128")
# XLA packs or rounds these; not every backend computes with them.
NARROW_DTYPES = ("int4", "uint4", "float8_e4m3fn", "float8_e5m2")

# The meshes and shapes of which all pairs of layouts are run.
EXHAUSTIVE_MESHES: tuple[Mesh, ...] = ({"x": 2, "y": 2, "z": 2}, {"x": 2, "y": 3}, {"x": 8})


# -- drawn by hypothesis ----------------------------------------------------------------------------------------------


@st.composite
def mesh_axes(draw: st.DrawFn, max_devices: int = 12, max_axes: int = 3) -> Mesh:
    """One to three axes; sizes 1 to 3, now and then 5 or 6."""
    axes: Mesh = {}
    for name in NAMES[: draw(st.integers(1, max_axes))]:
        left = max_devices // math.prod(axes.values())
        axes[name] = draw(st.sampled_from([size for size in (1, 2, 2, 2, 3, 3, 5, 6) if size <= left]))
    return axes


@st.composite
def layouts(draw: st.DrawFn, axes: Mesh, rank: int, partial: bool = True, ops: Sequence[ReduceOp] = OPS) -> Layout:
    """Any layout: each axis splits a dim, or is Partial, or holds copies; axes nest in any order."""
    users: list[int | str | None] = [None, *range(rank), *(["partial"] if partial else [])]
    dims: list[list[str]] = [[] for _ in range(rank)]
    pieces = {}
    for axis in draw(st.permutations(list(axes))):
        match draw(st.sampled_from(users)):
            case int(dim):
                dims[dim].append(axis)
            case "partial":
                pieces[axis] = draw(st.sampled_from(ops))
    return Layout(axes, dims, pieces)


def shapes(rank: int, max_size: int = 13) -> st.SearchStrategy[tuple[int, ...]]:
    """Even, uneven, empty, smaller than the shard count."""
    even = [size for size in (6, 12, 4, 8) if size <= max_size]
    return st.tuples(*[st.sampled_from(even) | st.integers(0, max_size)] * rank)


@st.composite
def layout_pairs(
    draw: st.DrawFn, max_devices: int = 12, max_rank: int = 3, partial: bool = True, ops: Sequence[ReduceOp] = OPS
) -> tuple[Layout, Layout, tuple[int, ...]]:
    """Two layouts on one mesh, and the shape of a tensor for them."""
    axes, rank = draw(mesh_axes(max_devices)), draw(st.integers(0, max_rank))
    source, target = draw(layouts(axes, rank, partial, ops)), draw(layouts(axes, rank, partial, ops))
    return source, target, draw(shapes(rank))


# -- all there are ----------------------------------------------------------------------------------------------------


def all_layouts(axes: Mesh, rank: int, partial_ops: Iterable[ReduceOp] = ()) -> list[Layout]:
    """Every layout, once, always in the same order.

    >>> [str(layout) for layout in all_layouts({"x": 2, "y": 2}, 1)]
    ['[x=2,y=2] -', '[x=2,y=2] y', '[x=2,y=2] x', '[x=2,y=2] (x,y)', '[x=2,y=2] (y,x)']
    """
    found: dict[Layout, None] = {}
    for users in product((None, *range(rank), *partial_ops), repeat=len(axes)):
        pieces = {axis: user for axis, user in zip(axes, users, strict=True) if isinstance(user, ReduceOp)}
        members = [[axis for axis, user in zip(axes, users, strict=True) if user == dim] for dim in range(rank)]
        for dims in product(*map(permutations, members)):
            found[Layout(axes, dims, pieces)] = None
    return list(found)


# -- values -----------------------------------------------------------------------------------------------------------


def numpy_dtype(name: Any) -> np.dtype:
    """numpy's dtype, also for the names that only ml_dtypes knows."""
    return np.dtype(getattr(ml_dtypes, name, name) if isinstance(name, str) else name)


def ops_for(dtype: Any) -> tuple[ReduceOp, ...]:
    """The reductions that the dtype has, and that read back exactly what was laid out.

    >>> [str(op) for op in ops_for("complex64")], [str(op) for op in ops_for("bfloat16")]
    (['sum', 'avg', 'prod'], ['sum', 'min', 'max', 'prod'])
    """
    dtype = numpy_dtype(dtype)
    if dtype.kind == "c":  # no order
        return ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD
    short = dtype.name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")  # (v + v + v) / 3 is not v
    return tuple(op for op in OPS if not (short and op is ReduceOp.AVG))


# How far to count: below these primes integers are exact in the dtype, and the rows of every matrix differ.
_COUNT = {"bfloat16": 251, "float16": 2039, "int8": 127, "uint8": 251}
# Too few values to count with.
_FEW = {"bool": 2, "int4": 8, "uint4": 16, "float8_e4m3fn": 17, "float8_e5m2": 9}


def values(shape: Sequence[int], dtype: Any = "float32", op: ReduceOp | None = None) -> np.ndarray:
    """A tensor in which every row and column differs from the others, so that a misplaced one shows.

    For PROD all elements are 1 or 2, since products of others leave the dtype's range.

    >>> values((2, 3), "int8")
    array([[0, 1, 2],
           [3, 4, 5]], dtype=int8)
    """
    dtype, random = numpy_dtype(dtype), np.random.default_rng(0)
    if op is ReduceOp.PROD and dtype.kind != "b":
        return random.integers(1, 3, shape).astype(dtype)
    if dtype.name in _FEW:
        return random.integers(0, _FEW[dtype.name], shape).astype(dtype)
    counted = (np.arange(math.prod(shape)).reshape(shape) % _COUNT.get(dtype.name, 8191)).astype(dtype)
    return counted + dtype.type(1j) * (counted + dtype.type(1)) if dtype.kind == "c" else counted


def any_blocks(layout: Layout, shape: Sequence[int], dtype: Any = "float64") -> Blocks:
    """Blocks as a program may leave them: along Partial axes there are no identities, and no two pieces are alike.

    In float64 every reduction of them is exact, whatever the ops: AVG meets multiples of the number of its devices,
    PROD small factors.  Integers are any, so that the floor of an AVG shows.
    """
    dtype, ops = numpy_dtype(dtype), {op for _, op in layout.partial}
    random = np.random.default_rng([layout.num_devices, *shape])
    low, high = (1, 3) if ReduceOp.PROD in ops else (0, 2) if dtype.kind == "b" else (-99, 100)
    factor = math.prod(layout.sizes[axis] for axis, op in layout.partial if op is ReduceOp.AVG)

    def laid_out() -> Blocks:
        numbers = random.integers(low, high, tuple(shape))
        return scatter((numbers * factor if dtype.kind in "fc" else numbers).astype(dtype), layout.replace(partial=()))

    along = [list(layout.sizes).index(axis) for axis in layout.partial_axes]
    pieces: dict[tuple[int, ...], Blocks] = defaultdict(laid_out)
    return {where: pieces[tuple(where[i] for i in along)][where] for where in positions(layout)}
