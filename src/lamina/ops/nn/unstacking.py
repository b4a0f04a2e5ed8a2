"""The entries of a dim as tensors of their own."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from lamina.ops.arguments import as_data
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim
from lamina.rules.nn import unstacked
from lamina.tensors import Tensor, tensor


def _unstack(here: Any, x: Any, dim: int) -> tuple[Any, ...]:
    return tuple(jnp.squeeze(part, dim) for part in jnp.split(x, x.shape[dim], dim))


_UNSTACK = Kernel("unstack", unstacked, _unstack)
KERNELS = {"unstack": _UNSTACK}


def unstack(x: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """The entries of dim `axis`, each a tensor without it, as `jnp.unstack`: queries, keys and values of one product.

    >>> import numpy as np, lamina
    >>> first, second = lamina.unstack(np.arange(4.0).reshape(2, 2))
    >>> second.tolist()
    [2.0, 3.0]
    """
    x = x if isinstance(x, Tensor) else tensor(as_data(x, "unstack"))
    dim = as_dim(axis, x.ndim)
    made = compute(_UNSTACK, (x,), (dim,)) if x.shape[dim] else ()
    return made if isinstance(made, tuple) else (made,)


__all__ = ["unstack"]
