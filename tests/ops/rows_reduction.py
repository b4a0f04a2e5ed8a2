"""The rows of lamina.ops.reduction."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import lamina
from tests.ops.rows import Operand, Row


def _over(name: str, operand: Operand, case: str = "", gradient: bool = True, **params: Any) -> Row:
    plain = getattr(jax.nn if name == "logsumexp" else jnp, name)

    def op(x: Any) -> Any:
        return getattr(lamina, name)(x, **params)

    def oracle(x: Any) -> Any:
        return plain(x, **params)

    return Row(name, (operand,), op, oracle, case or str(params.get("axis")), gradient)


X, TIES, NARROW = Operand((4, 5)), Operand((4, 5), ties=True), Operand((4, 5), low=0.5, high=1.5)
INTS, BOOLS, HALF = Operand((4, 5), "int32"), Operand((4, 5), "bool"), Operand((4, 5), "bfloat16", ties=True)

ROWS = (
    _over("sum", X),
    _over("sum", X, axis=0),
    _over("sum", X, "keepdims", axis=(0, -1), keepdims=True),
    _over("sum", Operand((4, 0)), "empty", axis=1),
    _over("sum", BOOLS, "bool", axis=0),
    _over("sum", Operand((4, 5), "complex64"), "complex", axis=1),
    _over("prod", NARROW, axis=0),
    _over("prod", INTS, "int"),
    *(_over(name, operand, case, axis=axis) for name in ("max", "min")
      for operand, case, axis in [(X, "1", 1), (TIES, "ties", 0), (TIES, "all", None), (INTS, "int", 1)]),
    *(_over(name, operand, case, False, axis=axis) for name in ("any", "all")
      for operand, case, axis in [(BOOLS, "0", 0), (INTS, "int", None)]),
    *(_over(name, operand, case, False, axis=axis) for name in ("argmax", "argmin")
      for operand, case, axis in [(X, "1", 1), (TIES, "ties", 0), (TIES, "all", None)]),
    _over("mean", X),
    _over("mean", X, axis=1),
    _over("mean", INTS, "int", axis=0),
    _over("var", X, axis=1),
    _over("var", X, "ddof", axis=0, ddof=1, keepdims=True),
    _over("std", X),
    _over("logsumexp", X, axis=1),
    _over("logsumexp", X, "keepdims", axis=0, keepdims=True),
)  # fmt: skip
