"""The rows of lamina.ops.linalg."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import lamina
from tests.ops.rows import Operand, Row


def _einsum(subscripts: str, *shapes: tuple[int, ...]) -> Row:
    def op(*operands: Any) -> Any:
        return lamina.einsum(subscripts, *operands)

    def oracle(*operands: Any) -> Any:
        return jnp.einsum(subscripts, *operands)

    return Row("einsum", tuple(map(Operand, shapes)), op, oracle, subscripts)


ROWS = (
    Row("matmul", (Operand((4, 5)), Operand((5, 6)))),
    Row("matmul", (Operand((2, 3, 4)), Operand((4, 5))), case="batch"),
    Row("matmul", (Operand((5,)), Operand((5, 4))), case="vector"),
    Row("matmul", (Operand((4, 5), "int32"), Operand((5, 3), "int32")), case="int"),
    Row("matmul", (Operand((3, 0)), Operand((0, 4))), case="empty"),
    _einsum("ij,jk->ik", (4, 5), (5, 3)),
    _einsum("ij,jk->ki", (4, 5), (5, 3)),
    _einsum("bij,bkj->bik", (2, 4, 5), (2, 3, 5)),
    _einsum("ij,ij->", (4, 5), (4, 5)),
    _einsum("ij->j", (4, 5)),
    _einsum("ii->i", (4, 4)),
    _einsum("i,j->ij", (4,), (5,)),
    _einsum("...i,...i->...", (3, 4), (3, 4)),
    Row(
        "tensordot",
        (Operand((4, 5)), Operand((3, 5))),
        lambda x, y: lamina.tensordot(x, y, ((1,), (1,))),
        lambda x, y: jnp.tensordot(x, y, ((1,), (1,))),
    ),
    Row("dot", (Operand((4, 5)), Operand((5,)))),
    Row("outer", (Operand((4,)), Operand((5,)))),
)
