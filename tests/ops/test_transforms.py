"""The ops of the table under `jax.vmap`, forward differentiation and second order, like plain jnp under them."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lamina
from lamina.sharding.layout import Layout
from tests.engine.oracles import compiled, holding, mesh_of
from tests.ops.checks import assert_pieces, assert_value, close
from tests.ops.laying import blocks_of, layout_tuples, pieces_of, read, shown, tensor_of
from tests.ops.rows import Row
from tests.ops.table import TABLE
from tests.ops.test_gradients import DIFFERENTIABLE, both_ways
from tests.ops.test_values import cases, count  # noqa: F401
from tests.strategies import Mesh


@cases(every=16)
def test_vmap(row: Row, axes: Mesh, kind: str, count: int) -> None:  # noqa: F811
    """Over one more whole dim in front of every operand."""
    mesh = mesh_of(axes, kind)
    stacked = [np.stack([a, b]) for a, b in zip(row.values(), _others(row), strict=True)]
    expected = jax.vmap(row.expected)(*stacked)
    for layouts in layout_tuples(row, axes, count, f"vmap {kind}"):
        wider = [Layout(layout.axes, ((), *layout.dims), layout.partial) for layout in layouts]
        operands = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(stacked, wider, strict=True))]
        assert_value(compiled(jax.vmap(row.run))(*operands), expected, row.tolerance, shown(layouts))


def _others(row: Row) -> list[np.ndarray]:
    return [operand.draw(row.seed + 100 + i) for i, operand in enumerate(row.operands)]


@cases(rows=DIFFERENTIABLE, every=16)
def test_forward(row: Row, axes: Mesh, kind: str, count: int) -> None:  # noqa: F811
    """The directional derivative, along a direction for every piece."""
    mesh, values = mesh_of(axes, kind), row.values()
    for layouts in layout_tuples(row, axes, count, f"jvp {kind}"):
        pieces, tensors, there, ways = [], [], [], []
        for i, (x, other, layout) in enumerate(zip(values, _others(row), layouts, strict=True)):
            own, way = pieces_of(x, layout, i), pieces_of(other, layout, i + 50)
            way = way if i in row.differentiable else np.zeros(way.shape, jax.dtypes.float0)
            pieces.append(own), ways.append(way)
            tensors.append(holding(blocks_of(own, layout), mesh, layout, x.shape))
            there.append(holding(blocks_of(way, layout), mesh, layout, x.shape) if i in row.differentiable else way)
        found = jax.jvp(lambda *ts: plain(row.run(*ts)), tensors, _tangents(tensors, there))
        expected = jax.jvp(lambda *ps: row.expected(*map(read, ps, layouts)), pieces, ways)  # noqa: B023
        for ours, theirs in zip(found, expected, strict=True):
            close(ours.numpy(), theirs, 5 * row.tolerance, shown(layouts))


def _tangents(tensors: list, ways: list) -> list:
    """A tensor without a derivative has float0 for its tangent."""
    return [
        way if isinstance(way, lamina.Tensor) else jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), t)
        for t, way in zip(tensors, ways, strict=True)
    ]


def plain(t: lamina.Tensor) -> lamina.Tensor:
    """With nothing left to reduce."""
    return lamina.shard(t, t.mesh, t.layout.dims)


SMOOTH = ("multiply", "divide", "exp", "tanh", "matmul", "einsum", "mean", "var", "logsumexp", "sum", "gelu", "prod")


@cases(rows=tuple(row for row in DIFFERENTIABLE if row.name in SMOOTH), every=8)
def test_second_order(row: Row, axes: Mesh, kind: str, count: int) -> None:  # noqa: F811
    """The Hessian along a direction: forward over reverse."""
    mesh, values = mesh_of(axes, kind), row.values()
    if any(x.dtype.kind == "c" for x in values):
        pytest.skip("the Hessian of a complex function takes more than one direction")
    for layouts in layout_tuples(row, axes, count, f"hessian {kind}"):
        tensors = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(values, layouts, strict=True))]
        pieces = [pieces_of(x, layout, i) for i, (x, layout) in enumerate(zip(values, layouts, strict=True))]
        ours, theirs = both_ways(row, layouts)
        found = compiled(lambda *ts: jax.jvp(ours, ts, ts)[1])(*tensors)  # noqa: B023
        expected = jax.jvp(theirs, tuple(pieces), tuple(pieces))[1]
        for second, wanted in zip(found, expected, strict=True):
            assert_pieces(second, wanted, 1e-3, shown(layouts))


def test_every_smooth_op_is_in_the_table() -> None:
    assert set(SMOOTH) <= {row.name for row in TABLE}
