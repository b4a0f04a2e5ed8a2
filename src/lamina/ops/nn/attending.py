"""Attention: heads, batch and queries may be split and stay so; a query needs every key."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.ops.arguments import as_data
from lamina.ops.compute import Kernel, compute
from lamina.rules.nn import attention as rule


def _attend(here: Any, q: Any, k: Any, v: Any, *more: Any) -> Any:
    """A device's queries against all keys; which of them a causal query may see, it knows by its position."""
    *masks, causal, scale, implementation = more
    held = here.operands[0]
    time = held.rank - 3
    mask = jnp.expand_dims(masks[0], tuple(range(4 - masks[0].ndim))) if masks else None
    if causal and held.layout.dims[time]:
        seen = here.positions(held, time)[:, None] >= jnp.arange(k.shape[-3])
        mask = seen[None, None] if mask is None else mask & seen
        causal = False
    if mask is not None:  # JAX's one implementation of several takes no masks that are to be broadcast
        mask = jnp.broadcast_to(mask, (*mask.shape[:-2], q.shape[-3], k.shape[-3]))
    return jax.nn.dot_product_attention(
        q, k, v, mask=mask, scale=scale, is_causal=causal, implementation=implementation
    )


_ATTENTION = Kernel("attention", lambda shapes, *_: rule(shapes), _attend, lambda dtype: 0)
KERNELS = {"attention": _ATTENTION}


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    implementation: str | None = None,
    out_sharding: Any = None,
) -> Any:
    """softmax(scale · q kᵀ) v, as `jax.nn.dot_product_attention`; dims are (batch, length, heads, channels).

    q may have a multiple of k's heads.  `mask` (True: may be seen) broadcasts to (batch, heads, queries, keys); with
    `causal` the i-th query sees the first i + 1 keys.  `scale` is 1/√channels by default.

    Split heads, batches and queries stay where they are.  If the sequence is split, the cheaper of two ways is taken:
    keys and values are gathered for the device's own queries, or all three are exchanged to whole sequences of a part
    of the heads.

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2, 2), ("dp", "tp"))
    >>> q = k = v = lamina.shard(np.ones((2, 8, 4, 16), "float32"), mesh, ["dp", None, "tp"])
    >>> with lamina.on_reshard("raise"):
    ...     lamina.attention(q, k, v, causal=True).sharding
    NamedMapping('[dp=2,tp=2] dp,-,tp,-')
    """
    operands = [q, k, v]
    if mask is not None:
        mask = as_data(mask, "attention")
        if mask.dtype != jnp.bool_:
            fact = f"attention(mask) must be of bools, True where a query may see a key, not {mask.dtype.name}"
            raise LayoutError(with_fix(fact, "compare: mask > 0"))
        operands.append(mask)
    return compute(_ATTENTION, operands, (bool(causal), scale, implementation), out_sharding)


__all__ = ["attention"]
