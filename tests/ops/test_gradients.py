"""The gradients of every differentiable op in the table are those of plain jnp, with respect to every piece."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import lamina
from tests.engine.oracles import compiled, mesh_of
from tests.ops.checks import assert_pieces
from tests.ops.laying import layout_tuples, pieces_of, read, shown, tensor_of
from tests.ops.rows import Row
from tests.ops.table import TABLE
from tests.ops.test_values import cases, count  # noqa: F401
from tests.strategies import Mesh

DIFFERENTIABLE = tuple(row for row in TABLE if row.differentiable)


@cases(rows=DIFFERENTIABLE, every=4)
def test_reverse(row: Row, axes: Mesh, kind: str, count: int) -> None:  # noqa: F811
    mesh, values = mesh_of(axes, kind), row.values()
    for layouts in layout_tuples(row, axes, count, f"grad {kind}"):
        laid = list(zip(values, layouts, strict=True))
        tensors = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(laid)]
        pieces = [pieces_of(x, layout, i) for i, (x, layout) in enumerate(laid)]
        ours, theirs = both_ways(row, layouts)
        found, expected = compiled(ours)(*tensors), theirs(*pieces)
        for gradient, wanted, i in zip(found, expected, row.differentiable, strict=True):
            assert gradient.layout == layouts[i]
            assert_pieces(gradient, wanted, 5 * row.tolerance, f"operand {i} of {shown(layouts)}")


def both_ways(row: Row, layouts: Any) -> tuple[Any, Any]:
    """The gradients of the weighed sum of the result: of ours, and of plain jnp on the pieces."""

    def weighed(result: Any) -> Any:
        weights = np.cos(np.arange(np.size(result), dtype="float32")).reshape(np.shape(result)) + 0.5
        ours = isinstance(result, lamina.Tensor)
        return lamina.sum(lamina.multiply(result, weights)) if ours else (result * weights).sum()

    def ours(*tensors: Any) -> Any:
        total = weighed(row.run(*tensors))
        return jax.numpy.real(lamina.shard(total, total.mesh, []).jax())

    def theirs(*pieces: Any) -> Any:
        return jax.numpy.real(weighed(row.expected(*map(read, pieces, layouts))))

    which = tuple(row.differentiable)
    return jax.grad(ours, which), jax.grad(theirs, which)
