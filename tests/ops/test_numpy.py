"""Python's operators and numpy's protocols on a Tensor: the values and dtypes of jnp, whatever it is mixed with."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina.errors import LayoutError
from lamina.sharding.layout import Layout
from tests.engine.oracles import mesh_of
from tests.ops.checks import assert_value, close
from tests.ops.laying import tensor_of

AXES = {"x": 2, "y": 2}
A = np.arange(20, dtype="float32").reshape(4, 5) - 7
B = np.arange(5, dtype="float32") + 1
LAYOUTS = [Layout(AXES, [("x",), ("y",)]), Layout(AXES, [(), ()], {"x": "sum", "y": "sum"})]

# Each is a formula of x, a Tensor or a jnp array; b and c are host and device arrays.
FORMULAS = (
    *("x + 2", "2 - x", "x * True", "x * 1j", "3 * x", "1 / (x + 0.5)", "2**x", "x**2", "x**-1", "abs(x) ** 0.5"),
    *(
        "x // 2",
        "x % 3",
        "7 // (x + 0.5)",
        "divmod(x, 3)[1]",
        "-x",
        "+x",
        "abs(x)",
        "x == b",
        "b > x",
        "b <= x",
        "x != 2",
    ),
    *(
        "np.float32(3) * x",
        "x + np.bool_(True)",
        "x - np.int32(2)",
        "x + np.array(2.0, 'f')",
        "b + x",
        "c + x",
        "x * c",
    ),
    *("np.ones((2, 4), 'f') @ x", "x @ b", "np.add(x, 2)", "np.multiply(b, x)", "np.exp(x / 10)", "np.maximum(x, b)"),
    *(
        "np.sum(x, axis=0, keepdims=True)",
        "np.mean(x, axis=1)",
        "np.std(x, ddof=1)",
        "np.var(x, axis=0, keepdims=True)",
    ),
    *("np.max(x, axis=1, keepdims=True)", "np.amin(x)", "np.prod(x, axis=0)", "np.any(x > 5)", "np.argmax(x, axis=1)"),
    *("np.clip(x, -2, 3)", "np.clip(x, -2, None)", "x.clip(max=3)", "x.clip(-2, 3)"),
    *(
        "np.where(x > 0, x, 0)",
        "np.where(x > 0, 1.0, x)",
        "np.einsum('ij,j->i', x, b)",
        "np.dot(x, b)",
        "np.round(x / 3)",
    ),
    *("np.tensordot(x, b, axes=1)", "np.abs(x)", "np.true_divide(x, 2)", "np.logical_and(x > 0, x < 3)", "np.conj(x)"),
    *(
        "x.sum(axis=1, keepdims=True)",
        "x.mean()",
        "x.max(0)",
        "x.astype('int32') & 3",
        "~(x > 0)",
        "x.astype('int32') << 1",
    ),
    *("np.concatenate([x, x], axis=1)", "np.transpose(x)", "np.reshape(x, (5, 4))", "np.cumsum(x, axis=1)", "x.T"),
    *("np.float_power(abs(x) + 1, b)", "np.hypot(x, b)", "np.sum(x.astype('int32'), dtype='float32')", "x.var(axis=1)"),
)


CASES = [(formula, layout) for i, formula in enumerate(FORMULAS) for layout in LAYOUTS[i % 2 :][:1]]


@pytest.mark.parametrize(("formula", "layout"), CASES, ids=str)
def test_formulas(formula: str, layout: Layout) -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), layout)
    names: dict[str, Any] = {"np": np, "b": B, "c": jnp.asarray(B)}
    found = eval(formula, {**names, "x": x})
    with np.errstate(all="ignore"):  # the oracle: the same formula of jnp
        expected = eval(formula.replace("np.", "jnp.") if "np.float32" not in formula else formula,
                        {**names, "np": np, "jnp": jnp, "b": jnp.asarray(B), "x": jnp.asarray(A)})  # fmt: skip
    assert_value(found, expected, 1e-4, formula)


@pytest.mark.parametrize(
    "call, fact",
    [
        (lambda x: np.add.reduce(x), r"np.add.reduce has no op in Lamina"),
        (lambda x: np.add.outer(x, B), r"np.add.outer has no op in Lamina"),
        (lambda x: np.exp(x, out=np.zeros((4, 5), "f")), r"np.exp with out has no op in Lamina"),
        (lambda x: np.max(x, initial=3.0), r"np.max with initial has no op in Lamina"),
        (lambda x: np.linalg.norm(x), r"np.norm has no op in Lamina"),
        (lambda x: np.spacing(x), r"np.spacing has no op in Lamina"),
    ],
)
def test_what_has_no_op_is_an_error_and_no_silent_copy(call: Any, fact: str) -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), LAYOUTS[0])
    with pytest.raises(LayoutError, match=f"^{fact}, so it can't take a Tensor\n  fix: use lamina.apply"):
        call(x)


def test_what_is_no_number_is_left_to_python() -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), LAYOUTS[0])
    for call in (lambda: x + "a", lambda: x < None, lambda: [1] * x):
        with pytest.raises(TypeError):
            call()
    assert (x == "a") is False and (x != None) is True  # noqa: E711


def test_clip_takes_numpys_names() -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), LAYOUTS[0])
    assert_value(np.clip(x, a_min=-2, a_max=3), np.clip(A, -2, 3))
    assert x.clip() is x


def test_shape_questions_answer_without_a_read() -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), LAYOUTS[0])
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((4, 5), 2, 20)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize("number", [True, 2, 2.0, 2j, np.float32(2), np.int8(2), np.asarray(2.0, "float16")], ids=repr)
def test_numbers_promote_as_in_jnp(dtype: str, number: Any) -> None:
    """Python's numbers are weak, numpy's and arrays are not."""
    a = jnp.asarray(A[0] > 0 if dtype == "bool" else abs(A[0]), dtype)
    mesh = mesh_of(AXES, "simulated")
    for layout in (Layout(AXES, [("y",)]), Layout(AXES, [()], {"x": "sum"})):
        x = tensor_of(np.asarray(a), mesh, layout)
        for op in ("add", "multiply", "maximum")[:: 1 if dtype == "bfloat16" else 2]:
            if (op == "maximum" and type(number) is complex) or dtype == "complex64":
                continue
            expected = getattr(jnp, op)(a, number)
            assert_value(getattr(lamina, op)(x, number), expected, 1e-2, f"{op} {layout}")
            assert_value(getattr(lamina, op)(number, x), expected, 1e-2, f"{op} {layout}")


def test_results_are_read_by_numpy() -> None:
    x = tensor_of(A, mesh_of(AXES, "simulated"), LAYOUTS[1])
    close(np.asarray(x), A, 1e-6, "asarray")
    assert float(x.sum()) == A.sum() and int(x.max()) == 12 and bool((x == x).all())
