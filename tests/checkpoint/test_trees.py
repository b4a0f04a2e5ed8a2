"""Which trees can be saved, and into what they can be loaded."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import lamina
from lamina import CPU, CheckpointError, DeviceMesh, NamedMapping, TensorLayout


class Pair(NamedTuple):
    left: Any
    right: Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    kernel: Any
    bias: Any


@pytest.fixture
def mesh():
    return DeviceMesh.create((2, 4), ("dp", "tp"))


def assert_same(found: Any, expected: Any) -> None:
    """The same containers, types, values, and layouts."""
    is_leaf = lambda x: isinstance(x, lamina.Tensor)  # noqa: E731
    assert jax.tree_util.tree_structure(found, is_leaf=is_leaf) == jax.tree_util.tree_structure(
        expected, is_leaf=is_leaf
    )
    for mine, theirs in zip(
        *(jax.tree_util.tree_leaves(tree, is_leaf=is_leaf) for tree in (found, expected)), strict=True
    ):
        assert type(mine) is type(theirs)
        match theirs:
            case lamina.Tensor():
                assert mine.sharding == theirs.sharding
                for part, other in zip(mine.shards, theirs.shards, strict=True):
                    np.testing.assert_array_equal(part, other, strict=True)
            case jax.Array() if jax.dtypes.issubdtype(theirs.dtype, jax.dtypes.prng_key):
                assert mine.dtype == theirs.dtype
                np.testing.assert_array_equal(jax.random.key_data(mine), jax.random.key_data(theirs))
            case jax.Array():
                assert mine.sharding.is_equivalent_to(theirs.sharding, theirs.ndim)
                np.testing.assert_array_equal(mine, theirs, strict=True)
            case np.ndarray() | np.generic():
                np.testing.assert_array_equal(mine, theirs, strict=True)
            case _:
                assert mine == theirs or (mine != mine and theirs != theirs)


def test_everything_comes_back_as_what_it_was(tmp_path, mesh):
    params = {"w": lamina.shard(np.arange(70.0).reshape(7, 10), mesh, ["tp", "dp"]), "b": jnp.arange(3.0)}
    there = NamedSharding(jax.make_mesh((4, 2), ("a", "b")), PartitionSpec("b"))
    tree = {
        "layers": [Layer(params["w"], None), Layer(jnp.ones((2, 2)), np.float32(1.5))],
        "optimiser": optax.adamw(1e-3).init(params),
        "pair": Pair(left=(), right=(1, [2.5, {}])),
        "numbers": [True, 3, -(10**30), 1.5, float("inf"), float("nan"), -0.0, 2 + 3j, "text\n\u2713", ""],
        "keys": [jax.random.key(3), jax.random.split(jax.random.key(1, impl="rbg"), 3), jax.random.PRNGKey(0)],
        "arrays": [np.arange(6).reshape(2, 3), np.float64(2), np.array(7), np.zeros((0, 4)), jnp.zeros((3, 0))],
        "sharded": jax.device_put(np.arange(8), there),
        "partial": lamina.shard(np.arange(5.0), mesh, [None], partial={"dp": "max", "tp": "sum"}),
        "simulated": lamina.shard(np.arange(7.0), DeviceMesh.simulated((3,), ("x",)), ["x"]),
        "host memory": lamina.to_device(np.arange(4.0), NamedMapping(mesh, ["tp"], memory_kind="pinned_host")),
    }
    lamina.save(tmp_path, tree)
    assert_same(lamina.load(tmp_path, tree), tree)


@pytest.mark.parametrize(
    "tree", [3, None, {}, [], (), np.arange(3), {0: 1.0, 1: [2.0]}, [None, [None]], Pair(1, 2)], ids=repr
)
def test_trees_of_any_form(tmp_path, tree):
    lamina.save(tmp_path, tree)
    assert_same(lamina.load(tmp_path, tree), tree)
    host = lamina.load(tmp_path) if tree is not None else None
    assert_same(host, {"left": 1, "right": 2} if isinstance(tree, Pair) else tree)


def test_without_like_it_comes_to_the_host_in_plain_containers(tmp_path, mesh):
    w = np.arange(10.0, dtype="float32")
    tree = {"a": [lamina.shard(w, mesh, ["tp"]), None], "b": (Layer(jnp.ones(2, "float32"), 3),)}
    lamina.save(tmp_path, tree)
    expected = {"a": [w, None], "b": ({"kernel": np.ones(2, "float32"), "bias": 3},)}
    assert_same(lamina.load(tmp_path), expected)


def test_a_part_and_other_containers_of_the_same_names(tmp_path):
    lamina.save(tmp_path, {"params": {"0": np.ones(2), "1": np.zeros(3)}, "step": 4, "pair": Pair(1, 2)})
    found = lamina.load(tmp_path, {"params": [np.zeros(2), np.zeros(3)], "pair": {"right": 0}})
    assert_same(found, {"params": [np.ones(2), np.zeros(3)], "pair": {"right": 2}})


def test_a_mapping_stands_for_all_below_it(tmp_path, mesh):
    w = np.arange(24.0, dtype="float32").reshape(6, 4)
    lamina.save(
        tmp_path,
        {"params": {"w": w, "layers": [jnp.asarray(w), lamina.tensor(w)]}, "key": jax.random.key(1), "step": 4},
    )
    rows = NamedMapping(mesh, ["dp"])
    found = lamina.load(tmp_path, {"params": rows, "step": 0})
    assert found["step"] == 4
    for x in (found["params"]["w"], *found["params"]["layers"]):
        assert x.sharding == rows
        np.testing.assert_array_equal(x.numpy(), w)
    everything = lamina.load(tmp_path, NamedMapping(mesh, []))
    assert everything["step"] == 4 and everything["params"]["w"].sharding.is_fully_replicated
    np.testing.assert_array_equal(jax.random.key_data(everything["key"]), jax.random.key_data(jax.random.key(1)))


def test_the_places_that_like_may_name(tmp_path, mesh):
    w = np.arange(24.0, dtype="float32").reshape(6, 4)
    lamina.save(tmp_path, {"w": w})
    columns = NamedSharding(jax.make_mesh((4,), ("x",)), PartitionSpec(None, "x"))
    places = {
        CPU(3): lamina.to_device(w, CPU(3)),
        SingleDeviceSharding(jax.devices()[5]): jax.device_put(w, jax.devices()[5]),
        columns: jax.device_put(w, columns),
        jax.ShapeDtypeStruct((6, 4), "float32"): jnp.asarray(w),
        jax.ShapeDtypeStruct((6, 4), "float32", sharding=columns): jax.device_put(w, columns),
        TensorLayout("float32", (6, 4), NamedMapping(mesh, [None, "tp"])): lamina.shard(w, mesh, [None, "tp"]),
        lamina.PlacementMapping(mesh, [lamina.Sharded(-1), lamina.Replicated()]): lamina.shard(w, mesh, [None, "dp"]),
    }
    for place, expected in places.items():
        assert_same(lamina.load(tmp_path, {"w": place}), {"w": expected})


def test_the_shapes_of_a_state_that_was_never_made(tmp_path, mesh):
    """`jax.eval_shape` of the function that makes it: nothing is allocated before the load."""

    def make():
        w = lamina.shard(jnp.arange(12.0).reshape(3, 4), mesh, ["dp", "tp"])
        return {"w": w, "state": optax.sgd(0.1, momentum=0.9).init({"b": jnp.arange(4.0)})}

    lamina.save(tmp_path, make())
    found = lamina.load(tmp_path, jax.eval_shape(make))
    assert_same(found["w"], make()["w"])
    np.testing.assert_array_equal(found["state"][0].trace["b"], np.zeros(4))


def test_a_loaded_state_goes_on_as_if_nothing_had_happened(tmp_path):
    optimiser = optax.adam(0.1)
    params = {"w": jnp.arange(4.0), "b": jnp.ones(())}
    state = optimiser.init(params)

    @jax.jit
    def step(params, state):
        gradients = jax.grad(lambda p: ((p["w"] - p["b"]) ** 2).sum())(params)
        updates, state = optimiser.update(gradients, state)
        return optax.apply_updates(params, updates), state

    params, state = step(params, state)
    lamina.save(tmp_path, {"params": params, "state": state}, step=1)
    expected = step(params, state)
    loaded = lamina.load(tmp_path, {"params": params, "state": state})
    assert_same(step(loaded["params"], loaded["state"]), expected)


def test_copies_on_several_devices_are_one_leaf(tmp_path, mesh):
    """What a jitted step returns beside its Tensors: a counter, on every device."""
    count = lamina.shard(np.float32(2), mesh, []).jax() + 1
    assert len(count.devices()) > 1
    lamina.save(tmp_path, {"count": count})
    assert lamina.load(tmp_path)["count"] == 3


def test_leaves_are_folders_that_any_reader_of_zarr_opens(tmp_path, mesh):
    """An even layout is the global tensor on the disk."""
    import tensorstore

    w = np.arange(24.0, dtype="float32").reshape(6, 4)
    folder = lamina.save(tmp_path, {"params": {"w": lamina.shard(w, mesh, ["dp", "tp"])}}).path / "arrays" / "params.w"
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), w)


def test_names_that_file_systems_dont_take(tmp_path):
    names = ["a/b", "a_b", "A_B", "..", ".", "", "x" * 300, "x" * 299, "ü", "con", "manifest.json", "a.b", "~"]
    tree = {name: np.array(number) for number, name in enumerate(names)} | {"a": {"b": np.array(99)}}
    lamina.save(tmp_path, tree)
    assert_same(lamina.load(tmp_path), tree)


def test_two_leaves_of_one_name(tmp_path):
    with pytest.raises(CheckpointError, match="several leaves are called a/0"):
        lamina.save(tmp_path, {"a": Both(np.ones(1), np.ones(2))})
    assert lamina.latest(tmp_path) is None


@jax.tree_util.register_pytree_with_keys_class
class Both:
    def __init__(self, one, other):
        self.parts = one, other

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.SequenceKey(0), part) for part in self.parts], None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)
