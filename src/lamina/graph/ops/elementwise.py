"""Ops that compute element by element, from one table each for one and two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lamina.graph.arguments import as_tensor, same_device
from lamina.graph.nodes import Local, Op
from lamina.graph.ops.inferring import elementwise, typed
from lamina.graph.values import TensorValue

_UNARY: dict[str, Callable[..., Any]] = {
    "abs": jnp.abs,
    "ceil": jnp.ceil,
    "cos": jnp.cos,
    "erf": jax.scipy.special.erf,
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "floor": jnp.floor,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "is_inf": jnp.isinf,
    "is_nan": jnp.isnan,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "logical_not": jnp.logical_not,
    "negate": jnp.negative,
    "relu": jax.nn.relu,
    "round": jnp.round,
    "rsqrt": jax.lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "silu": jax.nn.silu,
    "sin": jnp.sin,
    "sqrt": jnp.sqrt,
    "tanh": jnp.tanh,
    "trunc": jnp.trunc,
}
_BINARY: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "div": jnp.true_divide,
    "equal": jnp.equal,
    "floordiv": jnp.floor_divide,
    "greater": jnp.greater,
    "greater_equal": jnp.greater_equal,
    "less": jnp.less,
    "less_equal": jnp.less_equal,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "mod": jnp.mod,
    "mul": jnp.multiply,
    "not_equal": jnp.not_equal,
    "pow": jnp.power,
    "sub": jnp.subtract,
}


def _local(name: str, function: Callable[..., Any]) -> Op:
    return Local(elementwise(name, function), lambda attributes, *arrays: function(*arrays))


def unary(name: str) -> Callable[[Any], TensorValue]:
    """The op of that name on one value."""

    def op(x: Any) -> TensorValue:
        value = as_tensor(x, name)
        return value.graph.add(name, [value])[0]

    return _named(op, name, f"`{name}` of every element of x.")


def binary(name: str) -> Callable[[Any, Any], TensorValue]:
    """The op of that name on two values that broadcast."""

    def op(lhs: Any, rhs: Any) -> TensorValue:
        like = next((x for x in (lhs, rhs) if isinstance(x, TensorValue)), None)
        left = as_tensor(lhs, name, like)
        right = as_tensor(rhs, name, left)
        same_device([left, right], name)
        return left.graph.add(name, [left, right])[0]

    return _named(op, name, f"`{name}` of lhs and rhs, element by element; they broadcast as in numpy.")


def _named(op: Any, name: str, meaning: str) -> Any:
    op.__name__ = op.__qualname__ = name
    op.__doc__ = meaning
    return op


def where(condition: Any, x: Any, y: Any) -> TensorValue:
    """x where the condition holds, y elsewhere."""
    like = next((value for value in (x, y, condition) if isinstance(value, TensorValue)), None)
    left = as_tensor(x, "where", like)
    values = [as_tensor(condition, "where", left), left, as_tensor(y, "where", left)]
    same_device(values, "where")
    return left.graph.add("where", values)[0]


def cast(x: Any, dtype: Any) -> TensorValue:
    """x as another dtype; 64-bit dtypes become 32-bit ones unless `jax_enable_x64` is set."""
    value = as_tensor(x, "cast")
    name = jax.dtypes.canonicalize_dtype(jnp.dtype(dtype)).name
    return value if name == value.dtype else value.graph.add("cast", [value], {"dtype": name})[0]


RULES: dict[str, Op] = {
    **{name: _local(name, function) for name, function in (_UNARY | _BINARY).items()},
    "where": _local("where", jnp.where),
    "cast": Local(
        lambda types, attributes: [typed(attributes["dtype"], types[0].shape, types[0])],
        lambda attributes, x: x.astype(attributes["dtype"]),
    ),
}

# Assigned one by one, so that editors and type checkers know the names.
abs = unary("abs")
ceil = unary("ceil")
cos = unary("cos")
erf = unary("erf")
exp = unary("exp")
expm1 = unary("expm1")
floor = unary("floor")
gelu = unary("gelu")
is_inf = unary("is_inf")
is_nan = unary("is_nan")
log = unary("log")
log1p = unary("log1p")
logical_not = unary("logical_not")
negate = unary("negate")
relu = unary("relu")
round = unary("round")
rsqrt = unary("rsqrt")
sigmoid = unary("sigmoid")
silu = unary("silu")
sin = unary("sin")
sqrt = unary("sqrt")
tanh = unary("tanh")
trunc = unary("trunc")
add = binary("add")
div = binary("div")
equal = binary("equal")
floordiv = binary("floordiv")
greater = binary("greater")
greater_equal = binary("greater_equal")
less = binary("less")
less_equal = binary("less_equal")
logical_and = binary("logical_and")
logical_or = binary("logical_or")
logical_xor = binary("logical_xor")
max = binary("max")
min = binary("min")
mod = binary("mod")
mul = binary("mul")
not_equal = binary("not_equal")
pow = binary("pow")
sub = binary("sub")

FUNCTIONS = (
    abs, ceil, cos, erf, exp, expm1, floor, gelu, is_inf, is_nan, log, log1p, logical_not, negate, relu, round,
    rsqrt, sigmoid, silu, sin, sqrt, tanh, trunc, add, div, equal, floordiv, greater, greater_equal, less,
    less_equal, logical_and, logical_or, logical_xor, max, min, mod, mul, not_equal, pow, sub, where, cast,
)  # fmt: skip
