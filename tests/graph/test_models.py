"""A tensor-parallel MLP and an attention block as graphs: the dense computation's values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import DeviceMesh, DistributedTensorType, Replicated, Sharded
from lamina.graph import Graph, InferenceSession, Model, Region, Signals, TensorType, distributed, ops
from tests.graph.helpers import ALL

HIDDEN, INNER, HEADS = 8, 24, 8


@dataclass(frozen=True)
class Written:
    """A graph, the dense function that it must equal, and the shapes and placements of its weights."""

    build: Callable[..., Any]
    dense: Callable[..., Any]
    weights: tuple[tuple[tuple[int, ...], Any], ...]


def mlp(x, up, down, signals):
    xs = ops.distributed_broadcast(x, signals)
    hidden = [ops.gelu(each @ w) for each, w in zip(xs, up, strict=True)]
    return ops.allreduce.sum([h @ w for h, w in zip(hidden, down, strict=True)], signals)[0]


def dense_mlp(x, up, down):
    return jax.nn.gelu(x @ up, approximate=False) @ down


def attention(x, wq, wk, wv, wo, signals):
    """Each device has some of the heads; the output projection is split along its rows."""
    xs = ops.distributed_broadcast(x, signals)
    mixed = []
    for each, q, k, v, o in zip(xs, wq, wk, wv, wo, strict=True):
        heads = q.shape[1] // 2
        split = [ops.permute((each @ w).reshape([each.shape[0], heads, 2]), (1, 0, 2)) for w in (q, k, v)]
        scores = ops.softmax(split[0] @ split[1].T * 2**-0.5)
        mixed.append(ops.permute(scores @ split[2], (1, 0, 2)).reshape([each.shape[0], q.shape[1]]) @ o)
    return ops.allreduce.sum(mixed, signals)[0] + x


def dense_attention(x, wq, wk, wv, wo):
    q, k, v = ((x @ w).reshape(x.shape[0], HEADS, 2).swapaxes(0, 1) for w in (wq, wk, wv))
    scores = jax.nn.softmax(q @ k.swapaxes(1, 2) * 2**-0.5, axis=-1)
    return (scores @ v).swapaxes(0, 1).reshape(x.shape[0], -1) @ wo + x


COLUMNS, ROWS = Sharded(1), Sharded(0)
BLOCKS = {
    "mlp": Written(mlp, dense_mlp, (((HIDDEN, INNER), COLUMNS), ((INNER, HIDDEN), ROWS))),
    "attention": Written(
        attention,
        dense_attention,
        (*(((HIDDEN, 2 * HEADS), COLUMNS),) * 3, ((2 * HEADS, HIDDEN), ROWS)),
    ),
}


@dataclass(frozen=True)
class Loaded:
    """One of the blocks over so many devices, with its data."""

    written: Written
    count: int

    @cached_property
    def mesh(self) -> DeviceMesh:
        return DeviceMesh(ALL[: self.count], (self.count,), ("tp",))

    @cached_property
    def signals(self) -> Signals:
        return Signals(self.mesh.devices)

    @cached_property
    def model(self) -> Model:
        kinds = [DistributedTensorType("float32", shape, self.mesh, [at]) for shape, at in self.written.weights]
        x = TensorType("float32", ("n", HIDDEN), self.mesh.devices[0])

        def build(x, *rest):
            weights, signals = rest[: len(kinds)], list(rest[len(kinds) :])
            return self.written.build(x, *weights, signals)

        return InferenceSession(self.mesh.devices).load(Graph("block", build, [x, *kinds, *self.signals.input_types()]))

    def data(self, n: int) -> list[np.ndarray]:
        generator = np.random.default_rng(n)
        return [
            generator.standard_normal(s).astype("float32") for s in ((n, HIDDEN), *(s for s, _ in self.written.weights))
        ]

    def spread(self, weights: list[np.ndarray]) -> list[lamina.Tensor]:
        specs = [[None, "tp"] if at == COLUMNS else ["tp"] for _, at in self.written.weights]
        return [lamina.shard(w, self.mesh, spec) for w, spec in zip(weights, specs, strict=True)]

    def __call__(self, x: Any, *weights: Any) -> Any:
        return self.model(x, *weights, *self.signals.buffers())[0]


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("given", ["tensors", "numpy", "locals"])
def test_equal_to_the_dense_computation(name, count, n, given):
    loaded = Loaded(BLOCKS[name], count)
    x, *weights = loaded.data(n)
    tensors = loaded.spread(weights)
    passed = {"tensors": tensors, "numpy": weights, "locals": [t.shards for t in tensors]}[given]
    np.testing.assert_allclose(loaded(x, *passed).numpy(), loaded.written.dense(x, *weights), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("way", ["eager", "jit", "jit of arrays"])
def test_gradients_equal_those_of_the_dense_computation(name, way):
    loaded = Loaded(BLOCKS[name], 4)
    x, *weights = loaded.data(3)
    every = tuple(range(1 + len(weights)))

    def loss(x, *weights):
        return (loaded(x, *weights).jax() ** 2).sum()

    gradient = jax.grad(loss, every) if way == "eager" else jax.jit(jax.grad(loss, every))
    found = gradient(jnp.asarray(x), *(map(jnp.asarray, weights) if way == "jit of arrays" else loaded.spread(weights)))
    expected = jax.grad(lambda *all_of: (loaded.written.dense(*all_of) ** 2).sum(), every)(x, *weights)
    for one, want in zip(found, expected, strict=True):
        value = one.numpy() if isinstance(one, lamina.Tensor) else np.asarray(one)
        np.testing.assert_allclose(value, want, rtol=3e-4, atol=3e-4)


@pytest.mark.parametrize("name", BLOCKS)
def test_it_is_one_program_over_all_devices(name):
    stages = Loaded(BLOCKS[name], 4).model.stages(n=3)
    assert len([stage for stage in stages if isinstance(stage, Region)]) == 1


@pytest.mark.parametrize("in_jit", [False, True])
def test_forward_mode_hessians_and_vmap(in_jit):
    loaded = Loaded(BLOCKS["mlp"], 2)
    x, *weights = map(jnp.asarray, loaded.data(2))
    tensors = weights if in_jit else loaded.spread(map(np.asarray, weights))

    def f(x):
        return (loaded(x, *tensors).jax() ** 2).sum()

    def dense(x):
        return (loaded.written.dense(x, *weights) ** 2).sum()

    wrap = jax.jit if in_jit else lambda function: function
    several = jnp.stack([x, 2 * x])
    for transform in (
        lambda f: jax.jvp(f, (x,), (jnp.ones_like(x),)),
        lambda f: jax.hessian(f)(x),
        lambda f: jax.vmap(f)(several),
    ):
        got, want = wrap(lambda transform=transform: transform(f))(), transform(dense)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(one, other, rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("in_jit", [False, True])
def test_gradients_of_reductions_go_to_the_winners(op, in_jit):
    mesh = DeviceMesh(ALL[:3], (3,), ("x",))
    kind = DistributedTensorType("float32", (6, 2), mesh, [Sharded(0)])
    graph = Graph("g", lambda xs: distributed(getattr(ops.allreduce, op)(xs), mesh, [Replicated()]), [kind])
    model = InferenceSession().load(graph)
    value = np.random.default_rng(1).integers(0, 3, (6, 2)).astype("float32")  # with ties
    weights = np.arange(4, dtype="float32").reshape(2, 2)
    x = lamina.shard(value, mesh, ["x"])

    def loss(x):
        return (model(x)[0].jax() * weights).sum()

    def dense(x):
        reduce = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}[op]
        return (reduce(x.reshape(3, 2, 2), axis=0) * weights).sum()

    gradient = jax.jit(jax.grad(loss)) if in_jit else jax.grad(loss)
    np.testing.assert_allclose(gradient(x).numpy(), jax.grad(dense)(value), rtol=1e-5)


def test_uneven_and_partial_tensors_enter_and_leave():
    """Local types of 10 over 4 are 3, 3, 2, 2; a Partial's pieces enter as they are."""
    mesh = DeviceMesh(ALL[:4], (4,), ("x",))
    value = np.random.default_rng(0).standard_normal((10, 3)).astype("float32")
    rows = DistributedTensorType("float32", ("n", 3), mesh, [Sharded(0)])
    graph = Graph("g", lambda xs: distributed([ops.exp(x) for x in xs], mesh, [Sharded(0)]), [rows])
    model = InferenceSession().load(graph)
    for n in (10, 8, 3):
        x = lamina.shard(value[:n], mesh, ["x"])
        (out,) = model(x)
        assert out.sharding == x.sharding
        np.testing.assert_allclose(out.numpy(), np.exp(value[:n]), rtol=1e-6)
        for way in (jax.grad, lambda f: jax.jit(jax.grad(f))):
            gradient = way(
                lambda x: (model(x)[0].shards[0] if False else lamina.all_gather(model(x)[0]).jax() ** 2).sum()
            )
            np.testing.assert_allclose(gradient(x).numpy(), 2 * np.exp(2 * value[:n]), rtol=1e-4)
    partial = DistributedTensorType("float32", (4, 3), mesh, [lamina.Partial()])
    reduced = Graph("r", lambda xs: distributed(ops.allreduce.sum(xs), mesh, [Replicated()]), [partial])
    whole = InferenceSession().load(reduced)(lamina.shard(value[:4], mesh, [], partial=["x"]))[0]
    np.testing.assert_allclose(whole.numpy(), value[:4], rtol=1e-6)


def test_a_tensor_over_a_grid_of_devices():
    """The collectives of a graph see the devices of a (2, 2) mesh as a row of four."""
    mesh = DeviceMesh(ALL[:4], (2, 2), ("a", "b"))
    value = np.arange(32, dtype="float32").reshape(8, 4)
    kind = DistributedTensorType("float32", (8, 4), mesh, lamina.NamedMapping(mesh, ["b", "a"]))
    graph = Graph("g", lambda xs: ops.allreduce.sum([ops.reshape(x, (8,)) for x in xs]), [kind])
    found = InferenceSession().load(graph)(lamina.shard(value, mesh, ["b", "a"]))
    blocks = [value[4 * j : 4 * j + 4, 2 * i : 2 * i + 2].ravel() for i in range(2) for j in range(2)]
    for one in found:
        np.testing.assert_array_equal(one.numpy(), sum(blocks))
