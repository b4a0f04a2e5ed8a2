"""What an op says when it can't compute: the fact, the operands as they lie, and the way out.  Texts are pinned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina
from lamina.errors import ImplicitReshard, LayoutError, ReshardError
from tests.engine.oracles import mesh_of

MESH, OTHER = mesh_of({"x": 2, "y": 2}, "simulated"), mesh_of({"x": 3}, "simulated")
X = lamina.shard(np.ones((4, 5), "float32"), MESH, ["x"])
W = lamina.shard(np.ones((4, 6), "float32"), MESH, ["y"])
ELSEWHERE = lamina.shard(np.ones((4, 5), "float32"), OTHER, ["x"])
LIE = "\n  operand 0: [4, 5] lying as [x=2,y=2] x,-\n  operand 1: [4, 6] lying as [x=2,y=2] y,-"
FIRST = "\n  operand 0: [4, 5] lying as [x=2,y=2] x,-"

LAYOUT_ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "broadcast": (
        lambda: X + W,
        f"add: shapes (4, 5) and (4, 6) don't broadcast: dim -1 is 5 and 6{LIE}\n"
        "  fix: dims must be equal, or 1, counted from the last",
    ),
    "host array": (
        lambda: X + np.ones(7, "float32"),
        f"add: shapes (4, 5) and (7,) don't broadcast: dim -1 is 5 and 7{FIRST}\n"
        "  operand 1: [7] lying as [x=2,y=2] -\n  fix: dims must be equal, or 1, counted from the last",
    ),
    "three": (
        lambda: lamina.where(X > 0, X, W),
        "where: shapes (4, 5) and (4, 5) and (4, 6) don't broadcast: dim -1 is 5 and 6"
        f"{FIRST}\n  operand 1: [4, 5] lying as [x=2,y=2] x,-\n  operand 2: [4, 6] lying as [x=2,y=2] y,-\n"
        "  fix: dims must be equal, or 1, counted from the last",
    ),
    "matmul": (
        lambda: X @ W,
        f"matmul: shapes (4, 5) and (4, 6): the last dim of x is 5, and y has 4 rows{LIE}\n"
        "  fix: the two must be equal",
    ),
    "matmul of a scalar": (
        lambda: lamina.matmul(X, 2.0),
        f"matmul: shapes (4, 5) and (): matmul takes no scalars{FIRST}\n  fix: multiply instead",
    ),
    "meshes": (
        lambda: X + ELSEWHERE,
        "add: the operands lie on different meshes: [4, 5] lying as [x=2,y=2] x,- on "
        f"{MESH!r}; [4, 5] lying as [x=3] x,- on {OTHER!r}\n"
        "  fix: bring them to one mesh with lamina.shard(x, mesh, ...)",
    ),
    "meshes of three": (
        lambda: lamina.where(X > 0, 1.0, ELSEWHERE),
        "where: the operands lie on different meshes: [4, 5] lying as [x=2,y=2] x,- on "
        f"{MESH!r}; [4, 5] lying as [x=3] x,- on {OTHER!r}\n"
        "  fix: bring them to one mesh with lamina.shard(x, mesh, ...)",
    ),
    "axis": (
        lambda: X.sum(axis=2),
        "sum(axis=2): axis=2 is out of range for a tensor of rank 2\n  shape: (4, 5)\n  fix: name a dim from -2 to 1",
    ),
    "axes": (
        lambda: X.max(axis=(0, 3, -4)),
        "max(axis=(0, 3, -4)): axis=3 is out of range for a tensor of rank 2; axis=-4 is out of range for a tensor of "
        "rank 2\n  shape: (4, 5)\n  fix: name a dim from -2 to 1",
    ),
    "axis twice": (
        lambda: lamina.mean(X, axis=(0, -2)),
        "mean(axis=(0, -2)): axis=(0, -2) names a dim twice\n  shape: (4, 5)\n  fix: name each dim once",
    ),
    "argmax": (
        lambda: lamina.argmax(X, axis=3),
        "argmax(axis=3): axis=3 is out of range for a tensor of rank 2\n  shape: (4, 5)\n"
        "  fix: name a dim from -2 to 1",
    ),
    "nothing to take": (
        lambda: lamina.max(np.ones((0, 3)), axis=0),
        "max(axis=0) of shape (0, 3): there is nothing to take it from\n  fix: reduce dims that aren't empty",
    ),
    "einsum rank": (
        lambda: lamina.einsum("ijk,jk->i", X, W),
        f"einsum: subscripts 'ijk' don't fit operand 0 of rank 2{LIE}\n  fix: write one letter per dim",
    ),
    "einsum sizes": (
        lambda: lamina.einsum("ij,ij->i", X, W),
        f"einsum: 'ij,ij->i': the dims 'j' have different sizes, 5 and 6{LIE}\n"
        "  fix: dims with one letter must be equal",
    ),
    "einsum count": (
        lambda: lamina.einsum("ij->i", X, W),
        f"einsum: subscripts 'ij->i' are for 1 operands, not 2{LIE}\n  fix: separate the operands' letters by commas",
    ),
    "einsum result": (
        lambda: lamina.einsum("ij->k", X),
        f"einsum: subscripts 'ij->k': ['k'] of the result stand in no operand{FIRST}\n"
        "  fix: name letters of the operands after the arrow",
    ),
    "einsum twice": (
        lambda: lamina.einsum("ij->ii", X),
        f"einsum: subscripts 'ij->ii': a letter stands twice in the result{FIRST}\n"
        "  fix: name each letter once after the arrow",
    ),
    "tensordot": (
        lambda: lamina.tensordot(X, W, axes=3),
        "tensordot(axes=3): there are no 3 dims to sum over in tensors of ranks 2 and 2\n"
        "  fix: name as many dims of x as of y, or how many at the end of x",
    ),
    "tensordot pairs": (
        lambda: lamina.tensordot(X, W, axes=((0, 1), (0,))),
        "tensordot(axes=((0, 1), (0,))): 2 dims of x and 1 of y can't be paired\n"
        "  fix: name as many dims of x as of y, or how many at the end of x",
    ),
    "outer": (
        lambda: lamina.outer(X, W),
        "outer takes two 1-D tensors, not ranks 2 and 2\n  fix: reshape them to 1-D, or use einsum",
    ),
}


@pytest.mark.parametrize("name", LAYOUT_ERRORS)
def test_layout_errors(name: str) -> None:
    call, text = LAYOUT_ERRORS[name]
    with pytest.raises(LayoutError) as failure:
        call()
    assert str(failure.value) == text
    assert X.sum().item() == 20  # the operands are as they were


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: X.sum(axis=1.5), "axis must be an integer, not 1.5"),
        (lambda: lamina.add(X, "a"), "add(x) takes a Tensor, an array or numbers, not str 'a'"),
        (lambda: lamina.add(X, None), "add(x) takes a Tensor, an array or numbers, not NoneType None"),
        (lambda: lamina.einsum(X, X), "einsum(subscripts) must be a string such as 'ij,jk->ik', not Tensor"),
        (lambda: X.astype("nonsense"), "data type 'nonsense' not understood"),
    ],
)
def test_type_errors(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError) as failure:
        call()
    assert str(failure.value) == text


def test_reshards_can_be_refused() -> None:
    columns = lamina.shard(X, MESH, [None, "x"])
    with pytest.raises(ReshardError) as failure, lamina.on_reshard("raise"):
        _ = X + columns
    fact, fix = str(failure.value).split("\n")
    assert fact.startswith("add moves operand 1, [4, 5] lying as [x=2,y=2] -,x: ") and fact.endswith(" B per device")
    assert fix == (
        "  fix: say it yourself, lamina.shard(operand, mesh, ['x', None]), or allow it: lamina.on_reshard('allow')"
    )
    with lamina.on_reshard("raise"):  # the call that it names
        _ = X + lamina.shard(columns, MESH, ["x", None])


def test_reshards_can_be_warned_of_where_they_are() -> None:
    pieces = lamina.shard(X, MESH, [], partial=["y"])
    with lamina.on_reshard("warn"), pytest.warns(ImplicitReshard) as seen:
        lamina.exp(pieces)
    assert str(seen[0].message) == (
        "exp moves operand 0, [4, 5] lying as [x=2,y=2] -,- +sum(y): all-reduce sum over y, 80 B per device\n"
        "  fix: say it yourself, lamina.shard(operand, mesh, [None, None]), or allow it: lamina.on_reshard('allow')"
    )
    assert seen[0].filename == __file__


def test_a_policy_that_is_none() -> None:
    with pytest.raises(ValueError) as failure, lamina.on_reshard("maybe"):
        pass
    assert str(failure.value) == "on_reshard(policy='maybe'): it must be one of 'allow', 'warn', 'raise'"
