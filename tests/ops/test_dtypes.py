"""Ops on drawn shapes, dtypes, meshes and layouts: empty, 0-d and tiny dims, every dtype that jnp takes there."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina
from tests.engine.oracles import mesh_of
from tests.ops.checks import assert_value
from tests.ops.laying import tensor_of
from tests.ops.rows import Operand
from tests.strategies import DTYPES, layouts, mesh_axes, ops_for, shapes

FLOATS = ("float16", "bfloat16", "float32", "complex64")
ORDERED = tuple(dtype for dtype in DTYPES if dtype != "complex64")
# op → the dtypes that it takes
UNARY = {
    "negative": (*FLOATS, "int8", "int32"),
    "logical_not": DTYPES,
    "square": FLOATS,
    "isnan": FLOATS,
    "sign": FLOATS,
}
BINARY = {
    "add": DTYPES,
    "multiply": DTYPES,
    "maximum": ORDERED,
    "equal": DTYPES,
    "less": ORDERED,
    "logical_and": DTYPES,
}
REDUCED = {
    "sum": DTYPES,
    "max": ORDERED,
    "min": ORDERED,
    "any": DTYPES,
    "all": DTYPES,
    "prod": ("bool", "int32", "float32"),
}
LOOSE = {"float16": 2e-2, "bfloat16": 6e-2}


@settings(max_examples=12)
@given(st.data())
def test_one_operand(data: st.DataObject) -> None:
    op, axes = data.draw(st.sampled_from(sorted(UNARY))), data.draw(mesh_axes(6, 2))
    dtype, shape = data.draw(st.sampled_from(UNARY[op])), data.draw(shapes(data.draw(st.integers(0, 2)), 7))
    x = Operand(shape, dtype, low=-2, high=2, ties=True).draw(1)
    layout = data.draw(layouts(axes, len(shape), ops=ops_for(dtype)))
    found = getattr(lamina, op)(tensor_of(x, mesh_of(axes, "simulated"), layout))
    assert_value(found, getattr(jnp, op)(jnp.asarray(x)), LOOSE.get(dtype, 1e-5), f"{op} {layout}")


@settings(max_examples=18)
@given(st.data())
def test_two_operands(data: st.DataObject) -> None:
    """Of two dtypes, one of which may be broadcast."""
    op, axes = data.draw(st.sampled_from(sorted(BINARY))), data.draw(mesh_axes(6, 2))
    dtypes = [data.draw(st.sampled_from(BINARY[op])) for _ in range(2)]
    full = data.draw(shapes(data.draw(st.integers(0, 2)), 7))
    cut = data.draw(st.integers(0, len(full)))
    other = tuple(data.draw(st.sampled_from([size, 1])) for size in full[cut:])
    mesh = mesh_of(axes, "simulated")
    values = [Operand(shape, dtype, low=-2, high=2, ties=True).draw(i) for i, (shape, dtype) in
              enumerate(zip((full, other), dtypes, strict=True))]  # fmt: skip
    lies = [data.draw(layouts(axes, x.ndim, ops=ops_for(x.dtype))) for x in values]
    tensors = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(values, lies, strict=True))]
    expected = getattr(jnp, op)(*map(jnp.asarray, values))
    loose = max(LOOSE.get(dtype, 1e-5) for dtype in dtypes)
    assert_value(getattr(lamina, op)(*tensors), expected, loose, f"{op} {lies}")


@settings(max_examples=15)
@given(st.data())
def test_reductions(data: st.DataObject) -> None:
    op, axes = data.draw(st.sampled_from(sorted(REDUCED))), data.draw(mesh_axes(6, 2))
    dtype, shape = data.draw(st.sampled_from(REDUCED[op])), data.draw(shapes(data.draw(st.integers(1, 3)), 6))
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    if op in ("max", "min") and 0 in [shape[d] for d in dims]:
        return
    x = Operand(shape, dtype, low=-2, high=2, ties=True).draw(1)
    layout = data.draw(layouts(axes, len(shape), ops=ops_for(dtype)))
    found = getattr(lamina, op)(tensor_of(x, mesh_of(axes, "simulated"), layout), axis=dims)
    assert_value(found, getattr(jnp, op)(jnp.asarray(x), axis=dims), LOOSE.get(dtype, 1e-5), f"{op} {dims} {layout}")


@settings(max_examples=10)
@given(st.data())
def test_products(data: st.DataObject) -> None:
    axes, dtype = data.draw(mesh_axes(6, 2)), data.draw(st.sampled_from(("int32", "float32", "complex64", "bfloat16")))
    m, k, n = (data.draw(st.sampled_from([0, 1, 2, 5, 6])) for _ in range(3))
    values = [Operand(shape, dtype, low=-2, high=2, ties=True).draw(i) for i, shape in enumerate([(m, k), (k, n)])]
    lies = [data.draw(layouts(axes, 2, ops=ops_for(dtype))) for _ in values]
    mesh = mesh_of(axes, "simulated")
    tensors = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(values, lies, strict=True))]
    expected = np.asarray(values[0], "complex128" if dtype == "complex64" else "float64") @ values[1].astype(
        "complex128" if dtype == "complex64" else "float64"
    )
    assert_value(lamina.matmul(*tensors), jnp.asarray(expected.astype(values[0].dtype)), LOOSE.get(dtype, 1e-5))
