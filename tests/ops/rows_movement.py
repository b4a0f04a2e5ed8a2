"""The rows of lamina.ops.movement, rearranging, indexing and getitem: ops that say where elements stand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lamina
from tests.ops.rows import Operand, Row

X, WIDE, FLAT = Operand((4, 5)), Operand((2, 3, 4)), Operand((7,))
INTS, BOOLS = Operand((4, 5), "int32"), Operand((4, 5), "bool")


def _with(name: str, operand: Operand, *arguments: Any, case: str = "", oracle: Any = None, **params: Any) -> Row:
    """`lamina.<name>(x, *arguments)` beside jnp's."""
    plain = oracle or getattr(jnp, name)

    def op(x: Any) -> Any:
        return getattr(lamina, name)(x, *arguments, **params)

    def expected(x: Any) -> Any:
        return plain(x, *arguments, **params)

    shown = case or ",".join(map(str, (*arguments, *params.values())))
    return Row(name, (operand,), op, expected, shown)


MOVEMENT = (
    _with("reshape", WIDE, (6, 4)),
    _with("reshape", Operand((4, 6)), (2, -1, 3), case="cut"),
    _with("reshape", Operand((4, 6)), (6, 4), case="across"),
    _with("reshape", Operand((5, 2, 2)), (2, 10), case="uneven"),
    _with("ravel", X),
    _with("transpose", WIDE, (2, 0, 1)),
    _with("matrix_transpose", WIDE),
    _with("swapaxes", WIDE, 0, -1),
    _with("moveaxis", WIDE, (0, 1), (-1, 0)),
    _with("expand_dims", X, (0, 2)),
    _with("squeeze", Operand((4, 1, 5))),
    _with("broadcast_to", Operand((4, 1)), (2, 4, 3)),
    Row("stack", (X, X), lambda x, y: lamina.stack([x, y], 1), lambda x, y: jnp.stack([x, y], 1)),
    _with("tril", X, 1),
    _with("triu", BOOLS, -1, case="bool"),
)

REARRANGING = (
    _with("flip", X),
    _with("flip", INTS, 0, case="int"),
    _with("roll", X, (1, -2), (0, 1)),
    _with("roll", FLAT, 3),
    _with("pad", X, ((1, 2), (0, 3))),
    _with("pad", X, 1, constant_values=2.0, case="constant"),
    _with("pad", FLAT, (2, 9), mode="reflect"),
    _with("pad", X, 2, mode="edge"),
    _with("repeat", X, 3, 0),
    _with("repeat", X, np.array([1, 0, 3, 2, 1]), 1, case="each"),
    _with("tile", X, (2, 1, 3)),
    _with("diff", X, 2),
    Row(
        "concatenate",
        (X, Operand((2, 5))),
        lambda x, y: lamina.concatenate([x, y, x]),
        lambda x, y: jnp.concatenate([x, y, x]),
    ),
    Row(
        "concatenate",
        (Operand((5,)), Operand((4,), "int32")),
        lambda x, y: lamina.concatenate([x, y]),
        lambda x, y: jnp.concatenate([x, y]),
        "flat",
    ),
    Row("split", (Operand((3, 6)),), lambda x: lamina.split(x, 2, 1)[1], lambda x: jnp.split(x, 2, 1)[1]),
    Row("array_split", (X,), lambda x: lamina.array_split(x, 3, 1)[0], lambda x: jnp.array_split(x, 3, 1)[0]),
)

NUMBERS = Operand((3, 2), "int32", 0, 3)
PLACE = Operand((), "int32", -4, 4)
INDICES: dict[str, Any] = {
    "slices": np.s_[1:4, ::2],
    "backwards": np.s_[::-1, 3:0:-2],
    "empty": np.s_[2:2],
    "number": np.s_[-1],
    "numbers": np.s_[1, -2],
    "new": np.s_[None, 1:, None, 2],
    "dots": np.s_[..., 3:],
    "tensor": np.s_[:, np.array([[4, 0], [-1, 2]])],
    "tensors": np.s_[np.array([1, 3]), np.array([[0], [4]])],
    "mask": np.s_[:, np.array([True, False, False, True, True])],
    "masks": np.s_[np.arange(20).reshape(4, 5) % 3 == 1],
    "mixed": np.s_[2, 1:4, np.array([1, 0])],
}


def _at(name: str, index: Any) -> Row:
    operand = Operand((4, 5, 3)) if name == "mixed" else X
    return Row("getitem", (operand,), lambda x: x[index], lambda x: x[index], name)


def _oracle_along(x: Any, index: Any) -> Any:
    return jnp.take_along_axis(x, index, 1)


def _updated(x: Any, part: Any, start: Any) -> Any:
    return lamina.dynamic_update_slice(x, part, (start, 0))


INDEXING = (
    *(_at(name, index) for name, index in INDICES.items()),
    Row("getitem", (X, PLACE), lambda x, i: x[i], lambda x, i: x[i], "unknown"),
    Row("getitem", (BOOLS,), lambda x: x[[2, 0], 1:], lambda x: x[np.array([2, 0]), 1:], "bool"),
    Row("take", (X, NUMBERS), lambda x, i: lamina.take(x, i, 0), lambda x, i: jnp.take(x, i, 0)),
    Row(
        "take_along_axis",
        (X, Operand((4, 3), "int32", 0, 4)),
        lambda x, i: lamina.take_along_axis(x, i, 1),
        _oracle_along,
    ),
    Row(
        "take_along_axis",
        (INTS, Operand((1, 2), "int32", 0, 4)),
        lambda x, i: lamina.take_along_axis(x, i, 1),
        lambda x, i: _oracle_along(x, jnp.broadcast_to(i, (4, 2))),
        "stretched",
    ),
    Row("one_hot", (NUMBERS,), lambda i: lamina.one_hot(i, 4, axis=1), lambda i: jax.nn.one_hot(i, 4, axis=1)),
    Row(
        "dynamic_update_slice",
        (X, Operand((2, 5)), PLACE),
        _updated,
        lambda x, part, start: jax.lax.dynamic_update_slice(x, part, (start, 0)),
    ),
    Row(
        "dynamic_update_slice",
        (X, Operand((3, 2))),
        lambda x, part: lamina.dynamic_update_slice(x, part, (1, 2)),
        lambda x, part: jax.lax.dynamic_update_slice(x, part, (1, 2)),
        "inside",
    ),
)

PART = Operand((2, 3))
MASK = np.arange(20).reshape(4, 5) % 3 == 1
UPDATES = (
    Row(
        "at",
        (X, PART),
        lambda x, v: x.at[1:3, 4:1:-1].set(v),
        lambda x, v: jnp.asarray(x).at[1:3, 4:1:-1].set(v),
        "set",
    ),
    Row("at", (X,), lambda x: x.at[2].set(1.5), lambda x: jnp.asarray(x).at[2].set(1.5), "number"),
    Row(
        "at",
        (X, Operand((3,))),
        lambda x, v: x.at[..., None, -1::-2].add(v),
        lambda x, v: jnp.asarray(x).at[..., None, -1::-2].add(v),
        "add",
    ),
    Row("at", (INTS,), lambda x: x.at[1:].multiply(3), lambda x: jnp.asarray(x).at[1:].multiply(3), "multiply"),
    Row("at", (X,), lambda x: x.at[MASK].set(0), lambda x: jnp.where(MASK, 0, x), "mask"),
)

ROWS = (*MOVEMENT, *REARRANGING, *INDEXING, *UPDATES)
