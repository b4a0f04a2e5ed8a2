"""Ops that combine elements: products, reductions, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lamina.errors import LayoutError, with_fix
from lamina.graph.arguments import as_tensor, axis_of, same_device
from lamina.graph.nodes import Attributes, Local, Op
from lamina.graph.ops.inferring import broadcast, dtype_of, typed
from lamina.graph.values import TensorValue
from lamina.sharding import TensorType
from lamina.sharding.shape import Shape

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "argmax": jnp.argmax,
    "argmin": jnp.argmin,
    "mean": jnp.mean,
    "prod": jnp.prod,
    "reduce_max": jnp.max,
    "reduce_min": jnp.min,
    "sum": jnp.sum,
}
_ALONG: dict[str, Callable[..., Any]] = {
    "cumsum": jnp.cumsum,
    "logsoftmax": jax.nn.log_softmax,
    "softmax": jax.nn.softmax,
}


def matmul(lhs: Any, rhs: Any) -> TensorValue:
    """The matrix product; dims in front of the last two broadcast, as in numpy."""
    like = next((x for x in (lhs, rhs) if isinstance(x, TensorValue)), None)
    left = as_tensor(lhs, "matmul", like)
    right = as_tensor(rhs, "matmul", left)
    same_device([left, right], "matmul")
    return left.graph.add("matmul", [left, right])[0]


def _matmul(types: Sequence[TensorType], _: Attributes) -> list[TensorType]:
    left, right = (kind.shape for kind in types)
    if not left or not right:
        raise LayoutError(with_fix("matmul: a scalar has no product of matrices", "multiply with *"))
    inner = left[-1], right[-2 if len(right) > 1 else -1]
    if inner[0] != inner[1]:
        fact = f"matmul: the shapes {left} and {right} don't fit: {inner[0]} columns, {inner[1]} rows"
        raise LayoutError(with_fix(fact, "transpose one, or say that two symbolic dims are the same by ops.rebind"))
    ahead = broadcast("matmul", [Shape(left[:-2]), Shape(right[:-2])])
    shape = (*ahead, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))
    return [typed(dtype_of(_scalars, "matmul", *(kind.dtype for kind in types)), shape, types[0])]


def _scalars(x: Any, y: Any) -> Any:
    return jnp.multiply(x, y)


def _reduction(name: str) -> Callable[..., TensorValue]:
    def op(x: Any, axis: int = -1) -> TensorValue:
        value = as_tensor(x, name)
        return value.graph.add(name, [value], {"axis": axis_of(axis, value.rank, name)})[0]

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"`{name}` along one axis, which stays as a dim of 1 (`ops.squeeze` drops it)."
    return op


def _along(name: str) -> Callable[..., TensorValue]:
    def op(x: Any, axis: int = -1) -> TensorValue:
        value = as_tensor(x, name)
        return value.graph.add(name, [value], {"axis": axis_of(axis, value.rank, name)})[0]

    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"`{name}` along one axis; the shape stays."
    return op


def _reduced(name: str, function: Callable[..., Any]) -> Op:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        shape = list(types[0].shape)
        shape[attributes["axis"]] = 1
        dtype = jax.eval_shape(function, jax.ShapeDtypeStruct((1,), jnp.dtype(types[0].dtype))).dtype
        return [typed(dtype, shape, types[0])]

    return Local(infer, lambda attributes, x: function(x, axis=attributes["axis"], keepdims=True))


def _kept(name: str, function: Callable[..., Any]) -> Op:
    def infer(types: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        dtype = jax.eval_shape(function, jax.ShapeDtypeStruct((1,), jnp.dtype(types[0].dtype))).dtype
        return [typed(dtype, types[0].shape, types[0])]

    return Local(infer, lambda attributes, x: function(x, axis=attributes["axis"]))


RULES: dict[str, Op] = {
    "matmul": Local(_matmul, lambda attributes, x, y: jnp.matmul(x, y)),
    **{name: _reduced(name, function) for name, function in _REDUCTIONS.items()},
    **{name: _kept(name, function) for name, function in _ALONG.items()},
}

# Assigned one by one, so that editors and type checkers know the names.
argmax = _reduction("argmax")
argmin = _reduction("argmin")
mean = _reduction("mean")
prod = _reduction("prod")
reduce_max = _reduction("reduce_max")
reduce_min = _reduction("reduce_min")
sum = _reduction("sum")
cumsum = _along("cumsum")
logsoftmax = _along("logsoftmax")
softmax = _along("softmax")

FUNCTIONS = (
    matmul, argmax, argmin, mean, prod, reduce_max, reduce_min, sum, cumsum, logsoftmax, softmax,
)  # fmt: skip
