"""What the engine's results are compared with: plain numpy on every device's block, from the layout's meaning alone.

`Blocks` (see `planning.simulate`) maps the coordinates of every mesh position to the array that it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pytest

import lamina
from lamina.planning.pieces import kept_pieces
from lamina.planning.simulate import Blocks, combine, identity, positions
from lamina.sharding import DeviceMesh, NamedMapping, ReduceOp
from lamina.sharding.layout import Axes, Layout
from tests.strategies import Mesh

KINDS = ("real", "simulated")
on_both_kinds = pytest.mark.parametrize("kind", KINDS)


def mesh_of(axes: Mesh, kind: str = "real") -> DeviceMesh:
    make = DeviceMesh.create if kind == "real" else DeviceMesh.simulated
    return make(tuple(axes.values()), tuple(axes))


def mapping_of(mesh: DeviceMesh, layout: Layout) -> NamedMapping:
    return NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial))


def laid(x: Any, mesh: DeviceMesh, layout: Layout) -> lamina.Tensor:
    """x, from wherever it is, in this layout."""
    return lamina.shard(x, mesh, layout.dims, partial=dict(layout.partial))


def holding(blocks: Blocks, mesh: DeviceMesh, layout: Layout, shape: Sequence[int] | None = None) -> lamina.Tensor:
    """The tensor whose positions hold just these blocks, whatever their pieces are."""
    return lamina.from_shards(list(blocks.values()), mapping_of(mesh, layout), shape)


def held_by(t: lamina.Tensor) -> Blocks:
    return {where: np.asarray(shard) for where, shard in zip(positions(t.layout), t.shards, strict=True)}


def assert_holds(t: lamina.Tensor, expected: Blocks, layout: Layout | None = None) -> None:
    """Every position holds exactly this, to the bit pattern's value, shape and dtype."""
    if layout is not None:
        assert t.layout == layout
    assert_same_blocks(held_by(t), expected)


def assert_same_blocks(found: Blocks, expected: Blocks) -> None:
    assert list(found) == list(expected)
    for where, block in expected.items():
        np.testing.assert_array_equal(found[where], block, strict=True, err_msg=f"at {where}")


# -- what an op should leave on each device ---------------------------------------------------------------------------


def group(layout: Layout, axes: Axes, where: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The positions that differ from `where` along these axes only, row-major."""
    moving = [axis in axes for axis in layout.sizes]
    return [p for p in positions(layout) if all(m or a == b for m, a, b in zip(moving, p, where, strict=True))]


def reduced(blocks: Blocks, layout: Layout, axes_and_ops: Iterable[tuple[str, ReduceOp]]) -> Blocks:
    """Every block replaced by the reduction over its group, one axis after the other, the last mesh axis first."""
    order = list(layout.sizes)
    for axis, op in sorted(axes_and_ops, key=lambda pair: -order.index(pair[0])):
        blocks = {w: combine([blocks[p] for p in group(layout, (axis,), w)], op) for w in blocks}
    return dict(blocks)


def moved(blocks: Blocks, source: Layout, target: Layout, shape: Sequence[int]) -> Blocks:
    """The blocks of the same value in another layout of the mesh.

    Pieces that stay pieces are moved as they are; the others are reduced, and the first device along each new Partial
    axis keeps the value while the others hold the identity.
    """
    kept = kept_pieces(source, target)
    blocks = reduced(blocks, source, [(axis, op) for axis, op in source.partial if axis not in kept])
    result = {}
    for where in positions(target):
        at = dict(zip(target.sizes, where, strict=True))
        fresh = [a for a, op in target.partial if a not in kept and op is not ReduceOp.AVG and at[a]]
        block = _whole_piece(blocks, source, shape, {axis: at[axis] for axis in kept})[_slices(target, shape, at)]
        if fresh:
            op = target.reduce_op(fresh[-1])
            assert op is not None
            block = np.full_like(block, identity(op, block.dtype))
        result[where] = block
    return result


def _whole_piece(blocks: Blocks, layout: Layout, shape: Sequence[int], piece: Mapping[str, int]) -> np.ndarray:
    """One piece of the tensor put together from the blocks of the positions that hold it."""
    whole = np.zeros(shape, next(iter(blocks.values())).dtype)
    for where, block in blocks.items():
        at = dict(zip(layout.sizes, where, strict=True))
        if all(at[axis] == place for axis, place in piece.items()):
            whole[_slices(layout, shape, at)] = block
    return whole


def _slices(layout: Layout, shape: Sequence[int], at: Mapping[str, int]) -> tuple[Any, ...]:
    return *(slice(start, stop) for start, stop in layout.block(shape, at)), ...


def compiled(fn: Any) -> Any:
    """jax.jit without LLVM's optimisations: the tests compile much and compute little, and this halves their time."""
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0})


def runs(fn: Any, jitted: bool) -> Any:
    """The function as it is, or under jax.jit."""
    return compiled(fn) if jitted else fn
