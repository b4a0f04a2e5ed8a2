"""Order along a dim: `sort`, `argsort`, `top_k`, `searchsorted`.

A sort needs its dim whole.  If it is split, its axes move to another dim by an all-to-all, which costs a device
(k-1)/k of its block; only a tensor with no other dim is gathered.

`top_k` of a split dim takes each block's own best first: what moves are k candidates for each block, with their
numbers.  `searchsorted` counts in each block: the counts are Partial(SUM), and nothing moves.
"""

from __future__ import annotations

from operator import index as as_integer
from typing import Any

import jax.numpy as jnp
from jax import lax

from lamina.engine.blocks import identity
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops.arguments import as_tensor
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim
from lamina.ops.movement import ravel
from lamina.ops.reduction import resolved
from lamina.rules import sorting as rules
from lamina.sharding.placements import ReduceOp
from lamina.tensors import Tensor


def _sorted(here: Any, x: Any, dim: int, descending: bool) -> Any:
    return jnp.sort(x, axis=dim, stable=True, descending=descending)


def _argsorted(here: Any, x: Any, dim: int, descending: bool) -> Any:
    return jnp.argsort(x, axis=dim, stable=True, descending=descending).astype(jnp.int32)


def _best(x: Any, dim: int, count: int) -> tuple[Any, Any]:
    values, numbers = lax.top_k(jnp.moveaxis(x, dim, -1), count)
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(numbers, -1, dim)


def _candidates(here: Any, x: Any, dim: int, _: int) -> tuple[Any, Any]:
    held, made = here.operands[0], here.results[0]
    values, numbers = _best(x, dim, made.layout.padded_block(made.shape)[dim])
    return values, (numbers + here.start(held, dim)).astype(jnp.int32)


def _best_of(here: Any, values: Any, numbers: Any, dim: int, count: int) -> tuple[Any, Any]:
    best, places = _best(values, dim, count)
    return best, jnp.take_along_axis(numbers, places, axis=dim)


def _inserted(here: Any, ordered: Any, values: Any, side: str) -> Any:
    """How many of the block stand before; its padding, the largest there is, stands behind."""
    found = jnp.searchsorted(ordered, values, side=side)
    return jnp.minimum(found, here.length(here.operands[0], 0)).astype(jnp.int32)


_SORT = Kernel("sort", lambda shapes, dim, _: rules.ordered(shapes, dim), _sorted)
_ARGSORT = Kernel("argsort", lambda shapes, dim, _: rules.ordered(shapes, dim), _argsorted)
_TOP_K = Kernel("top_k", rules.best, lambda here, x, dim, count: _best(x, dim, count))
_CANDIDATES = Kernel("top_k", rules.candidates, _candidates, lambda dtype: identity(ReduceOp.MAX, dtype))
_BEST_OF = Kernel("top_k", rules.best, _best_of)
_SEARCH = Kernel(
    "searchsorted", lambda shapes, side: rules.search(shapes), _inserted, lambda dtype: identity(ReduceOp.MIN, dtype)
)
KERNELS = {kernel.name: kernel for kernel in (_SORT, _ARGSORT, _TOP_K, _SEARCH)}


def sort(x: Any, axis: int | None = -1, *, descending: bool = False) -> Tensor:
    """The entries of a dim (None: of the flat tensor) in order, NaN last.

    If the dim is split over k devices, each receives (k-1)/k of a block; in 1-D all blocks that it hasn't.

    >>> import lamina
    >>> lamina.sort(lamina.tensor([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    return _in_order(_SORT, x, axis, descending)


def argsort(x: Any, axis: int | None = -1, *, descending: bool = False) -> Tensor:
    """The numbers of a dim's entries in their order; equal ones keep theirs.  It moves what `sort` moves.

    >>> import lamina
    >>> lamina.argsort(lamina.tensor([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return _in_order(_ARGSORT, x, axis, descending)


def _in_order(kernel: Kernel, x: Any, axis: int | None, descending: bool) -> Tensor:
    x = as_tensor(x, kernel.name)
    if axis is None:
        return _in_order(kernel, ravel(x), 0, descending)
    with explained(f"{kernel.name}(axis={axis!r})", shape=x.shape):
        dim = as_dim(axis, x.ndim)
    return compute(kernel, (x,), (dim, bool(descending)))


def top_k(x: Any, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """The k largest of a dim, the largest first, and their numbers; of equals the first.

    Along a split dim only each block's own k largest move, with their numbers.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.array([3, 1, 4, 1, 5, 9]), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> [found.tolist() for found in lamina.top_k(x, 2)]
    [[9, 5], [5, 4]]
    """
    x = as_tensor(x, "top_k")
    with explained(f"top_k(k={k!r}, axis={axis!r})", shape=x.shape):
        dim, count = as_dim(axis, x.ndim), as_integer(k)
        if not 0 <= count <= x.shape[dim]:
            fact = f"there are no {count} entries along dim {dim}"
            raise LayoutError(with_fix(fact, f"ask for 0 to {x.shape[dim]}"))
    blocks = x.layout.grid[dim]
    if blocks == 1 or not 0 < count <= x.shape[dim] // blocks:  # else each block has its own k, and they are fewer
        return compute(_TOP_K, (x,), (dim, count))
    values, numbers = compute(_CANDIDATES, (resolved(x),), (dim, blocks * count))
    return compute(_BEST_OF, (values, numbers), (dim, count))


def searchsorted(a: Any, v: Any, side: str = "left") -> Tensor:
    """Where in the ordered 1-D a the values v would be inserted: before equal ones, or behind them (side="right").

    Where a is split nothing moves: the counts of the blocks are Partial.

    >>> import lamina
    >>> lamina.searchsorted(lamina.tensor([1, 3, 5]), lamina.tensor([3, 4])).tolist()
    [1, 2]
    """
    if side not in ("left", "right"):
        raise LayoutError(with_fix(f"searchsorted(side={side!r}) isn't there", 'use "left" or "right"'))
    a = as_tensor(a, "searchsorted")
    if a.ndim != 1:
        raise LayoutError(with_fix(f"searchsorted(a) of shape {a.shape} isn't 1-D", "search row by row"))
    return compute(_SEARCH, (a, v), (side,))


__all__ = ["argsort", "searchsorted", "sort", "top_k"]
