"""What the peers get silently wrong, each as one test that Lamina gets it right.

MAX 26.3 (`max.experimental.sharding`), Nabla, and PyTorch 2.13's DTensor; see the first page of the design.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina.sharding import DeviceMesh, NamedMapping, Partial, PlacementMapping, Replicated, Sharded
from lamina.sharding.layout import Layout
from tests.engine.oracles import mesh_of, on_both_kinds
from tests.strategies import values

PIECES = [[1.0, 8.0, 3.0], [5.0, 2.0, 3.0], [4.0, 4.0, 4.0]]
RESULTS = {
    "sum": [10.0, 14.0, 10.0],
    "avg": [10 / 3, 14 / 3, 10 / 3],
    "max": [5.0, 8.0, 4.0],
    "min": [1.0, 2.0, 3.0],
    "prod": [20.0, 64.0, 36.0],
}


def pieces_of(op: str, kind: str = "real", pieces=PIECES) -> lamina.Tensor:
    mesh = mesh_of({"x": len(pieces)}, kind)
    return lamina.from_shards([np.array(p, "float32") for p in pieces], NamedMapping(mesh, unreduced={"x": op}))


# -- MAX --------------------------------------------------------------------------------------------------------------


@on_both_kinds
@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")], ids=str)
@pytest.mark.parametrize("rows", [8, 10])
def test_max_returns_permuted_rows_for_nested_shardings(kind, order, rows):
    """MAX gathers a dim that two mesh axes split as if the first were the minor one, so rows come back permuted."""
    value, mesh = values((rows, 3)), mesh_of({"x": 2, "y": 2}, kind)
    x = lamina.shard(value, mesh, [order])
    np.testing.assert_array_equal(lamina.all_gather(x, 0).numpy(), value)
    np.testing.assert_array_equal(lamina.shard(x, mesh, [order[::-1]]).numpy(), value)
    np.testing.assert_array_equal(lamina.shard(x, mesh, [None, order]).numpy(), value)
    np.testing.assert_array_equal(
        np.concatenate([x.shards[i] for i in ((0, 1, 2, 3) if order[0] == "x" else (0, 2, 1, 3))]), value
    )


@on_both_kinds
@pytest.mark.parametrize("op", ["max", "min", "avg", "prod"])
def test_max_executes_every_partial_as_a_sum(kind, op):
    """MAX lowers Partial(MAX), Partial(MIN) and Partial(AVG) to the one reduction that it has."""
    x = pieces_of(op, kind)
    for found in (x, lamina.all_reduce(x), lamina.shard(x, x.mesh, ["x"]), lamina.reduce_scatter(x, 0)):
        np.testing.assert_allclose(found.numpy(), RESULTS[op], rtol=1e-6)


# -- Nabla ------------------------------------------------------------------------------------------------------------


@on_both_kinds
@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")], ids=str)
def test_nabla_drops_half_of_the_data_when_one_axis_becomes_two(kind, order):
    """Nabla reshards P(x) to P((x, y)) by slicing twice from the start of the shard, which drops half of the rows."""
    value, mesh = values((8, 3)), mesh_of({"x": 2, "y": 2}, kind)
    x = lamina.shard(lamina.shard(value, mesh, ["x"]), mesh, [order])
    np.testing.assert_array_equal(x.numpy(), value)
    assert sorted(row for shard in x.shards for row in np.asarray(shard)[:, 0]) == value[:, 0].tolist()


@on_both_kinds
def test_nabla_has_a_wrong_gradient_for_broadcast(kind):
    """The cotangents of the copies are one cotangent, not one to be added up per device."""
    mesh, weight = mesh_of({"x": 4}, kind), jnp.arange(1.0, 7.0)
    for spec in ([None], ["x"]):
        x = lamina.shard(np.arange(6.0, dtype="float32"), mesh, spec)
        grad = jax.grad(lambda x: jnp.sum(weight * lamina.distributed_broadcast(x).jax() ** 2))(x)
        assert grad.layout == x.layout
        np.testing.assert_allclose(grad.numpy(), 2 * weight * np.arange(6))


@on_both_kinds
def test_nabla_has_a_wrong_gradient_for_reduce_scatter(kind):
    """Every piece gets the whole cotangent of the sum, gathered from the devices that hold its parts."""
    x = pieces_of("sum", kind)
    weight = jnp.array([1.0, 10.0, 100.0])
    grad = jax.grad(lambda x: jnp.sum(weight * lamina.reduce_scatter(x, 0).jax()))(x)
    for shard in grad.shards:
        assert shard.tolist() == [1, 10, 100]


@on_both_kinds
def test_nabla_has_a_wrong_gradient_for_max(kind):
    """It goes to the winners, ties shared, as in jnp.max; not to every piece."""
    pieces = [[1.0, 8.0, 3.0], [5.0, 2.0, 3.0], [4.0, 4.0, 1.0]]
    x, weight = pieces_of("max", kind, pieces), jnp.array([1.0, 10.0, 100.0])
    grad = jax.grad(lambda x: jnp.sum(weight * lamina.all_reduce(x).jax()))(x)
    dense = jax.grad(lambda p: jnp.sum(weight * jnp.max(p, axis=0)))(jnp.array(pieces))
    assert dense.tolist() == [[0, 10, 50], [1, 0, 50], [0, 0, 0]]
    np.testing.assert_allclose(np.stack(grad.shards), dense)


@on_both_kinds
def test_nabla_has_a_wrong_gradient_for_prod(kind):
    """It is the product of the others, also where one of them is zero."""
    pieces = [[1.0, 0.0, 0.0], [5.0, 2.0, 3.0], [4.0, 4.0, 0.0]]
    x, weight = pieces_of("prod", kind, pieces), jnp.array([1.0, 10.0, 100.0])
    grad = jax.grad(lambda x: jnp.sum(weight * lamina.all_reduce(x).jax()))(x)
    np.testing.assert_allclose(np.stack(grad.shards), [[20, 80, 0], [4, 0, 0], [5, 0, 0]])


# -- DTensor ----------------------------------------------------------------------------------------------------------


@on_both_kinds
@pytest.mark.parametrize("rows", [10, 7, 3])
def test_dtensor_corrupts_uneven_shards_on_flattened_meshes(kind, rows):
    """Two axes and one flattened axis of their product cut a dim at the same places, larger shards first."""
    value = values((rows, 2))
    two, one = mesh_of({"x": 2, "y": 2}, kind), mesh_of({"xy": 4}, kind)
    nested, flat = lamina.shard(value, two, [("x", "y")]), lamina.shard(value, one, ["xy"])
    assert [s.tolist() for s in nested.shards] == [s.tolist() for s in flat.shards]
    assert [s.tolist() for s in nested.shards] == [s.tolist() for s in np.array_split(value, 4)]
    np.testing.assert_array_equal(lamina.shard(nested, one, ["xy"]).numpy(), value)
    np.testing.assert_array_equal(lamina.shard(flat, two, [None, ("y", "x")]).numpy(), value)
    np.testing.assert_array_equal(lamina.all_gather(nested).numpy(), value)


@on_both_kinds
@pytest.mark.parametrize("op", RESULTS)
def test_dtensor_reads_one_rank_of_a_partial_as_the_value(kind, op):
    """`.item()` of a DTensor with Partial placements is the rank's own piece."""
    x = pieces_of(op, kind, [piece[1] for piece in PIECES])
    expected = pytest.approx(RESULTS[op][1])
    assert (x.item(), float(x), x.tolist()) == (expected, expected, expected)
    assert float(repr(x).removeprefix("Tensor(").partition(",")[0]) == expected
    assert bool(pieces_of("sum", kind, [0.0, 1.0])) is True
    assert bool(pieces_of("sum", kind, [-1.0, 1.0])) is False


@on_both_kinds
@pytest.mark.parametrize("op", ["avg", "max", "min", "prod"])
def test_dtensor_has_wrong_gradients_for_partials_that_are_no_sum(kind, op):
    """The gradient with respect to the pieces is that of the plain reduction of a stack of them."""
    x, weight = pieces_of(op, kind), jnp.array([1.0, 10.0, 100.0])
    plain = {"avg": jnp.mean, "max": jnp.max, "min": jnp.min, "prod": jnp.prod}[op]
    dense = jax.grad(lambda p: jnp.sum(weight * plain(p, axis=0) ** 2))(jnp.array(PIECES))
    ways = [lamina.all_reduce, lambda x: lamina.reduce_scatter(x, 0), lambda x: lamina.shard(x, x.mesh, ["x"])]
    for resolve in ways:
        grad = jax.grad(lambda x, resolve=resolve: jnp.sum(weight * resolve(x).jax() ** 2))(x)
        np.testing.assert_allclose(np.stack(grad.shards), dense, rtol=1e-6)


@on_both_kinds
@pytest.mark.parametrize("op", ["avg", "max", "min", "prod"])
def test_dtensor_has_wrong_gradients_where_a_value_becomes_such_a_partial(kind, op):
    """The value goes there and back unchanged, so its gradient does too."""
    mesh, value = mesh_of({"x": 3}, kind), np.array([2.0, 3.0, 4.0], "float32")

    def there_and_back(x):
        pieces = lamina.shard(x, mesh, [None], partial={"x": op})
        return jnp.sum(lamina.all_reduce(pieces).jax() ** 2)

    grad = jax.grad(there_and_back)(lamina.shard(value, mesh, [None]))
    np.testing.assert_allclose(grad.numpy(), 2 * value, rtol=1e-6)


# -- the checks that they skip ----------------------------------------------------------------------------------------


def test_peers_build_layouts_that_mean_nothing():
    """An axis used twice, an unknown axis, a dim outside of the rank: errors, and not silent replication."""
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    for wrong in (["x", "x"], ["q"], [("x", "x")], [None, None, "x"]):
        with pytest.raises(lamina.LayoutError):
            lamina.shard(values((4, 4)), mesh, wrong)
    with pytest.raises(lamina.LayoutError):
        lamina.to_device(values((4, 4)), sharding=PlacementMapping(mesh, [Sharded(2), Replicated()]))
    with pytest.raises(lamina.LayoutError):
        Partial("bogus")
    assert Layout(mesh.axes, ["x"]) != Layout(mesh.axes, ["y"])
