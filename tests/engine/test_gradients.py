"""Derivatives of every op, against the same function written in plain jnp on the pieces or the global value.

The reference reads the stored array with nothing but `jnp.take` and jnp's own reductions (`value_of`), so it shares no
code with the engine.  One `Derivatives` holds all that is compared: the value, reverse and forward mode, and both
second orders.  Everything runs in float64, so that a wrong factor can't hide in the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import lamina
from lamina import CPU, DeviceMesh, ReduceOp
from lamina.engine.storage import storage
from lamina.sharding import Layout
from tests.strategies import all_layouts

OPS = [op.value for op in ReduceOp]
MESHES = {"real": DeviceMesh.create, "simulated": DeviceMesh.simulated}
AXES = {"x": 2, "y": 3}


@pytest.fixture(autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(params=list(MESHES))
def make_mesh(request) -> Callable[..., DeviceMesh]:
    """Makes the mesh of some axes: of real devices, and simulated on one."""
    return lambda axes=AXES: MESHES[request.param](tuple(axes.values()), tuple(axes))


# -- the reference ----------------------------------------------------------------------------------------------------

REDUCE = {"sum": jnp.sum, "avg": jnp.mean, "max": jnp.max, "min": jnp.min, "prod": jnp.prod}


def pieces_of(t: lamina.Tensor) -> Any:
    """The pieces without padding: one leading dim per Partial axis, then the tensor's dims."""
    layout, array = t.layout, t._array
    for dim, (size, blocks) in enumerate(zip(t.shape, layout.grid, strict=True)):
        if size % blocks:
            step = -(-size // blocks)
            held = [i * step + j for i in range(blocks) for j in range(size // blocks + (i < size % blocks))]
            take = np.take if isinstance(array, np.ndarray) else jnp.take
            array = take(array, np.array(held, int), axis=len(layout.partial) + dim)
    return array


def reduced(pieces: Any, layout: Layout) -> Any:
    """The meaning of Partial: reduced from the last mesh axis to the first."""
    for position, (_, op) in reversed(list(enumerate(layout.partial))):
        pieces = REDUCE[op.value](pieces, axis=position)
    return pieces


def value_of(t: lamina.Tensor) -> Any:
    return reduced(pieces_of(t), t.layout)


def quick_jit(f: Callable) -> Callable:
    """Every program here runs once on a few numbers: XLA needn't make it fast (a third of the suite's time)."""
    return jax.jit(f, compiler_options={"xla_backend_optimization_level": 0})


def any_tensor(mesh: DeviceMesh, layout: Layout, shape: tuple[int, ...], seed: int = 0, dtype: Any = float) -> Any:
    """Random pieces (no identities among them), random values away from zero, zeros as padding."""
    held = storage(mesh, layout, shape)
    random = np.random.default_rng(seed)
    stored = np.zeros(held.array_shape, dtype)
    t = lamina.Tensor(stored, held)
    places = pieces_of(lamina.Tensor(np.arange(stored.size).reshape(stored.shape), held))
    numbers = random.uniform(0.5, 1.5, places.shape) * random.choice([-1, 1], places.shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * random.uniform(0.5, 1.5, places.shape)
    t._array.flat[np.asarray(places).ravel()] = numbers.ravel()
    return lamina.Tensor(jax.device_put(stored, held.sharding), held)


class Derivatives(NamedTuple):
    value: Any
    reverse: Any
    forward: Any
    forward_of_reverse: Any
    reverse_of_reverse: Any


def derivatives(f: Callable[[Any], Any], x: Any, direction: Any) -> Derivatives:
    """All derivatives of a scalar function at x (an array or a Tensor), the second ones along `direction`."""

    def along(gradient: Any) -> Any:
        pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
        return sum(jnp.sum(g * d).real for g, d in pairs)

    return Derivatives(
        value=f(x),
        reverse=jax.grad(f)(x),
        forward=jax.jvp(f, (x,), (direction,))[1],
        forward_of_reverse=jax.jvp(jax.grad(f), (x,), (direction,))[1],
        reverse_of_reverse=jax.grad(lambda q: along(jax.grad(f)(q)))(x),
    )


def loss(value: Any) -> Any:
    """A scalar with no zero derivative anywhere, different for every element."""
    weights = np.cos(np.arange(np.prod(value.shape, dtype=int))).reshape(value.shape) + 2
    if jnp.iscomplexobj(value):
        return jnp.sum(jnp.abs(value) ** 2 * weights)
    return jnp.sum(jnp.sin(value) * weights)


def assert_right_derivatives(
    op: Callable[[Any], Any],
    want: Callable[[Any], Any],
    t: lamina.Tensor,
    *,
    from_pieces: bool = False,
    jit: bool = True,
) -> None:
    """`op` on the Tensor against `want` on its value (or its pieces)."""
    direction = any_tensor(t.mesh, t.layout, t.shape, seed=1, dtype=t.dtype)
    read = pieces_of if from_pieces else value_of

    def dense(array: Any) -> Any:
        return loss(want(read(lamina.Tensor(array, t._held))))

    compiled = quick_jit if jit else lambda f: f
    found = compiled(lambda x, d: derivatives(lambda q: loss(value_of(op(q))), x, d))(t, direction)
    expected = quick_jit(lambda x, d: derivatives(dense, x, d))(np.asarray(t._array), np.asarray(direction._array))
    for name, mine, right in zip(Derivatives._fields, found, expected, strict=True):
        if isinstance(mine, lamina.Tensor):
            assert mine.sharding == t.sharding, name
            assert mine.mesh == t.mesh and mine.shape == t.shape, name
            mine = mine._array
        np.testing.assert_allclose(mine, right, rtol=1e-9, atol=1e-9, err_msg=name)


# -- every op ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An op on a tensor of `shape` with these `dims` and `partial` axes; `want` is what it does to the value."""

    name: str
    shape: tuple[int, ...]
    dims: tuple
    op: Callable[[Any], Any]
    want: Callable[[Any], Any] = lambda value: value
    partial: dict[str, str] = field(default_factory=dict)
    from_pieces: bool = False

    def tensor(self, mesh: DeviceMesh) -> lamina.Tensor:
        return any_tensor(mesh, Layout(mesh.axes, self.dims, self.partial), self.shape)


def over(op: str, dim: int, count: int) -> Callable[[Any], Any]:
    """What a reduction over `count` shards of a dim does to the value: the shards, stacked, are reduced."""
    return lambda value: REDUCE[op](jnp.stack(jnp.split(value, count, axis=dim)), axis=0)


def untiled(value: Any) -> Any:
    """`all_to_all(t, 0, 1, tiled=False)` over 3 shards of dim 1: stacked on a dim after them, as lax does."""
    rows, columns = value.shape
    return jnp.swapaxes(value.reshape(rows, 3, columns // 3), 1, 2)


def moved_blocks(value: Any, pairs: list[tuple[int, int]], count: int) -> Any:
    blocks = jnp.split(value, count, axis=0)
    sent = {target: blocks[source] for source, target in pairs}
    return jnp.concatenate([sent.get(i, jnp.zeros_like(blocks[0])) for i in range(count)])


def pieces_moved(pairs: list[tuple[int, int]]) -> Callable[[Any], Any]:
    """ppermute along a Partial(sum) axis: the pieces change places, missing ones are zero."""
    return lambda pieces: sum(pieces[source] for source, _ in pairs)


X, Y, XY, YX = ("x",), ("y",), ("x", "y"), ("y", "x")
SHIFT = [(0, 1), (1, 2)]
CASES = [
    Case("all_gather of a nested uneven dim", (7, 4), (YX, ()), lambda t: lamina.all_gather(t, 0)),
    Case("all_gather of every dim", (5, 4), (X, Y), lamina.all_gather),
    Case("all_gather beside pieces", (5, 2), (X, ()), lambda t: lamina.all_gather(t, 0), partial={"y": "prod"}),
    Case("all_to_all", (6, 4), (XY, ()), lambda t: lamina.all_to_all(t, 1, 0)),
    Case("all_to_all, uneven on both sides", (7, 5), (Y, ()), lambda t: lamina.all_to_all(t, 1, 0)),
    Case("all_to_all behind another axis", (6, 6), (X, Y), lambda t: lamina.all_to_all(t, 0, 1)),
    Case("all_to_all, not tiled", (3, 6), ((), Y), lambda t: lamina.all_to_all(t, 0, 1, tiled=False), untiled),
    Case("distributed_broadcast of shards", (5, 4), (YX, ()), lamina.distributed_broadcast),
    Case(
        "distributed_broadcast of pieces", (4,), ((),), lamina.distributed_broadcast, partial={"x": "min", "y": "sum"}
    ),
    Case(
        "ppermute over the whole mesh",
        (6, 2),
        (XY, ()),
        lambda t: lamina.ppermute(t, [(0, 5), (5, 0), (2, 3)]),
        lambda v: moved_blocks(v, [(0, 5), (5, 0), (2, 3)], 6),
    ),
    Case(
        "ppermute along one axis",
        (6, 4),
        (Y, X),
        lambda t: lamina.ppermute(t, SHIFT, axis="y"),
        lambda v: moved_blocks(v, SHIFT, 3),
    ),
    Case(
        "ppermute of pieces",
        (4, 3),
        (X, ()),
        lambda t: lamina.ppermute(t, SHIFT, axis="y"),
        pieces_moved(SHIFT),
        partial={"y": "sum"},
        from_pieces=True,
    ),
    Case("shard: dims swap", (7, 5), (X, Y), lambda t: lamina.shard(t, t.mesh, ["y", "x"])),
    Case("shard: nested order", (12, 2), (XY, ()), lambda t: lamina.shard(t, t.mesh, [YX])),
    Case("shard: fewer entries than devices", (2, 2), (X, Y), lambda t: lamina.shard(t, t.mesh, [None, XY])),
    Case("shard: nothing changes", (6, 2), (X, ()), lambda t: lamina.shard(t, t.mesh, ["x"])),
    Case("shard: a scalar's pieces", (), (), lambda t: lamina.shard(t, t.mesh, []), partial={"x": "prod", "y": "max"}),
    Case(
        "shard: pieces that stay while a dim moves",
        (6, 5),
        (X, ()),
        lambda t: lamina.shard(t, t.mesh, [None, "x"], partial={"y": "max"}),
        partial={"y": "max"},
    ),
    Case(
        "shard: pieces of one op become pieces of another",
        (4, 3),
        ((), ()),
        lambda t: lamina.shard(t, t.mesh, ["x"], partial={"y": "prod"}),
        partial={"y": "max"},
    ),
    Case(
        "shard: ops that don't commute",
        (3, 4),
        ((), ()),
        lambda t: lamina.shard(t, t.mesh, [None, "x"], partial={"y": "max"}),
        partial={"x": "sum", "y": "max"},
    ),
    Case(
        "shard: pieces move to the other axis",
        (6, 4),
        ((), X),
        lambda t: lamina.shard(t, t.mesh, ["y"], partial={"x": "avg"}),
        partial={"y": "avg"},
    ),
    Case(
        "all_reduce of one of two Partial axes",
        (4, 2),
        ((), ()),
        lambda t: lamina.all_reduce(t, reduce_axes="y"),
        partial={"x": "prod", "y": "max"},
    ),
    Case(
        "reduce_scatter of two ops at once",
        (7, 2),
        ((), ()),
        lambda t: lamina.reduce_scatter(t, 0),
        partial={"x": "prod", "y": "min"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_derivatives_of(case: Case, make_mesh) -> None:
    assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()), from_pieces=case.from_pieces)


# In eager mode every operation of the derivative is a program of its own, hence just a few.
EAGER = ["all_gather of a nested uneven dim", "ppermute along one axis", "shard: ops that don't commute"]


@pytest.mark.parametrize("case", [case for case in CASES if case.name in EAGER], ids=lambda case: case.name)
def test_derivatives_outside_of_jit(case: Case, make_mesh) -> None:
    assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()), jit=False)


# -- every reduction --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
class TestEveryReduceOp:
    def test_all_reduce_of_pieces(self, op, make_mesh):
        case = Case("", (5, 2), (X, ()), lamina.all_reduce, partial={"y": op})
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_all_reduce_of_pieces_on_both_axes(self, op, make_mesh):
        case = Case("", (4,), ((),), lamina.all_reduce, partial={"x": op, "y": op})
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_all_reduce_of_shards(self, op, make_mesh):
        case = Case(
            "",
            (6, 4),
            (Y, X),
            lambda t: lamina.all_reduce(t, reduce_op=op, reduce_axes="y"),
            over(op, dim=0, count=3),
        )
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_all_reduce_of_the_major_axis_of_a_nested_dim(self, op, make_mesh):
        # The 12 rows are blocks of 2 numbered (x, y); reducing x leaves 3 blocks.
        case = Case(
            "",
            (12,),
            (XY,),
            lambda t: lamina.all_reduce(t, reduce_op=op, reduce_axes="x"),
            over(op, dim=0, count=2),
        )
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_reduce_scatter_of_pieces(self, op, make_mesh):
        case = Case("", (5, 4), ((), X), lambda t: lamina.reduce_scatter(t, 0), partial={"y": op})
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_reduce_scatter_of_shards(self, op, make_mesh):
        case = Case(
            "",
            (6, 4),
            (Y, X),
            lambda t: lamina.reduce_scatter(t, 1, reduce_op=op, reduce_axes="y"),
            over(op, dim=0, count=3),
        )
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_a_value_becomes_pieces(self, op, make_mesh):
        case = Case("", (5, 3), (X, ()), lambda t: lamina.shard(t, t.mesh, [None, "x"], partial={"y": op}))
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_pieces_are_made_on_both_axes(self, op, make_mesh):
        case = Case("", (4,), (XY,), lambda t: lamina.shard(t, t.mesh, [None], partial={"x": op, "y": op}))
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()))

    def test_outside_of_jit(self, op, make_mesh):
        case = Case("", (5, 2), (X, ()), lambda t: lamina.shard(t, t.mesh, ["y"]), partial={"y": op})
        assert_right_derivatives(case.op, case.want, case.tensor(make_mesh()), jit=False)


@pytest.mark.parametrize("op", ["max", "min"])
def test_ties_share_the_gradient_as_jnp_does(op, make_mesh):
    pieces = [[1.0, 2.0, 3.0], [1.0, 5.0, 3.0], [1.0, 5.0, 0.0]]
    t = from_pieces(pieces, make_mesh({"y": 3}), op)
    gradient = jax.grad(lambda t: jnp.sum(value_of(lamina.all_reduce(t))))(t)
    expected = jax.grad(lambda p: jnp.sum(REDUCE[op](p, axis=0)))(jnp.array(pieces))
    np.testing.assert_allclose(np.stack(gradient.shards), expected)
    np.testing.assert_allclose(np.stack(gradient.shards).sum(0), 1)
    assert_right_derivatives(lamina.all_reduce, lambda v: v, t)


@pytest.mark.parametrize("zeros", [1, 2, 3])
def test_zeros_in_a_product(zeros, make_mesh):
    """With one zero only its own gradient lives, with two none: no division by the element anywhere."""
    pieces = np.array([[2.0, 3.0], [5.0, 7.0], [11.0, 13.0]])
    pieces[:zeros, 1] = 0
    t = from_pieces(pieces, make_mesh({"y": 3}), "prod")
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(value_of(lamina.all_reduce(t)))))(t)
    others = {1: [91, 0, 0], 2: [0, 0, 0], 3: [0, 0, 0]}[zeros]
    np.testing.assert_allclose(np.stack(gradient.shards), np.stack([[55, 22, 10], others], axis=1))
    assert_right_derivatives(lamina.all_reduce, lambda v: v, t)


def test_zeros_in_a_product_of_shards(make_mesh):
    mesh = make_mesh({"y": 3})
    t = lamina.shard(np.array([0.0, 2.0, 3.0, 0.0, 5.0, 0.0]), mesh, ["y"])
    assert_right_derivatives(lambda t: lamina.all_reduce(t, reduce_op="prod"), over("prod", dim=0, count=3), t)


def from_pieces(pieces: Any, mesh: DeviceMesh, op: str) -> lamina.Tensor:
    return lamina.from_shards(list(np.asarray(pieces)), lamina.NamedMapping(mesh, [None], unreduced={"y": op}))


@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
def test_complex_numbers(op, make_mesh):
    mesh = make_mesh()
    t = any_tensor(mesh, Layout(mesh.axes, [X, ()], {"y": op}), (5, 3), dtype=complex)
    assert_right_derivatives(lambda t: lamina.shard(t, t.mesh, ["y", "x"]), lambda v: v, t)


# -- any pair of layouts ----------------------------------------------------------------------------------------------


def _pairs(count: int) -> list[tuple[Layout, Layout]]:
    every = all_layouts(AXES, 2, ReduceOp)
    random = np.random.default_rng(7)
    return [tuple(every[i] for i in random.integers(len(every), size=2)) for _ in range(count)]


@pytest.mark.exhaustive(keep=24)
@pytest.mark.parametrize("shape", [(6, 12), (4, 5)], ids=str)
@pytest.mark.parametrize("pair", _pairs(64), ids=lambda pair: f"{pair[0]} to {pair[1]}")
def test_a_pair_of_layouts(pair, shape, make_mesh):
    source, target = pair
    mesh = make_mesh()
    op = lambda t: lamina.shard(t, mesh, target.dims, partial=dict(target.partial))  # noqa: E731
    assert_right_derivatives(op, lambda v: v, any_tensor(mesh, source, shape))


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_gradient_of_an_array_that_is_sharded(kind, wrap, make_mesh):
    mesh = make_mesh()
    x = kind(np.arange(10.0).reshape(5, 2))
    gradient = wrap(jax.grad(lambda x: loss(value_of(lamina.shard(x, mesh, [("y", "x")])))))(x)
    assert isinstance(gradient, jax.Array)
    np.testing.assert_allclose(gradient, jax.grad(loss)(x))


def test_jacobians_and_the_hessian_of_an_array(make_mesh):
    """jacrev and jacfwd map over a basis: the batched transposes and tangents."""
    mesh = make_mesh()
    x = jnp.linspace(0.5, 1.5, 4)

    def through_the_mesh(x):
        pieces = lamina.shard(x, mesh, ["x"], partial={"y": "avg"})
        return jnp.sin(value_of(lamina.all_reduce(pieces))) ** 2

    dense = lambda x: jnp.sin(x) ** 2  # noqa: E731
    np.testing.assert_allclose(jax.jacrev(through_the_mesh)(x), jax.jacrev(dense)(x), atol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(through_the_mesh)(x), jax.jacfwd(dense)(x), atol=1e-12)
    hessian = jax.hessian(lambda x: jnp.sum(through_the_mesh(x)))(x)
    np.testing.assert_allclose(hessian, jax.hessian(lambda x: jnp.sum(dense(x)))(x), atol=1e-12)


@pytest.mark.parametrize("op", ["max", "prod"])
def test_jacobians_of_reductions_that_are_not_linear(op, make_mesh):
    mesh = make_mesh({"y": 3})
    x = jnp.array([0.5, 2.0, 1.5, 1.0, 0.25, 3.0])

    def through_the_mesh(x):
        return value_of(lamina.all_reduce(lamina.shard(x, mesh, ["y"]), reduce_op=op))

    dense = over(op, dim=0, count=3)
    np.testing.assert_allclose(jax.jacrev(through_the_mesh)(x), jax.jacrev(dense)(x), atol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(through_the_mesh)(x), jax.jacfwd(dense)(x), atol=1e-12)


def test_an_array_on_device_3_gets_its_gradient_on_device_3():
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    home = jax.devices("cpu")[3]
    x = jax.device_put(jnp.arange(6.0).reshape(3, 2), home)
    gradient = jax.grad(lambda x: loss(value_of(lamina.shard(x, mesh, [("x", "y")]))))(x)
    assert gradient.devices() == {home}
    np.testing.assert_allclose(gradient, jax.grad(loss)(np.asarray(x)))


def test_a_sharded_array_gets_its_gradient_back_in_its_sharding():
    mesh = DeviceMesh.create((4,), ("x",))
    x = lamina.shard(np.arange(8.0).reshape(4, 2), mesh, ["x"]).jax()
    other = DeviceMesh([CPU(i) for i in (7, 6, 5, 4)], (4,), ("a",))
    gradient = jax.grad(lambda x: loss(value_of(lamina.shard(x, other, [None, "a"]))))(x)
    assert gradient.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_allclose(gradient, jax.grad(loss)(np.asarray(x)))


# -- Tensors are pytrees ----------------------------------------------------------------------------------------------


def test_gradients_of_a_pytree_of_tensors_lie_as_the_tensors_do(make_mesh):
    mesh = make_mesh()
    params = {
        "w": lamina.shard(np.arange(12.0).reshape(4, 3), mesh, ["x", "y"]),
        "b": [lamina.shard(np.arange(5.0), mesh, [("y", "x")])],
    }

    def f(params):
        w, b = lamina.shard(params["w"], mesh, [None]), lamina.all_gather(params["b"][0])
        return jnp.sum(w.jax() ** 2) + jnp.sum(b.jax() ** 3)

    value, gradients = jax.jit(jax.value_and_grad(f))(params)
    assert jax.tree.structure(gradients) == jax.tree.structure(params)
    np.testing.assert_allclose(gradients["w"].numpy(), 2 * params["w"].numpy())
    np.testing.assert_allclose(gradients["b"][0].numpy(), 3 * params["b"][0].numpy() ** 2)
    np.testing.assert_allclose(value, (np.arange(12.0) ** 2).sum() + (np.arange(5.0) ** 3).sum())


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_the_shards_of_a_gradient_are_the_cotangents(wrap, make_mesh):
    """Of an uneven Sharded tensor the parts, of a Partial(SUM) one the same on all pieces, of AVG the n-th part."""
    mesh = make_mesh({"x": 2, "y": 2})
    factor = np.array([1.0, 10.0, 100.0])

    def gradient(dims, **partial):
        t = lamina.shard(np.zeros(3), mesh, dims, partial=partial)
        return wrap(jax.grad(lambda t: jnp.sum(lamina.shard(t, mesh, [None]).jax() * factor)))(t)

    def shards(t):
        return [np.asarray(part).tolist() for part in t.shards]

    assert shards(gradient(["x"])) == [[1, 10], [1, 10], [100], [100]]
    assert shards(gradient([None], y="sum")) == [[1, 10, 100]] * 4
    assert shards(gradient([None], y="avg")) == [[0.5, 5, 50]] * 4
    assert shards(gradient([None], x="max")) == [[1, 10, 100]] * 2 + [[0, 0, 0]] * 2


def test_vjp_and_linearize_take_and_give_tensors(make_mesh):
    mesh = make_mesh()
    t = lamina.shard(np.arange(5.0), mesh, ["y"])
    send = lambda t: lamina.shard(t, mesh, ["x"], partial={"y": "sum"})  # noqa: E731
    out, back = jax.vjp(send, t)
    (cotangent,) = back(out)
    assert cotangent.sharding == t.sharding
    # The cotangent of pieces is read as that of a replicated value: only the first piece was made from the value.
    np.testing.assert_allclose(cotangent.numpy(), np.arange(5.0))
    primal, tangents = jax.linearize(send, t)
    np.testing.assert_allclose(primal.numpy(), np.arange(5.0))
    np.testing.assert_allclose(tangents(t).numpy(), np.arange(5.0))


def test_integers_beside_what_is_differentiated(make_mesh):
    """Indices, masks and counters travel through a differentiated function; their tangents are float0."""
    mesh = make_mesh()
    w = lamina.shard(np.arange(6.0), mesh, ["x"])
    ids = lamina.shard(np.arange(6), mesh, ["y"])

    def f(w, ids):
        largest = lamina.all_reduce(ids, reduce_op="max")  # not linear: goes by the plain reductions
        return jnp.sum(lamina.all_gather(w).jax() * lamina.all_gather(ids).jax()) + jnp.sum(largest.jax())

    gradient, zero = jax.grad(f, argnums=(0, 1), allow_int=True)(w, ids)
    np.testing.assert_allclose(gradient.numpy(), np.arange(6))
    assert jax.tree.leaves(zero)[0].dtype == jax.dtypes.float0
    tangent = jax.tree.map(lambda a: np.zeros(a.shape, jax.dtypes.float0), ids)
    _, slope = jax.jvp(f, (w, ids), (w, tangent))
    np.testing.assert_allclose(slope, np.sum(np.arange(6.0) * np.arange(6)))


def test_stop_gradient_and_unused_inputs_give_zeros(make_mesh):
    mesh = make_mesh()
    t = lamina.shard(np.arange(5.0), mesh, ["y"], partial={"x": "max"})
    gradient = jax.grad(lambda t: jnp.sum(value_of(lamina.all_reduce(jax.lax.stop_gradient(t)))))(t)
    assert gradient.sharding == t.sharding
    assert all(not np.any(part) for part in gradient.shards)


def test_an_empty_tensor_has_an_empty_gradient(make_mesh):
    mesh = make_mesh()
    t = lamina.shard(np.zeros((0, 3)), mesh, ["x", "y"])
    gradient = jax.grad(lambda t: jnp.sum(value_of(lamina.all_to_all(t, 0, 1))))(t)
    assert gradient.shape == (0, 3) and gradient.sharding == t.sharding


# -- between meshes (outside of jit) ----------------------------------------------------------------------------------


def line(*devices: int, name: str = "d") -> DeviceMesh:
    return DeviceMesh([CPU(i) for i in devices], (len(devices),), (name,))


DESTINATIONS = {
    "reversed": line(3, 2, 1, 0),
    "subset": line(2, 1),
    "superset": line(0, 1, 2, 3, 4, 5, 6, 7),
    "disjoint": line(4, 5, 6, 7),
    "one device": DeviceMesh.single(CPU(6)),
    "simulated": DeviceMesh.simulated((3,), ("d",), CPU(5)),
}
SOURCES = {
    "even": (X, Y, {}),
    "nested": (YX, (), {}),
    "sum": (X, (), {"y": "sum"}),
    "max": ((), X, {"y": "max"}),
}


def devices_of(t: lamina.Tensor) -> list[Any]:
    """Where the shards really are, in mesh order."""
    return [next(iter(part.devices())) for part in t.shards]


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_gradient_of_a_transfer_returns_to_where_the_input_is(source, destination):
    *dims, partial = SOURCES[source]
    mesh, there = DeviceMesh.create((2, 2), ("x", "y")), DESTINATIONS[destination]
    t = any_tensor(mesh, Layout(mesh.axes, dims, partial), (5, 3))
    specs = [None, "d"] if "d" in there.axis_names else [None, None]

    def f(t):
        sent = lamina.shard(t, there, specs)
        assert sent.mesh == there
        return loss(value_of(sent))

    gradient = jax.grad(f)(t)
    assert gradient.sharding == t.sharding
    assert devices_of(gradient) == devices_of(t) == jax.devices("cpu")[:4]
    expected = jax.grad(lambda a: loss(value_of(lamina.Tensor(a, t._held))))(np.asarray(t._array))
    np.testing.assert_allclose(np.asarray(gradient._array), expected, atol=1e-12)
    forward = jax.jvp(f, (t,), (t,))[1]
    np.testing.assert_allclose(forward, np.sum(np.asarray(t._array) * expected), atol=1e-9)


@pytest.mark.parametrize(
    "send",
    [
        lambda t: lamina.to_device(t, CPU(5)),
        lambda t: lamina.transfer_to(t, sharding=lamina.NamedMapping(line(6, 7), [None, "d"])),
        lamina.cpu,
    ],
    ids=["to_device", "transfer_to a mapping", "cpu"],
)
def test_the_gradient_of_to_device_returns(send):
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    t = lamina.shard(np.arange(10.0).reshape(5, 2), mesh, [("y", "x")])
    gradient = jax.grad(lambda t: loss(value_of(send(t))))(t)
    assert gradient.sharding == t.sharding
    assert devices_of(gradient) == devices_of(t)
    np.testing.assert_allclose(gradient.numpy(), jax.grad(loss)(t.numpy()))


def test_second_order_through_a_transfer():
    mesh, there = DeviceMesh.create((2, 2), ("x", "y")), line(7, 5, 3)
    t = lamina.shard(np.linspace(0.5, 1.5, 10).reshape(5, 2), mesh, ["x"], partial={"y": "prod"})
    assert_right_derivatives(lambda t: lamina.shard(t, there, ["d"]), lambda v: v, t, jit=False)


# -- finite differences -----------------------------------------------------------------------------------------------

FINITE = {
    "prod over pieces": ({"y": "prod"}, (X, ()), lambda t: lamina.all_reduce(t)),
    "avg and an uneven exchange": ({"y": "avg"}, (X, ()), lambda t: lamina.shard(t, t.mesh, ["y", "x"])),
    "max over shards": (
        {},
        (Y, X),
        lambda t: lamina.all_reduce(lamina.shard(t, t.mesh, [None, "x"], partial={"y": "max"})),
    ),
}


@pytest.mark.parametrize("name", FINITE)
def test_finite_differences_in_float32(name, make_mesh):
    partial, dims, op = FINITE[name]
    mesh = make_mesh()
    t = any_tensor(mesh, Layout(mesh.axes, dims, partial), (5, 3), dtype=np.float32)
    # The padding is moved, too, and must not count.
    check_grads(jax.jit(lambda t: value_of(op(t))), (t,), order=2, modes=["fwd", "rev"], atol=0.05, rtol=0.05, eps=1e-2)
