"""Ops on every element alone: numpy's arithmetic, comparisons and functions, and the activations of `jax.nn`.

One table: a row is a name, the function of one block, how pieces pass through, and what it takes.  On any layout they
run where the operands lie; operands that lie differently are brought together at the least cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from lamina.ops.compute import Kernel, compute
from lamina.ops.signature import with_signature
from lamina.rules import Passing
from lamina.rules.elementwise import elementwise, linear
from lamina.sharding.placements import ReduceOp


@dataclass(frozen=True, slots=True)
class Row:
    """`takes`: the operands, and of what kind their elements may be ("f" float, "c" complex, "i" integer, "b" bool)."""

    function: Callable[..., Any]
    says: str
    takes: str = "x: fc"
    passing: tuple[Passing, ...] = ()
    padding: float = 0.5


def _max(op: ReduceOp) -> tuple[Passing, ...]:
    return (Passing(op, (0, 1), jointly=True),)


_ANY, _NUMBER = "x: fcib", "x: fci"
_TWO, _ORDERED, _FLOATS = "x, y: fci", "x, y: fi", "x, y: f"
_INTS, _LOGICAL = "x, y: ib", "x, y: fcib"

TABLE: dict[str, Row] = {
    # one operand
    "negative": Row(jnp.negative, "-x", _NUMBER, linear(0)),
    "positive": Row(jnp.positive, "+x", _NUMBER, linear(0)),
    "absolute": Row(jnp.absolute, "|x|", _NUMBER),
    "sign": Row(jnp.sign, "the sign of x", _NUMBER),
    "square": Row(jnp.square, "x · x", _NUMBER),
    "reciprocal": Row(jnp.reciprocal, "1 / x"),
    "sqrt": Row(jnp.sqrt, "the square root"),
    "rsqrt": Row(jax.lax.rsqrt, "1 / √x", "x: f"),
    "cbrt": Row(jnp.cbrt, "the cube root", "x: f"),
    "exp": Row(jnp.exp, "e to the x"),
    "exp2": Row(jnp.exp2, "2 to the x", "x: f"),
    "expm1": Row(jnp.expm1, "exp(x) - 1, exact near 0"),
    "log": Row(jnp.log, "the natural logarithm"),
    "log2": Row(jnp.log2, "the logarithm to base 2", "x: f"),
    "log10": Row(jnp.log10, "the logarithm to base 10", "x: f"),
    "log1p": Row(jnp.log1p, "log(1 + x), exact near 0"),
    "sin": Row(jnp.sin, "the sine"),
    "cos": Row(jnp.cos, "the cosine"),
    "tan": Row(jnp.tan, "the tangent"),
    "arcsin": Row(jnp.arcsin, "the inverse sine", "x: f"),
    "arccos": Row(jnp.arccos, "the inverse cosine", "x: f"),
    "arctan": Row(jnp.arctan, "the inverse tangent", "x: f"),
    "sinh": Row(jnp.sinh, "the hyperbolic sine"),
    "cosh": Row(jnp.cosh, "the hyperbolic cosine"),
    "tanh": Row(jnp.tanh, "the hyperbolic tangent"),
    "arcsinh": Row(jnp.arcsinh, "the inverse hyperbolic sine", "x: f"),
    "arccosh": Row(jnp.arccosh, "the inverse hyperbolic cosine", "x: f", padding=2.0),
    "arctanh": Row(jnp.arctanh, "the inverse hyperbolic tangent", "x: f"),
    "floor": Row(jnp.floor, "the largest integer below", "x: f"),
    "ceil": Row(jnp.ceil, "the smallest integer above", "x: f"),
    "trunc": Row(jnp.trunc, "the integer towards 0", "x: f"),
    "rint": Row(jnp.rint, "the nearest integer, ties to even", "x: f"),
    "isnan": Row(jnp.isnan, "is it NaN?"),
    "isinf": Row(jnp.isinf, "is it infinite?"),
    "isfinite": Row(jnp.isfinite, "is it neither infinite nor NaN?"),
    "signbit": Row(jnp.signbit, "is the sign bit set?", "x: f"),
    "conjugate": Row(jnp.conjugate, "the complex conjugate", _NUMBER, linear(0)),
    "real": Row(jnp.real, "the real part", _NUMBER, linear(0)),
    "imag": Row(jnp.imag, "the imaginary part", "x: c", linear(0)),
    "angle": Row(jnp.angle, "the angle of a complex number", "x: c"),
    "logical_not": Row(jnp.logical_not, "not x", _ANY),
    "invert": Row(jnp.invert, "every bit flipped", "x: ib"),
    "erf": Row(jax.scipy.special.erf, "the error function", "x: f"),
    "sigmoid": Row(jax.nn.sigmoid, "1 / (1 + exp(-x))", "x: f"),
    "relu": Row(jax.nn.relu, "max(x, 0)", "x: fi"),
    "gelu": Row(jax.nn.gelu, "the Gaussian error linear unit, by tanh", "x: f"),
    "silu": Row(jax.nn.silu, "x · sigmoid(x)", "x: f"),
    "softplus": Row(jax.nn.softplus, "log(1 + exp(x))", "x: f"),
    "log_sigmoid": Row(jax.nn.log_sigmoid, "log(sigmoid(x))", "x: f"),
    # two operands
    "add": Row(jnp.add, "x + y", _TWO, linear(0, 1, jointly=True)),
    "subtract": Row(jnp.subtract, "x - y", _TWO, linear(0, 1, jointly=True)),
    "multiply": Row(jnp.multiply, "x · y", _TWO, (*linear(0, 1), Passing(ReduceOp.PROD, (0, 1), jointly=True))),
    "divide": Row(jnp.divide, "x / y", "x, y: fc", linear(0)),
    "floor_divide": Row(jnp.floor_divide, "⌊x / y⌋", _ORDERED),
    "remainder": Row(jnp.remainder, "x - y · ⌊x / y⌋", _ORDERED),
    "fmod": Row(jnp.fmod, "the remainder with the sign of x", _ORDERED),
    "float_power": Row(jnp.float_power, "x to the y, as floats", "x, y: f"),
    "maximum": Row(jnp.maximum, "the larger of two", _ORDERED, _max(ReduceOp.MAX)),
    "minimum": Row(jnp.minimum, "the smaller of two", _ORDERED, _max(ReduceOp.MIN)),
    "fmax": Row(jnp.fmax, "the larger of two, NaN losing", _FLOATS),
    "fmin": Row(jnp.fmin, "the smaller of two, NaN losing", _FLOATS),
    "arctan2": Row(jnp.arctan2, "the angle of the point (y, x)", _FLOATS),
    "hypot": Row(jnp.hypot, "√(x² + y²)", _FLOATS),
    "logaddexp": Row(jnp.logaddexp, "log(exp(x) + exp(y))", _FLOATS),
    "copysign": Row(jnp.copysign, "x with the sign of y", _FLOATS),
    "equal": Row(jnp.equal, "x == y", _LOGICAL),
    "not_equal": Row(jnp.not_equal, "x != y", _LOGICAL),
    "less": Row(jnp.less, "x < y", _ORDERED),
    "less_equal": Row(jnp.less_equal, "x <= y", _ORDERED),
    "greater": Row(jnp.greater, "x > y", _ORDERED),
    "greater_equal": Row(jnp.greater_equal, "x >= y", _ORDERED),
    "logical_and": Row(jnp.logical_and, "x and y", _LOGICAL),
    "logical_or": Row(jnp.logical_or, "x or y", _LOGICAL),
    "logical_xor": Row(jnp.logical_xor, "either x or y", _LOGICAL),
    "bitwise_and": Row(jnp.bitwise_and, "x & y", _INTS),
    "bitwise_or": Row(jnp.bitwise_or, "x | y", _INTS),
    "bitwise_xor": Row(jnp.bitwise_xor, "x ^ y", _INTS),
    "left_shift": Row(jnp.left_shift, "x · 2^y", "x, y: i"),
    "right_shift": Row(jnp.right_shift, "⌊x / 2^y⌋", "x, y: i"),
    # three
    "where": Row(jnp.where, "x where the condition holds, else y", "condition, x, y: fcib",
                 linear(1, 2, jointly=True)),
    "clip": Row(jnp.clip, "x, no smaller than least and no larger than most", "x, least, most: fi"),
}  # fmt: skip


def _padding(value: float) -> Callable[[Any], Any]:
    """What padding is for a function of one element: a value where it has no pole and no kink."""
    return lambda dtype: value if jnp.issubdtype(dtype, jnp.inexact) else 1


def _op(name: str, row: Row) -> tuple[Kernel, Callable[..., Any]]:
    passing = row.passing
    kernel = Kernel(
        name,
        lambda shapes: elementwise(shapes, passing),
        lambda here, *blocks: row.function(*blocks),
        _padding(row.padding),
    )
    operands = row.takes.partition(":")[0].split(", ")
    ones = {"i": "1", "b": "True"}.get(row.takes.partition(": ")[2][0], "0.5")
    example = f">>> lamina.{name}({', '.join(f'lamina.tensor([{ones}])' for _ in operands)}).shape\n(1,)"
    if row.takes == "x: c":
        example = f">>> lamina.{name}(lamina.tensor([1j])).shape\n(1,)"
    if len(operands) == 1:
        return kernel, with_signature(lambda x: compute(kernel, (x,)), name, operands, row.says, example, __name__)
    if len(operands) == 2:
        return kernel, with_signature(lambda x, y: compute(kernel, (x, y)), name, operands, row.says, example, __name__)
    return kernel, with_signature(lambda *all_of: compute(kernel, all_of), name, operands, row.says, example, __name__)


_MADE = {name: _op(name, row) for name, row in TABLE.items()}
KERNELS = {name: kernel for name, (kernel, _) in _MADE.items()}
globals().update({name: function for name, (_, function) in _MADE.items()})

_INTEGER_POWER = Kernel(
    "power", lambda shapes, exponent: elementwise(shapes), lambda here, x, n: jnp.power(x, n), _padding(0.5)
)
_POWER = Kernel("power", elementwise, lambda here, x, y: jnp.power(x, y), _padding(0.5))
_AS_TYPE = Kernel(
    "astype",
    lambda shapes, dtype, keeps_sums: elementwise(shapes, linear(0) if keeps_sums else ()),
    lambda here, x, dtype, keeps_sums: x.astype(dtype),
    _padding(0.5),
)


def power(x: Any, y: Any) -> Any:
    """x to the y; a Python integer y stays exact, as in jnp.

    >>> import lamina
    >>> lamina.power(lamina.tensor([-3.0]), 2).tolist()
    [9.0]
    """
    if type(y) is int:
        return compute(_INTEGER_POWER, (x,), (y,))
    return compute(_POWER, (x, y))


def clip(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Any:
    """x, no smaller than `min` and no larger than `max`; None is no bound.  `a_min` and `a_max` are numpy's names.

    >>> import lamina
    >>> lamina.clip(lamina.tensor([-1.0, 0.5, 3.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    least, most = a_min if min is None else min, a_max if max is None else max
    if least is None or most is None:
        bounded = x if least is None else globals()["maximum"](x, least)
        return bounded if most is None else globals()["minimum"](bounded, most)
    return compute(KERNELS["clip"], (x, least, most))


def astype(x: Any, dtype: Any) -> Any:
    """x with elements of another dtype.

    >>> import lamina
    >>> lamina.astype(lamina.tensor([1.5]), "int32").tolist()
    [1]
    """
    given, wanted = jnp.result_type(getattr(x, "dtype", x)), jnp.dtype(dtype)
    keeps_sums = jnp.issubdtype(given, jnp.inexact) and jnp.issubdtype(wanted, jnp.inexact)
    return compute(_AS_TYPE, (x,), (wanted, bool(keeps_sums)))


if TYPE_CHECKING:  # the names of the table

    def __getattr__(name: str) -> Callable[..., Any]: ...


__all__ = ["astype", "power", *TABLE]
