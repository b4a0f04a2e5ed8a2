"""Into a vocabulary and out of it: rows of an embedding table, and the cross entropy of its logits.

A vocabulary that is split over devices stays so: each looks up, or adds up, what it has.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.ops import elementwise, reduction
from lamina.ops.arguments import as_data
from lamina.ops.compute import Kernel, compute, settled
from lamina.ops.dims import as_dim
from lamina.ops.reduction import floating, is_split, logsumexp
from lamina.rules.nn import lookup, picked


def _look_up(here: Any, table: Any, ids: Any) -> Any:
    held = here.operands[0]
    row = ids - here.start(held, 0) if held.layout.dims[0] else ids
    known = (row >= 0) & (row < here.length(held, 0))
    found = jnp.take(table, row, axis=0, mode="clip")
    return jnp.where(jnp.expand_dims(known, tuple(range(ids.ndim, found.ndim))), found, jnp.zeros((), table.dtype))


def _pick(here: Any, values: Any, ids: Any, dim: int) -> Any:
    held = here.operands[0]
    where = jnp.expand_dims(here.positions(held, dim), [d for d in range(values.ndim) if d != dim])
    hits = where == jnp.expand_dims(ids, dim)
    return jnp.sum(jnp.where(hits, values, jnp.zeros((), values.dtype)), dim)


def _cross_entropy(here: Any, logits: Any, labels: Any, dim: int) -> Any:
    peak = jnp.max(logits, dim, keepdims=True)
    lowered = logits - jnp.where(jnp.isfinite(peak), peak, 0)
    total = jnp.log(jnp.sum(jnp.exp(lowered), dim))
    return total - _pick(here, lowered, labels, dim)


_EMBEDDING = Kernel("embedding", lookup, _look_up, lambda dtype: 0)
_PICKED = Kernel("pick", lambda shapes, dim: picked(shapes, dim, whole=False), _pick, lambda dtype: 0)
_CROSS_ENTROPY = Kernel(
    "softmax_cross_entropy", lambda shapes, dim: picked(shapes, dim, whole=True), _cross_entropy, lambda dtype: 0
)
KERNELS = {kernel.name: kernel for kernel in (_EMBEDDING, _PICKED, _CROSS_ENTROPY)}


def embedding(table: Any, ids: Any, *, out_sharding: Any = None) -> Any:
    """The rows of `table` that the integers `ids` name; zeros for numbers that name none.

    If the table's rows are split, each device finds those that it has, and the result is Partial: nothing but looked up
    rows ever moves.  `out_sharding` says how the result lies.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("tp",))
    >>> table = lamina.shard(np.arange(8.0).reshape(4, 2), mesh, ["tp"])
    >>> lamina.embedding(table, np.array([3, 0])).tolist(), lamina.embedding(table, np.array([3, 0])).placements
    ([[6.0, 7.0], [0.0, 1.0]], (Partial(SUM),))
    """
    return compute(_EMBEDDING, (table, _integers(ids, "embedding(ids)")), (), out_sharding)


def softmax_cross_entropy_with_integer_labels(logits: Any, labels: Any, axis: int = -1) -> Any:
    """-log(softmax(logits)) of each run's label, as in optax.  Along a split dim a maximum and sums per run move.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("tp",))
    >>> logits = lamina.shard(np.zeros((3, 8), "float32"), mesh, [None, "tp"])
    >>> loss = lamina.softmax_cross_entropy_with_integer_labels(logits, np.array([0, 7, 1]))
    >>> np.allclose(loss.numpy(), np.log(8.0))
    True
    """
    x = floating(logits)
    dim = as_dim(axis, x.ndim)
    labels = _integers(labels, "softmax_cross_entropy_with_integer_labels(labels)")
    if not is_split(x, (dim,)):
        return compute(_CROSS_ENTROPY, (x, labels), (dim,))
    x = settled(reduction.KERNELS["max"], x, ((dim,), True))
    chosen = compute(_PICKED, (x, labels), (dim,))
    return elementwise.subtract(logsumexp(x, dim), chosen)


def _integers(ids: Any, argument: str) -> Any:
    """Ids as they are, if they are integers."""
    x = as_data(ids, argument)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise LayoutError(with_fix(f"{argument} must be integers, not {x.dtype.name}", "cast them: x.astype('int32')"))
    return x


__all__ = ["embedding", "softmax_cross_entropy_with_integer_labels"]
