"""The rows of lamina.ops.nn: their oracles are plain jnp, written out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamina
from tests.ops.rows import Operand, Row


def _layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    away = x - x.mean(-1, keepdims=True)
    return away / jnp.sqrt((away**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def _rms_norm(x: Any, scale: Any, axis: Any = -1) -> Any:
    return x / jnp.sqrt((x**2).mean(axis, keepdims=True) + 1e-6) * scale


def _attention(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    k, v = (jnp.repeat(x, q.shape[-2] // k.shape[-2], axis=-2) for x in (k, v))
    scores = jnp.einsum("...tnc,...snc->...nts", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    if mask is not None:
        scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("...nts,...snc->...tnc", jax.nn.softmax(scores), v)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]


def _told_apart(unstack: Callable[..., Any]) -> Callable[..., Any]:
    """One tensor of the entries, in which none can be mistaken for another."""

    def op(x: Any) -> Any:
        first, second = unstack(x, axis=1)
        return first + second * 3

    return op


def _over_two(function: Callable[..., Any]) -> Callable[..., Any]:
    return partial(function, axis=(0, 1))


def _masked(attention: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v, mask: attention(q, k, v, mask=mask)


def _ids(*shape: int, below: int) -> Operand:
    return Operand(shape, "int32", 0, below - 1)


_CAUSAL = (Operand((2, 5, 4, 3)), Operand((2, 5, 2, 3)), Operand((2, 5, 2, 3)))

ROWS = (
    Row("softmax", (Operand((3, 4, 5)),), oracle=jax.nn.softmax),
    Row("softmax", (Operand((5, 4)),), partial(lamina.softmax, axis=0), partial(jax.nn.softmax, axis=0), "first"),
    Row(
        "softmax",
        (Operand((4, 3, 2)),),
        partial(lamina.softmax, axis=(0, 1)),
        partial(jax.nn.softmax, axis=(0, 1)),
        "two",
    ),
    Row("log_softmax", (Operand((3, 7)),), oracle=jax.nn.log_softmax),
    Row("layer_norm", (Operand((3, 5)), Operand((5,)), Operand((5,))), oracle=_layer_norm, tolerance=2e-4),
    Row("rms_norm", (Operand((3, 4, 5)), Operand((5,))), oracle=_rms_norm, tolerance=2e-4),
    Row(
        "rms_norm",
        (Operand((2, 3, 5)), Operand((3, 5))),
        partial(lamina.rms_norm, axis=(1, 2)),
        partial(_rms_norm, axis=(1, 2)),
        "two",
        tolerance=2e-4,
    ),
    Row("attention", (Operand((4, 2, 6)), Operand((5, 2, 6)), Operand((5, 2, 6))), oracle=_attention),
    Row("attention", _CAUSAL, partial(lamina.attention, causal=True), partial(_attention, causal=True), "causal"),
    Row(
        "attention",
        (Operand((2, 4, 3, 2)), Operand((2, 5, 1, 2)), Operand((2, 5, 1, 2)), Operand((2, 1, 4, 5), "bool")),
        _masked(lamina.attention),
        _masked(_attention),
        "masked",
        tolerance=1e-4,
    ),
    Row("embedding", (Operand((7, 5)), _ids(3, 4, below=7)), oracle=lambda table, ids: table[ids]),
    Row("softmax_cross_entropy_with_integer_labels", (Operand((3, 4, 7)), _ids(3, 4, below=7)), oracle=_cross_entropy),
    Row("unstack", (Operand((3, 2, 5)),), _told_apart(lamina.unstack), _told_apart(jnp.unstack)),
)
