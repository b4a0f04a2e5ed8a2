"""The rows of lamina.ops.scans and lamina.ops.sorting."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import lamina
from tests.ops.rows import Operand, Row

X, TIES, INTS = Operand((4, 5)), Operand((4, 7), ties=True), Operand((4, 5), "int32")
BOOLS, LONG = Operand((4, 5), "bool"), Operand((9,))


def _along(name: str, operand: Operand, axis: int | None, case: str = "", gradient: bool = True, **more: Any) -> Row:
    plain = getattr(jax.lax if name in ("cummax", "cummin") else jnp, name)

    def op(x: Any) -> Any:
        return getattr(lamina, name)(x, axis, **more)

    def oracle(x: Any) -> Any:
        return plain(x, axis=axis, **more)

    return Row(name, (operand,), op, oracle, f"{case}{axis}", gradient)


def _best(operand: Operand, k: int, axis: int, which: int, case: str) -> Row:
    def oracle(x: Any) -> Any:
        return jnp.moveaxis(jax.lax.top_k(jnp.moveaxis(x, axis, -1), k)[which], -1, axis)

    return Row("top_k", (operand,), lambda x: lamina.top_k(x, k, axis)[which], oracle, case, which == 0)


def _search(values: Operand, side: str) -> Row:
    def op(a: Any, v: Any) -> Any:
        return lamina.searchsorted(lamina.sort(a), v, side)

    def oracle(a: Any, v: Any) -> Any:
        return jnp.searchsorted(jnp.sort(a), v, side=side)

    return Row("searchsorted", (Operand((9,), ties=True), values), op, oracle, side, False)


ROWS = (
    _along("cumsum", X, 0),
    _along("cumsum", X, None),
    _along("cumsum", BOOLS, 1, "bool"),
    _along("cumsum", Operand((3, 0)), 1, "empty"),
    _along("cumprod", Operand((4, 5), low=0.5, high=1.5), 1),
    _along("cumprod", Operand((7,), low=-2, high=2, ties=True), 0, "zeros"),
    _along("cummax", X, 1),
    _along("cummin", INTS, 0, "int"),
    _along("sort", X, 1),
    _along("sort", LONG, 0, "flat", descending=True),
    _along("argsort", TIES, 0, "ties", False),
    _best(X, 2, 1, 0, "values"),
    _best(TIES, 2, 1, 1, "numbers"),
    _best(LONG, 3, 0, 0, "flat"),
    _best(LONG, 7, 0, 1, "most"),
    _search(Operand((2, 3), ties=True), "left"),
    _search(Operand((5,), ties=True), "right"),
)
