"""Softmax and its kin, norms, attention, embeddings, cross entropy: values and gradients, on every layout.

The oracle is plain jnp on the global value.  `CASES` is the table: an op without a row fails `test_every_op_has_a_row`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina.ops import nn
from lamina.sharding import ReduceOp
from lamina.sharding.layout import Layout
from tests.engine.oracles import KINDS, laid, mesh_of
from tests.strategies import all_layouts

MESHES = ({"x": 2, "y": 2}, {"x": 2, "y": 3})


@dataclass(frozen=True)
class Case:
    """`ours` and `plain` on operands of `shapes`; those in `integers` are ids below the number."""

    ours: Callable[..., Any]
    plain: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    integers: dict[int, int] = field(default_factory=dict)
    op: str = ""  # the op that is tested, where `ours` isn't it


def sum_of(parts: Any) -> Any:
    """A sum in which no two of the parts can be mistaken for each other."""
    return parts[0] + parts[1] * 3


def plain_layer_norm(x: Any, scale: Any, bias: Any, axis: int = -1) -> Any:
    away = x - x.mean(axis, keepdims=True)
    return away / jnp.sqrt((away**2).mean(axis, keepdims=True) + 1e-5) * scale + bias


def plain_rms_norm(x: Any, scale: Any, axis: Any = -1) -> Any:
    return x / jnp.sqrt((x**2).mean(axis, keepdims=True) + 1e-6) * scale


def plain_attention(q: Any, k: Any, v: Any, causal: bool = False, mask: Any = None) -> Any:
    q, k, v = (x[None] if x.ndim == 3 else x for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[2] // k.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("btnc,bsnc->bnts", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    if mask is not None:
        scores = jnp.where(mask, scores, -1e30)
    return jnp.einsum("bnts,bsnc->btnc", jax.nn.softmax(scores), v)


def plain_cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]


MASK = np.random.default_rng(3).integers(0, 2, (3, 1, 4, 5)) + np.eye(4, 5, dtype=int) > 0
CASES = {
    "softmax": Case(lamina.softmax, jax.nn.softmax, ((3, 4, 5),)),
    "softmax_first": Case(partial(lamina.softmax, axis=0), partial(jax.nn.softmax, axis=0), ((5, 4),)),
    "softmax_two": Case(partial(lamina.softmax, axis=(0, 1)), partial(jax.nn.softmax, axis=(0, 1)), ((4, 3, 2),)),
    "log_softmax": Case(lamina.log_softmax, jax.nn.log_softmax, ((3, 7),)),
    "layer_norm": Case(lamina.layer_norm, plain_layer_norm, ((3, 4, 5), (5,), (5,))),
    "rms_norm": Case(lamina.rms_norm, plain_rms_norm, ((3, 4, 5), (5,))),
    "rms_norm_two": Case(
        partial(lamina.rms_norm, axis=(1, 2)), partial(plain_rms_norm, axis=(1, 2)), ((2, 3, 5), (3, 5))
    ),
    "attention": Case(lamina.attention, plain_attention, ((3, 4, 2, 6), (3, 5, 2, 6), (3, 5, 2, 6))),
    "attention_causal": Case(
        partial(lamina.attention, causal=True),
        partial(plain_attention, causal=True),
        ((2, 7, 4, 3), (2, 7, 2, 3), (2, 7, 2, 3)),
    ),
    "attention_masked": Case(
        partial(lamina.attention, mask=MASK),
        partial(plain_attention, mask=MASK),
        ((3, 4, 3, 2), (3, 5, 1, 2), (3, 5, 1, 2)),
    ),
    "embedding": Case(lamina.embedding, lambda table, ids: table[ids], ((7, 5), (3, 4)), {1: 7}),
    "unstack": Case(
        lambda x: sum_of(lamina.unstack(x, 1)), lambda x: sum_of(jnp.unstack(x, axis=1)), ((3, 2, 5),), op="unstack"
    ),
    "softmax_cross_entropy_with_integer_labels": Case(
        lamina.softmax_cross_entropy_with_integer_labels, plain_cross_entropy, ((3, 4, 7), (3, 4)), {1: 7}
    ),
}


def members() -> list[Any]:
    """Each case, on each layout of its first operand; the other operands' layouts are any, but always the same."""
    found = []
    for name, case in CASES.items():
        for axes in MESHES:
            for layout in all_layouts(axes, len(case.shapes[0]), [ReduceOp.SUM]):
                for kind in KINDS:
                    found.append(pytest.param(case, layout, kind, id=f"{name} {layout} {kind}"))
    return found


def some_layout(layout: Layout, rank: int, salt: str) -> Layout:
    others = all_layouts(dict(layout.axes), rank, [ReduceOp.SUM])
    return others[zlib.crc32(f"{layout} {rank} {salt}".encode()) % len(others)]


def operands(case: Case, layout: Layout, kind: str) -> tuple[list[np.ndarray], list[lamina.Tensor]]:
    random = np.random.default_rng(0)
    mesh = mesh_of(dict(layout.axes), kind)
    values, tensors = [], []
    for i, shape in enumerate(case.shapes):
        value = random.normal(size=shape).astype("float32")
        lies = layout if i == 0 else some_layout(layout, len(shape), str(i))
        if i in case.integers:
            value = random.integers(0, case.integers[i], shape).astype("int32")
            lies = lies.replace(partial=())
        values.append(value)
        tensors.append(laid(value, mesh, lies))
    return values, tensors


@pytest.mark.exhaustive(keep=40)
@pytest.mark.parametrize(("case", "layout", "kind"), members())
def test_value_and_gradient_are_the_dense_ones(case, layout, kind):
    values, tensors = operands(case, layout, kind)
    expected = case.plain(*values)
    weights = np.random.default_rng(1).normal(size=expected.shape).astype("float32")
    wanted = tuple(
        i
        for i, t in enumerate(tensors)
        if not t.layout.partial and i not in case.integers  # the gradient of pieces is per piece
    )

    def loss(*given: Any) -> tuple[Any, Any]:
        made = case.ours(*given)
        total = lamina.sum(made * weights)
        return lamina.shard(total, total.mesh, []).jax(), made

    def plain_loss(*given: Any) -> Any:
        return (case.plain(*given) * weights).sum()

    if wanted:
        (_, made), gradients = jax.jit(jax.value_and_grad(loss, wanted, has_aux=True))(*tensors)
    else:
        (_, made), gradients = jax.jit(loss)(*tensors), ()
    np.testing.assert_allclose(made.numpy(), expected, rtol=2e-5, atol=2e-5)
    for i, found in zip(wanted, gradients, strict=True):
        assert found.layout == tensors[i].layout
        dense = jax.grad(plain_loss, i)(*values)
        np.testing.assert_allclose(found.numpy(), dense, rtol=1e-4, atol=1e-4)


def test_every_op_has_a_row():
    ours = [getattr(case.ours, "func", case.ours) for case in CASES.values()]
    rows = {case.op or made.__name__ for case, made in zip(CASES.values(), ours, strict=True)}
    assert rows == set(nn.__all__)
