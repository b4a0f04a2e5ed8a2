"""Reductions over dims.  What moves is the reduced result, never the tensor.

Each device reduces its own block; along the axes that split a reduced dim the results are pieces, of the reduction's
own op, and stay so until somebody needs the value.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from math import prod as product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine.blocks import identity
from lamina.errors import LayoutError, explained, with_fix
from lamina.ops import elementwise
from lamina.ops.arguments import as_data, relayout
from lamina.ops.compute import Kernel, compute, settled
from lamina.ops.dims import as_dims
from lamina.rules.elementwise import elementwise as elementwise_rule
from lamina.rules.reduction import reduction
from lamina.sharding.placements import ReduceOp
from lamina.tensors import Tensor, tensor

# This module's own names hide Python's.
_some, _most = builtins.any, builtins.max

Dims = int | tuple[int, ...] | None


def _kernel(name: str, op: ReduceOp, reduce: Callable[..., Any]) -> Kernel:
    return Kernel(
        name,
        lambda shapes, dims, keepdims, *_: reduction(shapes, dims, op, keepdims),
        lambda here, x, dims, keepdims, *more: reduce(x, *more, axis=dims, keepdims=keepdims),
        lambda dtype: identity(op, dtype),
    )


def _typed(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dtype, **where: reduce(x, dtype=dtype, **where)


_SUM = _kernel("sum", ReduceOp.SUM, _typed(jnp.sum))
_PROD = _kernel("prod", ReduceOp.PROD, _typed(jnp.prod))
_MAX = _kernel("max", ReduceOp.MAX, jnp.max)
_MIN = _kernel("min", ReduceOp.MIN, jnp.min)
_ANY = _kernel("any", ReduceOp.MAX, jnp.any)
_ALL = _kernel("all", ReduceOp.MIN, jnp.all)
KERNELS = {kernel.name: kernel for kernel in (_SUM, _PROD, _MAX, _MIN, _ANY, _ALL)}


def _reduced(kernel: Kernel, x: Any, axis: Dims, keepdims: bool, *more: Any) -> Tensor:
    dims = dims_of(kernel.name, x, axis)
    return compute(kernel, (x,), (dims, bool(keepdims), *more))


def dims_of(name: str, x: Any, axis: Dims) -> tuple[int, ...]:
    """The dims that an argument `axis` of `name` names, in order."""
    rank = x.ndim if type(x) is Tensor else np.ndim(x)
    try:
        return _ordered_dims(axis, rank)
    except (LayoutError, TypeError):  # said again, with all there is to say
        with explained(f"{name}(axis={axis!r})", shape=np.shape(x)):
            return tuple(sorted(as_dims(axis, rank)))


@lru_cache(maxsize=1024, typed=True)
def _ordered_dims(axis: Dims, rank: int) -> tuple[int, ...]:
    return tuple(sorted(as_dims(axis, rank)))


def sum(x: Any, axis: Dims = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum over the dims `axis` (None: all).  Over a split dim it is Partial: its pieces aren't added up yet.

    >>> import numpy as np, lamina
    >>> x = lamina.shard(np.arange(6.0), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])
    >>> x.sum().item(), x.sum().placements
    (15.0, (Partial(SUM),))
    """
    return _reduced(_SUM, _summable(x), axis, keepdims, dtype)


def _summable(x: Any) -> Any:
    """Bools are counted: as pieces they'd be or-ed."""
    x = x if isinstance(x, Tensor) else tensor(as_data(x, "sum"))
    return elementwise.astype(x, jnp.zeros((), int).dtype) if x.dtype == jnp.bool_ else x


def prod(x: Any, axis: Dims = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product over the dims `axis` (None: all).

    >>> import lamina
    >>> lamina.prod(lamina.tensor([2.0, 3.0])).item()
    6.0
    """
    return _reduced(_PROD, _summable(x), axis, keepdims, dtype)


def max(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """The largest over the dims `axis` (None: all); NaN wins.  Along a split dim, the result is reduced at once.

    >>> import lamina
    >>> lamina.max(lamina.tensor([2.0, 3.0])).item()
    3.0
    """
    return _extreme(_MAX, x, axis, keepdims)


def min(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """The smallest over the dims `axis` (None: all); NaN wins.  Along a split dim, the result is reduced at once.

    >>> import lamina
    >>> lamina.min(lamina.tensor([2.0, 3.0])).item()
    2.0
    """
    return _extreme(_MIN, x, axis, keepdims)


def _extreme(kernel: Kernel, x: Any, axis: Dims, keepdims: bool) -> Any:
    dims, shape = dims_of(kernel.name, x, axis), np.shape(x)
    if _some(shape[d] == 0 for d in dims):
        fact = f"{kernel.name}(axis={axis!r}) of shape {shape}: there is nothing to take it from"
        raise LayoutError(with_fix(fact, "reduce dims that aren't empty"))
    x = settled(kernel, x, (dims, bool(keepdims)))
    if not is_split(x, dims):
        return compute(kernel, (x,), (dims, bool(keepdims)))
    return _split_extreme(resolved(x), kernel.name, dims, bool(keepdims))  # the tangent of pieces isn't pieces


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3))
def _split_extreme(x: Tensor, name: str, dims: tuple[int, ...], keepdims: bool) -> Tensor:
    return resolved(compute(KERNELS[name], (x,), (dims, keepdims)))


@_split_extreme.defjvp
def _split_extreme_jvp(name: str, dims: tuple[int, ...], keepdims: bool, primals: tuple, tangents: tuple) -> tuple:
    """The tangent of the winners, ties shared among all of them, whichever devices they are on: as jnp does."""
    (x,), (t,) = primals, tangents
    found = _split_extreme(x, name, dims, True)
    hits = elementwise.equal(x, found)
    count = resolved(sum(hits, dims, keepdims=True))
    share = elementwise.divide(elementwise.where(hits, t, 0.0), elementwise.astype(count, t.dtype))
    tangent = sum(share, dims, keepdims=keepdims)
    made = found if keepdims else _without(found, dims)
    return made, relayout(tangent, made._held)


def _without(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Without dims of 1."""
    return compute(_DROP, (x,), (dims,))


_DROP = Kernel(
    "squeeze",
    lambda shapes, dims: reduction(shapes, dims, ReduceOp.SUM),
    lambda here, x, dims: jnp.squeeze(x, dims),
)


def is_split(x: Any, dims: tuple[int, ...]) -> bool:
    """Does some device hold less than all of these dims?"""
    return isinstance(x, Tensor) and _some(x.layout.dims[d] for d in dims)


def resolved(x: Tensor) -> Tensor:
    """With nothing left to reduce."""
    return relayout(x, x._held.without_pieces())


def any(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """Is some element true?

    >>> import lamina
    >>> lamina.any(lamina.tensor([0, 1])).item()
    True
    """
    return _reduced(_ANY, elementwise.astype(x, bool), axis, keepdims)


def all(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """Is every element true?

    >>> import lamina
    >>> lamina.all(lamina.tensor([0, 1])).item()
    False
    """
    return _reduced(_ALL, elementwise.astype(x, bool), axis, keepdims)


def mean(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """The mean over the dims `axis` (None: all).  Short floats are added in float32.

    >>> import lamina
    >>> lamina.mean(lamina.tensor([2.0, 3.0])).item()
    2.5
    """
    x = floating(x)
    dims = dims_of("mean", x, axis)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    total = sum(x, dims, wide, keepdims)
    return elementwise.astype(elementwise.divide(total, float(product(x.shape[d] for d in dims))), x.dtype)


def floating(x: Any) -> Tensor:
    x = x if isinstance(x, Tensor) else tensor(as_data(x, "mean"))
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else elementwise.astype(x, jnp.result_type(float))


def var(x: Any, axis: Dims = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance over the dims `axis` (None: all): the mean square distance from the mean, in two passes.

    >>> import lamina
    >>> lamina.var(lamina.tensor([2.0, 4.0])).item()
    1.0
    """
    x = floating(x)
    dims = dims_of("var", x, axis)
    wide = elementwise.astype(x, jnp.promote_types(x.dtype, jnp.float32))
    away = elementwise.subtract(wide, resolved(mean(wide, dims, keepdims=True)))
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        square = elementwise.real(elementwise.multiply(away, elementwise.conjugate(away)))
    else:
        square = elementwise.square(away)
    count = product(x.shape[d] for d in dims) - ddof
    found = elementwise.divide(sum(square, dims, keepdims=keepdims), float(count))
    return elementwise.astype(found, jnp.finfo(x.dtype).dtype)


def std(x: Any, axis: Dims = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The standard deviation over the dims `axis` (None: all).

    >>> import lamina
    >>> lamina.std(lamina.tensor([2.0, 4.0])).item()
    1.0
    """
    return elementwise.sqrt(var(x, axis, ddof, keepdims))


def _first_hit(here: Any, x: Any, best: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    held = here.operands[0]
    where: Any = jnp.zeros((), jnp.int32)
    for dim in dims:
        position = jnp.expand_dims(here.positions(held, dim), [d for d in range(x.ndim) if d != dim])
        where = where * held.shape[dim] + position
    hits = (x == best) | (x != x)  # where NaN is the largest, the first NaN is
    last = product(held.shape[d] for d in dims)
    return jnp.min(jnp.where(hits, where, last), axis=dims, keepdims=keepdims)


def _first_hit_rule(shapes: Any, dims: tuple[int, ...], keepdims: bool) -> Any:
    alone, best = reduction(shapes[:1], dims, ReduceOp.MIN, keepdims), elementwise_rule(shapes)
    return replace(alone, operands=best.operands, shapes=best.shapes, passing=())


_FIRST_HIT = Kernel("argmax", _first_hit_rule, _first_hit, lambda dtype: identity(ReduceOp.MIN, dtype))
KERNELS["argmax"] = _FIRST_HIT


def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the largest is along a dim (None: in the flat tensor); the first of equals, and the first NaN.

    >>> import lamina
    >>> lamina.argmax(lamina.tensor([2.0, 3.0, 3.0])).item()
    1
    """
    return _position(max, "argmax", x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Where the smallest is along a dim (None: in the flat tensor); the first of equals, and the first NaN.

    >>> import lamina
    >>> lamina.argmin(lamina.tensor([2.0, 3.0, 2.0])).item()
    0
    """
    return _position(min, "argmin", x, axis, keepdims)


def _position(extreme: Callable[..., Any], name: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    x = x if isinstance(x, Tensor) else tensor(as_data(x, name))
    dims = dims_of(name, x, axis)
    x = jax.lax.stop_gradient(resolved(x))
    best = extreme(x, dims, keepdims=True)
    return resolved(compute(_FIRST_HIT, (x, best), (dims, bool(keepdims))))


def logsumexp(x: Any, axis: Dims = None, keepdims: bool = False) -> Any:
    """log(Σ exp(x)) over the dims `axis` (None: all), without overflow.

    >>> import lamina
    >>> lamina.logsumexp(lamina.tensor([1000.0, 1000.0])).item() - 1000 < 0.7
    True
    """
    x = floating(x)
    dims = dims_of("logsumexp", x, axis)
    if product(x.shape[d] for d in dims):
        x = settled(_MAX, x, (dims, True))
    most = finite_peak(x, dims)
    total = resolved(sum(elementwise.exp(elementwise.subtract(x, most)), dims, keepdims=True))
    found = elementwise.add(elementwise.log(total), most)
    return found if keepdims else _without(found, dims)


def finite_peak(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The largest along the dims, as a constant; 0 where it is infinite, for -inf - -inf is no number."""
    most = jax.lax.stop_gradient(max(jax.lax.stop_gradient(x), dims, keepdims=True))
    return elementwise.where(elementwise.isfinite(most), most, 0.0)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "logsumexp",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
]
