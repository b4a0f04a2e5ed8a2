"""The model of examples/train.py in plain JAX: jnp on whole arrays, `jax.jit`, NamedShardings and constraints.

It is written as one would who knows JAX well: the same layouts for the weights, the stream constrained between layers
and inside of them, and the cross entropy such that the partitioner needs no gather of the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from examples.train import STREAM, Config

Weights = dict[str, Any]


def stepper(config: Config, mesh: jax.sharding.Mesh) -> Callable[[Any, Any], Any]:
    """As `examples.train.stepper`, on plain arrays."""

    def lying(x: Any, *entries: Any) -> Any:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*entries)))

    def norm(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale

    def block(x: Any, layer: Weights) -> Any:
        normed = lying(norm(x, layer["attention_norm"]), "dp", None, None)
        qkv = lying(jnp.einsum("btd,cdhk->cbthk", normed, layer["qkv"]), None, "dp", None, "tp", None)
        seen = lying(jax.nn.dot_product_attention(*qkv, is_causal=True), "dp", None, "tp", None)
        x = x + lying(jnp.einsum("bthk,hkd->btd", seen, layer["out"]), *STREAM)
        normed = lying(norm(x, layer["mlp_norm"]), "dp", None, None)
        hidden = jax.nn.gelu(lying(normed @ layer["up"], "dp", None, "tp"))
        return x + lying(hidden @ layer["down"], *STREAM)

    def loss_of(weights: Weights, text: Any) -> Any:
        given, wanted = text
        x = lying(weights["characters"][given], *STREAM) + weights["positions"]
        for layer in weights["layers"]:
            x = block(x, layer)
        x = lying(norm(x, weights["final_norm"]), "dp", None, None)
        logits = lying(x @ weights["logits"], "dp", None, "tp")
        hits = jax.nn.one_hot(wanted, logits.shape[-1], dtype=logits.dtype)
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.sum(logits * hits, -1))

    @partial(jax.jit, donate_argnums=0)
    def step(state: Any, text: Any) -> tuple[Any, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(state["weights"], text)
        count = state["step"] + 1
        rate = config.rate * jnp.minimum(1, count / config.warmup)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], gradients)

        def moved(w: Any, m: Any, s: Any) -> Any:
            direction = m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.99**count)) + 1e-8)
            return w - rate * (direction + config.decay * w)

        weights = jax.tree.map(moved, state["weights"], mean, square)
        return {"step": count, "weights": weights, "mean": mean, "square": square}, loss

    return step
