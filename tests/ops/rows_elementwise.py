"""The rows of lamina.ops.elementwise.  One operand is 4×5, two broadcast: 4×5 with 5."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import lamina
from lamina.ops.elementwise import TABLE
from tests.ops.rows import Operand, Row

# Where a function has poles, kinks or no value at all: its operands' ranges.
POSITIVE, INSIDE, ABOVE = (0.25, 3.0), (-0.75, 0.75), (1.25, 3.0)
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(["sqrt", "rsqrt", "log", "log2", "log10", "log1p", "reciprocal", "float_power", "cbrt"], POSITIVE),
    **dict.fromkeys(["divide", "floor_divide", "remainder", "fmod", "hypot", "arctan2"], POSITIVE),
    **dict.fromkeys(["arcsin", "arccos", "arctanh", "tan"], INSIDE),
    "arccosh": ABOVE,
    "left_shift": (0, 3),
    "right_shift": (0, 3),
}
# Their gradient is 0, or there is none.
STEPS = {"floor", "ceil", "trunc", "rint", "sign", "floor_divide"}
ANSWERS = {
    *("isnan", "isinf", "isfinite", "signbit", "logical_not", "logical_and", "logical_or", "logical_xor"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
}

ORACLES: dict[str, Any] = {
    "rsqrt": jax.lax.rsqrt,
    "erf": jax.scipy.special.erf,
    **{name: getattr(jax.nn, name) for name in ("sigmoid", "relu", "gelu", "silu", "softplus", "log_sigmoid")},
    "clip": lambda x, least, most: jnp.minimum(jnp.maximum(x, least), most),
}


def _rows() -> list[Row]:
    rows = []
    for name, row in TABLE.items():
        operands, _, kinds = row.takes.partition(": ")
        count = len(operands.split(","))
        dtype = {"f": "float32", "c": "complex64", "i": "int32", "b": "bool"}[kinds[0]]
        low, high = RANGES.get(name, (-3.0, 3.0))
        shapes = [(4, 5), (5,), (4, 1)][:count]
        drawn = [Operand(shape, dtype, low, high) for shape in shapes]
        if name == "where":
            drawn = [Operand((4, 5), "bool"), Operand((5,)), Operand((4, 1))]
        rows.append(Row(name, tuple(drawn), oracle=ORACLES.get(name), gradient=name not in STEPS | ANSWERS))
    return rows


def _as_type(x: Any) -> Any:
    return x.astype("bfloat16")


ROWS = (
    *_rows(),
    Row("add", (Operand((4, 5)), Operand((4, 5))), case="same"),
    Row("add", (Operand((4, 5), "int32"), Operand((4, 5), "bool")), case="int-bool"),
    Row("multiply", (Operand((3, 4, 5)), Operand((4, 5))), case="3d"),
    Row("multiply", (Operand((4, 5), "complex64"), Operand((4, 5))), case="complex"),
    Row("multiply", (Operand((5,)), Operand(())), case="0-d"),
    Row("subtract", (Operand((0, 5)), Operand((1, 5))), case="empty"),
    Row("maximum", (Operand((4, 5), ties=True), Operand((4, 5), ties=True)), case="ties"),
    Row("power", (Operand((4, 5), low=0.25), Operand((5,)))),
    Row("power", (Operand((4, 5)),), lambda x: lamina.power(x, 3), lambda x: jnp.power(x, 3), case="integer"),
    Row("astype", (Operand((4, 5)),), _as_type, _as_type, tolerance=1e-2),
    Row("astype", (Operand((4, 5), "int32"),), lambda x: x.astype("float32"), lambda x: x.astype("float32"), "int"),
)
