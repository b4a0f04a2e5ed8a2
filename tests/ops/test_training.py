"""What training needs of JAX's transformations: scan over layers, checkpoint, vmap, optimizers of optax, on Tensors."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import lamina
from tests.engine.oracles import on_both_kinds

LAYERS, BATCH, WIDTH = 3, 6, 10  # neither divides by the mesh's 4
AXES = {"dp": 2, "tp": 4}


def mesh_of(kind: str) -> lamina.DeviceMesh:
    make = lamina.DeviceMesh.create if kind == "real" else lamina.DeviceMesh.simulated
    return make(tuple(AXES.values()), tuple(AXES))


def values() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = (BATCH, WIDTH), (LAYERS, WIDTH, 7), (LAYERS, 7, WIDTH)
    x, up, down = (rng.normal(size=shape).astype("float32") for shape in shapes)
    return x, up / 3, down / 3


def tensors(mesh: lamina.DeviceMesh) -> tuple[lamina.Tensor, ...]:
    specs = [["dp"], [None, None, "tp"], [None, "tp"]]
    return tuple(lamina.shard(value, mesh, spec) for value, spec in zip(values(), specs, strict=True))


def layer(x: Any, weights: Any) -> Any:
    up, down = weights
    return lamina.shard(x + lamina.tanh(x @ up) @ down, x.mesh, ["dp"])


def plain(x: Any, up: Any, down: Any) -> Any:
    for i in range(LAYERS):
        x = x + jnp.tanh(x @ up[i]) @ down[i]
    return (x**2).mean()


def scanned(x: Any, up: Any, down: Any, body: Any = layer) -> Any:
    x, _ = jax.lax.scan(lambda x, weights: (body(x, weights), None), x, (up, down))
    loss = lamina.mean(lamina.square(x))
    return lamina.shard(loss, loss.mesh, []).jax()


@on_both_kinds
@pytest.mark.parametrize("body", [layer, jax.checkpoint(layer)], ids=["plain", "checkpointed"])
def test_scan_over_layers(kind, body):
    given = tensors(mesh_of(kind))
    loss, gradients = jax.jit(jax.value_and_grad(lambda *w: scanned(*w, body=body), (0, 1, 2)))(*given)
    expected, dense = jax.value_and_grad(plain, (0, 1, 2))(*values())
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for found, wanted, weight in zip(gradients, dense, given, strict=True):
        assert found.sharding == weight.sharding
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_layers_that_are_scanned_communicate_as_one_layer_does():
    x, up, down = tensors(mesh_of("real"))

    def loss(up: Any, down: Any) -> Any:
        return scanned(x, up, down)

    text = jax.jit(loss).lower(up, down).as_text()
    assert text.count("stablehlo.all_reduce") == 1 + 1  # in the loop's body, and for the mean


@on_both_kinds
def test_vmap_over_models(kind):
    mesh = mesh_of(kind)
    x, up, down = tensors(mesh)

    def one(up: Any, down: Any) -> Any:
        return layer(x, (up, down))

    found = jax.jit(jax.vmap(one))(up, down)
    value, *weights = values()
    expected = [value + np.tanh(value @ u) @ d for u, d in zip(*weights, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


@on_both_kinds
def test_optimizer_state_lies_as_the_weights_do(kind):
    """Uneven weights too: the padding is zero, and stays so."""
    optimizer = optax.adamw(1e-2)
    x, *weights = tensors(mesh_of(kind))
    value, *dense = values()

    def step(weights: Any, state: Any, loss: Any) -> tuple[Any, Any]:
        gradients = jax.grad(loss)(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state

    state, plain_state = optimizer.init(weights), optimizer.init(dense)
    ours, theirs = (jax.jit(step, static_argnums=2) for _ in range(2))
    for _ in range(2):
        weights, state = ours(weights, state, lambda w: scanned(x, *w))
        dense, plain_state = theirs(dense, plain_state, lambda w: plain(value, *w))
    for found, expected in zip(weights, dense, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-5)
    held = [leaf for leaf in jax.tree.leaves(state, is_leaf=is_tensor) if is_tensor(leaf)]
    assert held and {str(leaf.sharding) for leaf in held} == {str(weight.sharding) for weight in weights}
    assert all(leaf._array.sharding.is_equivalent_to(leaf._held.sharding, leaf._array.ndim) for leaf in held)


def is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, lamina.Tensor)
