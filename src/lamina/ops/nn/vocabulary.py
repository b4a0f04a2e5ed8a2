"""Into a vocabulary and out of it: rows of an embedding table, and the cross entropy of its logits.

A vocabulary that is split over devices stays so: each looks up, or adds up, what it has.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.ops import elementwise, reduction
from lamina.ops.arguments import as_data
from lamina.ops.compute import Kernel, compute, settled
from lamina.ops.dims import as_dim
from lamina.ops.nn.unstacking import unstack
from lamina.ops.reduction import finite_peak, floating, is_split, resolved
from lamina.rules.nn import labelled, labelled_sums, lookup


def _look_up(here: Any, table: Any, ids: Any) -> Any:
    held = here.operands[0]
    row = ids - here.start(held, 0) if held.layout.dims[0] else ids
    known = (row >= 0) & (row < here.length(held, 0))
    found = jnp.take(table, row, axis=0, mode="clip")
    return jnp.where(jnp.expand_dims(known, tuple(range(ids.ndim, found.ndim))), found, jnp.zeros((), table.dtype))


def _cross_entropy(here: Any, logits: Any, labels: Any, dim: int) -> Any:
    peak = jnp.max(logits, dim, keepdims=True)
    lowered = logits - jax.lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
    total, chosen = _sums(here, lowered, labels, dim)
    return jnp.log(total) - chosen


def _both_sums(here: Any, logits: Any, peak: Any, labels: Any, dim: int) -> Any:
    """The sum of exp, and the label's own, in one tensor: they are reduced together."""
    return jnp.stack(_sums(here, logits - peak, labels, dim))


def _sums(here: Any, lowered: Any, labels: Any, dim: int) -> tuple[Any, Any]:
    held = here.operands[0]
    where = jnp.expand_dims(here.positions(held, dim), [d for d in range(lowered.ndim) if d != dim])
    hits = where == jnp.expand_dims(labels, dim)
    grown = jnp.where(where < held.shape[dim], jnp.exp(lowered), 0)
    return jnp.sum(grown, dim), jnp.sum(jnp.where(hits, lowered, 0), dim)


_EMBEDDING = Kernel("embedding", lookup, _look_up, lambda dtype: 0)
_CROSS_ENTROPY = Kernel("softmax_cross_entropy", labelled, _cross_entropy, lambda dtype: 0)
_BOTH_SUMS = Kernel("softmax_cross_entropy_sums", labelled_sums, _both_sums, lambda dtype: 0)
KERNELS = {kernel.name: kernel for kernel in (_EMBEDDING, _CROSS_ENTROPY, _BOTH_SUMS)}


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
    sums = compute(_BOTH_SUMS, (x, finite_peak(x, (dim,)), labels), (dim,))
    total, chosen = unstack(resolved(sums))
    return elementwise.subtract(elementwise.log(total), chosen)


def _integers(ids: Any, argument: str) -> Any:
    """Ids as they are, if they are integers."""
    x = as_data(ids, argument)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise LayoutError(with_fix(f"{argument} must be integers, not {x.dtype.name}", "cast them: x.astype('int32')"))
    return x


__all__ = ["embedding", "softmax_cross_entropy_with_integer_labels"]
