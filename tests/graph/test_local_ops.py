"""Every op of one device against numpy, with the shape and dtype that the graph said."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from lamina.graph import DeviceRef, Dim, Graph, InferenceSession, TensorType, ops
from tests.graph.helpers import data, run

HERE = DeviceRef.CPU(3)
UNARY = {
    "abs": np.abs, "ceil": np.ceil, "cos": np.cos, "erf": scipy.special.erf, "exp": np.exp, "expm1": np.expm1,
    "floor": np.floor, "gelu": lambda x: x * scipy.special.ndtr(x), "is_inf": np.isinf, "is_nan": np.isnan,
    "log": lambda x: np.log(np.abs(x)), "log1p": lambda x: np.log1p(np.abs(x)), "logical_not": np.logical_not,
    "negate": np.negative, "relu": lambda x: np.maximum(x, 0), "round": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)), "sigmoid": scipy.special.expit,
    "silu": lambda x: x * scipy.special.expit(x),
    "sin": np.sin, "sqrt": lambda x: np.sqrt(np.abs(x)), "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
POSITIVE = {"log", "log1p", "rsqrt", "sqrt"}
BINARY = {
    "add": np.add, "div": np.true_divide, "equal": np.equal, "floordiv": np.floor_divide, "greater": np.greater,
    "greater_equal": np.greater_equal, "less": np.less, "less_equal": np.less_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "max": np.maximum, "min": np.minimum, "mod": np.mod,
    "mul": np.multiply, "not_equal": np.not_equal, "pow": np.power, "sub": np.subtract,
}  # fmt: skip
REDUCTIONS = {
    "argmax": np.argmax, "argmin": np.argmin, "mean": np.mean, "prod": np.prod, "reduce_max": np.max,
    "reduce_min": np.min, "sum": np.sum,
}  # fmt: skip


def floats(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def one(build, *inputs, symbols=None):
    (found,) = run(build, inputs, [HERE] * len(inputs), symbols)
    return found


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found, "float64"), np.asarray(expected, "float64"), rtol=2e-5, atol=2e-5)


def test_the_tables_are_those_of_the_ops():
    tested = {*UNARY, *BINARY, *REDUCTIONS}
    from lamina.graph.ops import algebra, elementwise

    assert tested == {*elementwise._UNARY, *elementwise._BINARY, *algebra._REDUCTIONS}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = floats((3, 4))
    x = np.abs(x) if name in POSITIVE else x
    close(one(getattr(ops, name), x, symbols=[("n", 4)]), UNARY[name](x))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("other", ["same", "row", "number"])
def test_binary(name, other):
    x = np.abs(floats((3, 4))) + 0.5
    y = {"same": floats((3, 4), 1), "row": floats((4,), 1), "number": 2.5}[other]
    op = getattr(ops, name)
    if other == "number":
        close(one(lambda x: op(x, y), x), BINARY[name](x, np.float32(y)))
    else:
        close(one(op, x, y, symbols=[("n", 4), ("n", 4)[: y.ndim] if y.ndim == 2 else (4,)]), BINARY[name](x, y))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8"])
@pytest.mark.parametrize("name", ["add", "mul", "max", "less"])
def test_dtypes_are_jaxs(dtype, name):
    x, y = data((3, 4), dtype), data((4,), "int8", 1)
    found = one(getattr(ops, name), x, y)
    expected = {"add": jnp.add, "mul": jnp.multiply, "max": jnp.maximum, "less": jnp.less}[name](x, y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_a_python_number_takes_the_values_dtype():
    x = data((3,), "bfloat16")
    assert one(lambda x: x * 2 + 1.5, x).dtype == jnp.bfloat16
    assert one(lambda x: 1 + x, data((3,), "int8")).dtype == np.int8


def test_operators():
    x, y = floats((3, 3)), np.abs(floats((3, 3), 1)) + 1
    found = run(
        lambda x, y: [
            x + y, 1 - x, x - y, 2 * x, x / y, 1 / y, x // y, x % y, y**2, x @ y, -x, abs(x), x < y, x <= y,
            x > 0, x >= 0, x.T, x[1], x.cast("int32"), x.reshape([9]), x.transpose(0, 1), x.rebind([3, 3]),
            ops.where(x > 0, x, y),
        ],
        [x, y],
        [HERE] * 2,
    )  # fmt: skip
    expected = [
        x + y, 1 - x, x - y, 2 * x, x / y, 1 / y, x // y, x % y, y**2, x @ y, -x, abs(x), x < y, x <= y, x > 0, x >= 0,
        x.T, x[1], x.astype("int32"), x.reshape(9), x.T, x, np.where(x > 0, x, y),
    ]  # fmt: skip
    for one_found, want in zip(found, expected, strict=True):
        close(one_found, want)


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 5))]
)
def test_matmul(shapes):
    x, y = (floats(shape, i) for i, shape in enumerate(shapes))
    close(one(ops.matmul, x, y), x @ y)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_reductions_keep_their_axis(name, axis):
    x = floats((3, 4))
    close(
        one(lambda x: getattr(ops, name)(x, axis), x, symbols=[("n", "m")]),
        REDUCTIONS[name](x, axis=axis, keepdims=True),
    )


@pytest.mark.parametrize("axis", [0, -1])
def test_along_an_axis(axis):
    x = floats((3, 4))
    close(one(lambda x: ops.softmax(x, axis), x), scipy.special.softmax(x, axis))
    close(one(lambda x: ops.logsoftmax(x, axis), x), scipy.special.log_softmax(x, axis))
    close(one(lambda x: ops.cumsum(x, axis), x), np.cumsum(x, axis))


MOVEMENT = {
    "reshape": (lambda x: ops.reshape(x, (4, "n", 3)), lambda x: x.reshape(4, -1, 3)),
    "reshape -1": (lambda x: ops.reshape(x, (-1, 2)), lambda x: x.reshape(-1, 2)),
    "reshape algebraic": (lambda x: ops.reshape(x, (Dim("n") * 4, 3)), lambda x: x.reshape(-1, 3)),
    "permute": (lambda x: ops.permute(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1)),
    "transpose": (lambda x: ops.transpose(x, 0, -1), lambda x: x.swapaxes(0, -1)),
    "squeeze": (lambda x: ops.squeeze(ops.sum(x, 1), 1), lambda x: x.sum(1)),
    "unsqueeze": (lambda x: ops.unsqueeze(x, -1), lambda x: x[..., None]),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (2, "n", 4, 3)), lambda x: np.broadcast_to(x, (2, *x.shape))),
    "concat": (lambda x: ops.concat([x, x * 2, x], axis=0), lambda x: np.concatenate([x, x * 2, x])),
    "stack": (lambda x: ops.stack([x, -x], axis=-1), lambda x: np.stack([x, -x], -1)),
    "split": (lambda x: ops.split(x, [1, 3], axis=1)[1], lambda x: x[:, 1:]),
    "split symbolic": (lambda x: ops.split(ops.concat([x, x]), ["n", "n"])[1], lambda x: x),
    "gather": (lambda x: ops.gather(x, np.array([[0, 2], [3, 3]]), axis=1), lambda x: x[:, [[0, 2], [3, 3]]]),
    "slice": (lambda x: x[1:, -1, ::2], lambda x: x[1:, -1, ::2]),
    "slice ...": (lambda x: x[..., None, 1], lambda x: x[..., None, 1]),
    "slice negative": (lambda x: x[:-1, 3:1:-1], lambda x: x[:-1, 3:1:-1]),
    "slice symbolic bound": (lambda x: x[: Dim("n") - 1], lambda x: x[:-1]),
    "cast": (lambda x: ops.cast(x, "int32"), lambda x: x.astype("int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVEMENT)
@pytest.mark.parametrize("n", [2, 5])
def test_movement(name, n):
    build, expected = MOVEMENT[name]
    x = floats((n, 4, 3))
    close(one(build, x, symbols=[("n", 4, 3)]), expected(x))


def test_constants_of_every_kind():
    big = floats((20, 20))
    given = [3, 2.5, True, [[1, 2]], np.float16(1.5), big, jnp.arange(3), np.arange(2, dtype=jnp.bfloat16), 1 + 2j]
    with Graph("constants") as graph:
        graph.output(*[ops.constant(x, device=HERE) for x in given], ops.constant(1, "float16", HERE))
    found = InferenceSession().load(graph).execute()
    for x, t in zip([*given, np.float16(1)], found, strict=True):
        np.testing.assert_array_equal(t.numpy(), np.asarray(x))
        assert t.device == HERE
    assert found[-1].dtype == np.float16


def test_whatever_has_dlpack_is_a_constant():
    class Exported:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = floats((3,))
    close(one(lambda v: v + Exported(x), x), x + x)


def test_dims_and_shapes_are_values():
    x = floats((5, 3))
    found = one(lambda x: x * Dim("n") + ops.sum(ops.shape_of(x)) + (Dim("n") + 1) // 2, x, symbols=[("n", 3)])
    close(found, x * 5 + 8 + 3)


def test_call():
    x = floats((4, 6))
    close(one(lambda v: ops.call(jnp.flip, v, axis=0), x, symbols=[("n", 6)]), x[::-1])
    close(one(lambda v: ops.call(lambda a: a[::2].T @ a[1::2], v), x), x[::2].T @ x[1::2])
    two = run(lambda v: ops.call(lambda a: (a.min(), [a.max(1)]), v), [x], [HERE], [("n", 6)])
    close(two[0], x.min())
    close(two[1], x.max(1))


def test_call_finds_symbolic_shapes():
    kind = TensorType("float32", ("n", 4), HERE)
    graph = Graph("g", lambda x: ops.call(lambda a: jnp.concatenate([a[: a.shape[0] // 3], a]).reshape(-1), x), [kind])
    assert str(graph.outputs[0].shape) == "[4*n + 4*(n // 3)]"


def test_call_takes_the_types_that_it_is_told():
    kind = TensorType("float32", ("n", 4), HERE)

    def halves(a):
        return a.reshape(2, -1)

    with pytest.raises(ValueError, match="JAX can't trace the function with symbolic dims n"):
        Graph("g", lambda x: ops.call(lambda a: halves(a[:, :1]), x), [kind])
    told = TensorType("float32", (2, Dim("n") // 2), HERE)
    graph = Graph("g", lambda x: ops.call(lambda a: halves(a[:, :1]), x, output_types=[told]), [kind])
    model = InferenceSession().load(graph)
    assert model.execute(floats((6, 4)))[0].shape == (2, 3)
    wrong = TensorType("float32", ("n",), HERE)
    model = InferenceSession().load(Graph("g", lambda x: ops.call(halves, x, output_types=[wrong]), [kind]))
    with pytest.raises(ValueError, match=r"call: the function gave float32\[2, 12\], not float32\[6\]"):
        model.execute(floats((6, 4)))


def test_a_device_may_be_jaxs():
    assert one(lambda x: ops.transfer_to(x, jax.devices()[3]) + 1, floats((2,))).shape == (2,)
