"""Running reductions along a dim: `cumsum`, `cumprod`, `cummax`, `cummin`.

Along a split dim each device scans its block; what moves are the blocks' totals, one entry for each: a device receives
(k-1) entries along the dim, where the dim has k blocks, and not the dim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import lax

from lamina.engine.blocks import identity
from lamina.engine.rows import gathered
from lamina.errors import explained
from lamina.ops.arguments import as_tensor
from lamina.ops.compute import Kernel, compute
from lamina.ops.dims import as_dim
from lamina.ops.elementwise import astype
from lamina.ops.movement import ravel
from lamina.rules import Passing
from lamina.rules.elementwise import elementwise, linear
from lamina.sharding.placements import ReduceOp
from lamina.tensors import Tensor


@dataclass(frozen=True, slots=True)
class Scan:
    """`scan` a block, `reduce` the totals before it, and `join` them to it."""

    op: ReduceOp
    scan: Callable[..., Any]
    reduce: Callable[..., Any]
    join: Callable[..., Any]
    passing: tuple[Passing, ...]


_SCANS = {
    "cumsum": Scan(ReduceOp.SUM, lax.cumsum, jnp.sum, jnp.add, linear(0)),
    "cumprod": Scan(ReduceOp.PROD, lax.cumprod, jnp.prod, jnp.multiply, (Passing(ReduceOp.PROD, (0,)),)),
    "cummax": Scan(ReduceOp.MAX, lax.cummax, jnp.max, jnp.maximum, (Passing(ReduceOp.MAX, (0,)),)),
    "cummin": Scan(ReduceOp.MIN, lax.cummin, jnp.min, jnp.minimum, (Passing(ReduceOp.MIN, (0,)),)),
}


def _kernel(name: str, scan: Scan) -> Kernel:
    def body(here: Any, x: Any, dim: int) -> Any:
        within = scan.scan(x, axis=dim)
        axes = here.operands[0].layout.dims[dim]
        if not axes or not x.size:
            return within
        last = lax.slice_in_dim(within, x.shape[dim] - 1, x.shape[dim], axis=dim)  # padding adds nothing
        totals = gathered(here, last, dim, axes)
        before = lax.broadcasted_iota(jnp.int32, totals.shape, dim) < here.index(axes)
        totals = jnp.where(before, totals, jnp.asarray(identity(scan.op, x.dtype)))
        return scan.join(within, scan.reduce(totals, axis=dim, keepdims=True).astype(x.dtype))

    def receives(required: Any, results: Any, dim: int) -> float:
        (held,) = required
        block = held.layout.padded_block(held.shape)
        return float((held.layout.grid[dim] - 1) * prod(size for d, size in enumerate(block) if d != dim))

    rule = lambda shapes, dim: elementwise(shapes, scan.passing)  # noqa: E731
    return Kernel(name, rule, body, lambda dtype: identity(scan.op, dtype), receives)


KERNELS = {name: _kernel(name, scan) for name, scan in _SCANS.items()}


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """The sums of the entries up to each, along a dim (None: of the flat tensor).

    Along a split dim a device receives one entry of each other block: its total.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.arange(6), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> lamina.cumsum(x).tolist()
    [0, 1, 3, 6, 10, 15]
    """
    return _scanned("cumsum", x, axis, dtype)


def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """The products of the entries up to each, along a dim (None: of the flat tensor).

    Along a split dim a device receives one entry of each other block: its total.

    >>> import lamina
    >>> lamina.cumprod(lamina.tensor([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _scanned("cumprod", x, axis, dtype)


def cummax(x: Any, axis: int | None = None) -> Tensor:
    """The largest of the entries up to each, along a dim (None: of the flat tensor); NaN wins.

    Along a split dim a device receives one entry of each other block: its total.

    >>> import lamina
    >>> lamina.cummax(lamina.tensor([1, 3, 2])).tolist()
    [1, 3, 3]
    """
    return _scanned("cummax", x, axis, None)


def cummin(x: Any, axis: int | None = None) -> Tensor:
    """The smallest of the entries up to each, along a dim (None: of the flat tensor); NaN wins.

    Along a split dim a device receives one entry of each other block: its total.

    >>> import lamina
    >>> lamina.cummin(lamina.tensor([3, 1, 2])).tolist()
    [3, 1, 1]
    """
    return _scanned("cummin", x, axis, None)


def _scanned(name: str, x: Any, axis: int | None, dtype: Any) -> Tensor:
    x = as_tensor(x, name)
    with explained(f"{name}(axis={axis!r})", shape=x.shape):
        dim = 0 if axis is None else as_dim(axis, x.ndim)
    if dtype is not None or x.dtype == jnp.bool_:
        x = astype(x, jnp.zeros((), int).dtype if dtype is None else dtype)
    return compute(KERNELS[name], (ravel(x) if axis is None else x,), (dim,))


__all__ = ["cummax", "cummin", "cumprod", "cumsum"]
