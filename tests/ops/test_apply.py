"""`lamina.apply`: any function of JAX, on every layout, equals the function on the global values."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina.errors import ImplicitReshard, LayoutError
from lamina.sharding.layout import Layout
from tests.engine.oracles import compiled, mesh_of, on_both_kinds
from tests.ops.checks import assert_pieces, assert_value
from tests.ops.laying import pieces_of, read, tensor_of
from tests.ops.test_spmd import every_layout, on_both_meshes
from tests.strategies import Mesh

A = (np.arange(20, dtype="float32").reshape(4, 5) + 1) / 8


def both(x, y, scale=1.0):
    return {"fft": jnp.abs(jnp.fft.fft(x, axis=0)) * scale, "outer": [jnp.kron(x[0], y)]}


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=12)
def test_any_function_on_any_layout(axes: Mesh, layout: Layout, kind: str) -> None:
    mesh = mesh_of(axes, kind)
    made = lamina.apply(both, tensor_of(A, mesh, layout), np.arange(3.0, dtype="float32"), scale=2.0)
    expected = both(A, np.arange(3.0, dtype="float32"), 2.0)
    assert_value(made["fft"], expected["fft"])
    assert_value(made["outer"][0], expected["outer"][0])
    assert made["fft"].layout.is_replicated


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=12)
def test_results_lie_as_asked(axes: Mesh, layout: Layout, kind: str) -> None:
    mesh = mesh_of(axes, kind)
    out = lamina.NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial))
    made = lamina.apply(jnp.sin, tensor_of(A, mesh, layout), out=out)
    assert made.layout == layout
    assert_value(made, jnp.sin(A))


@on_both_kinds
@every_layout
@pytest.mark.exhaustive(keep=24)
def test_gradients(axes: Mesh, layout: Layout, kind: str) -> None:
    mesh = mesh_of(axes, kind)

    def loss(x):
        return lamina.shard(lamina.sum(lamina.apply(jnp.cumsum, x) * np.arange(20, dtype="float32")), mesh, []).jax()

    def plain(pieces):
        return (jnp.cumsum(read(pieces, layout)) * jnp.arange(20.0)).sum()

    gradient = compiled(jax.grad(loss))(tensor_of(A, mesh, layout))
    assert_pieces(gradient, jax.grad(plain)(pieces_of(A, layout)), 1e-4)


@on_both_kinds
@on_both_meshes
def test_under_jit_and_vmap(axes: Mesh, kind: str) -> None:
    mesh = mesh_of(axes, kind)
    x = tensor_of(np.stack([A, 2 * A]), mesh, Layout(axes, [(), ("x",), ("y",)]))
    made = compiled(jax.vmap(lambda x: lamina.apply(jnp.cumsum, x, axis=0)))(x)
    assert_value(made, np.cumsum(np.stack([A, 2 * A]), 1))


def test_what_it_moves_can_be_refused() -> None:
    mesh = mesh_of({"x": 2, "y": 2}, "simulated")
    uneven = tensor_of(A, mesh, Layout({"x": 2, "y": 2}, [("x",), ("y",)]))
    with lamina.on_reshard("warn"), pytest.warns(ImplicitReshard, match=r"^apply moves operand 0, \[4, 5\] lying as"):
        lamina.apply(jnp.cumsum, uneven)
    even = tensor_of(A, mesh, Layout({"x": 2, "y": 2}, [("x",), ()]))
    with lamina.on_reshard("raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        lamina.apply(jnp.cumsum, even)


def test_what_cannot_be_is_said() -> None:
    meshes = [mesh_of({"x": 2}, "simulated"), mesh_of({"x": 3}, "simulated")]
    x, y = (tensor_of(A, mesh, Layout(mesh.axes, [("x",), ()])) for mesh in meshes)
    with pytest.raises(LayoutError, match="^apply: the operands lie on different meshes: "):
        lamina.apply(jnp.add, x, y)
    with pytest.raises(LayoutError, match="no Tensor is among the arguments\n  fix: lamina.shard"):
        lamina.apply(jnp.sin, A)
    with pytest.raises(LayoutError, match=r"^apply\(out\)\(dim_specs="):
        lamina.apply(jnp.sin, x, out=["z"])
