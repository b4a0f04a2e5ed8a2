"""Making a Tensor, and reading it: always the global value, never one shard's, and never any padding."""

from __future__ import annotations

import operator
import pickle

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

import lamina
from lamina.planning.simulate import collect, scatter
from lamina.sharding import CPU, DeviceMesh, NamedMapping, Partial, Replicated, Sharded
from lamina.sharding.layout import Layout
from lamina.sharding.shapes import local_shapes
from tests.engine.oracles import KINDS, assert_holds, held_by, holding, laid, mapping_of, mesh_of, on_both_kinds
from tests.strategies import OPS, any_blocks, layouts, mesh_axes, shapes, values

AXES = {"x": 2, "y": 3}


def pointers(array: jax.Array) -> list[int]:
    return [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]


def uneven(kind: str = "real") -> tuple[np.ndarray, lamina.Tensor]:
    """A value, and a Tensor of it that is uneven and has pieces."""
    value = values((5, 4))
    return value, lamina.shard(value, mesh_of(AXES, kind), ["y"], partial=["x"])


# -- tensor -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "dtype"),
    [(3, "int32"), (3.0, "float32"), (True, "bool"), (1j, "complex64"), ([1, 2], "int32"), ([[1.0], [2.0]], "float32"),
     (np.float16(2), "float16"), (np.arange(3, dtype="uint8"), "uint8"), (np.ones((), ml_dtypes.bfloat16), "bfloat16")],
)  # fmt: skip
def test_tensor_takes_what_numpy_takes(given_, dtype):
    x = lamina.tensor(given_)
    assert (x.dtype, x.shape, x.device) == (dtype, np.shape(given_), CPU(0))
    np.testing.assert_array_equal(x.numpy(), np.asarray(given_))


def test_tensor_converts_the_dtype_if_it_is_told_to():
    for given_ in ([1, 2], np.array([1, 2]), jnp.array([1, 2]), lamina.tensor([1, 2])):
        x = lamina.tensor(given_, "bfloat16")
        assert (x.dtype, x.tolist()) == (ml_dtypes.bfloat16, [1, 2])
    mesh = mesh_of(AXES)
    x = lamina.tensor(lamina.shard(values((5,)), mesh, ["y"]), "int32")
    assert_holds(x, scatter(values((5,), "int32"), Layout(AXES, ["y"])))


@pytest.mark.parametrize("op", OPS, ids=str)
@on_both_kinds
def test_pieces_are_reduced_before_they_are_rounded(kind, op):
    """0.5 and 0.5 make 1; as integers they would be 0 and 0."""
    layout = Layout(AXES, [()], {"x": op, "y": op})
    pieces = [np.full(2, 0.5 + i % 2, "float32") for i in range(6)]
    x = lamina.from_shards(pieces, mapping_of(mesh_of(AXES, kind), layout))
    np.testing.assert_array_equal(lamina.tensor(x, "int32").numpy(), x.numpy().astype("int32"))
    np.testing.assert_array_equal(lamina.tensor(x, "bool").numpy(), x.numpy().astype("bool"))


@on_both_kinds
def test_what_device_get_leaves_on_the_host_is_still_a_tensor(kind):
    """jax.device_get replaces the array by numpy's."""
    for layout in (Layout(AXES, ["y", ()]), Layout(AXES, [(), "x"], {"y": "sum"})):
        x = laid(values((5, 4)), mesh_of(AXES, kind), layout)
        host = jax.device_get(x)
        assert repr(host) == repr(x)
        assert_holds(host, held_by(x), layout)
        assert_holds(lamina.all_gather(host), held_by(lamina.all_gather(x)))


def test_tensor_of_a_tensor_is_the_tensor():
    x = lamina.tensor([1.0])
    assert lamina.tensor(x) is x
    assert lamina.tensor(x, "float32") is x


def test_tensor_leaves_a_jax_array_where_it_is():
    array = jax.device_put(np.ones(2), jax.devices()[3])
    x = lamina.tensor(array)
    assert x.device == CPU(3)
    assert x.jax() is array


def test_tensor_puts_host_data_on_the_default_device():
    with jax.default_device(jax.devices()[2]):
        assert lamina.tensor([1.0]).device == CPU(2)


# -- from and to JAX --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [(None, None), ("x",), ("y", "x"), (("x", "y"),), (None, ("y", "x"))], ids=str)
def test_from_and_to_jax_cost_nothing(spec):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:6]).reshape(2, 3), ("x", "y"))
    array = jax.device_put(values((6, 6)), NamedSharding(mesh, PartitionSpec(*spec)))
    before = pointers(array)
    x = lamina.from_jax(array)
    assert x.jax() is array
    assert pointers(x.jax()) == before
    assert x.sharding == NamedMapping(mesh_of(AXES), spec)
    # And the shards are the very blocks that the devices hold.
    assert [shard.unsafe_buffer_pointer() for shard in x.shards] == before


def test_from_jax_of_an_array_on_one_device():
    array = jax.device_put(np.ones(2), jax.devices()[5])
    x = lamina.from_jax(array)
    assert (x.mesh, x.jax() is array) == (DeviceMesh.single(CPU(5)), True)


def test_from_jax_keeps_the_device_order_of_the_mesh():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4])[[2, 0, 3, 1]], ("x",))
    x = lamina.from_jax(jax.device_put(np.arange(4.0), NamedSharding(mesh, PartitionSpec("x"))))
    assert x.mesh == DeviceMesh([CPU(2), CPU(0), CPU(3), CPU(1)], (4,), ("x",))
    assert [shard.item() for shard in x.shards] == [0, 1, 2, 3]
    assert [shard.devices() for shard in x.shards] == [{jax.devices()[i]} for i in (2, 0, 3, 1)]


@pytest.mark.parametrize(
    ("spec", "partial", "why"), [(["y"], (), "it is uneven"), ([None], ["x"], "it has Partial axes")]
)
@on_both_kinds
def test_what_jax_cant_say_is_an_error(kind, spec, partial, why):
    x = lamina.shard(values((4,)), mesh_of(AXES, kind), spec, partial=partial)
    with pytest.raises(lamina.ConversionError, match=why):
        x.jax()


def test_from_jax_takes_only_jax_arrays():
    with pytest.raises(TypeError, match="from_jax takes a jax.Array, not ndarray; see lamina.tensor"):
        lamina.from_jax(np.ones(2))


def test_the_array_of_a_plain_layout_is_an_ordinary_global_array():
    value = values((6, 4))
    x = lamina.shard(value, mesh_of(AXES), [("y", "x"), None])
    np.testing.assert_array_equal(np.asarray(x.jax()), value)
    assert x.jax().sharding.spec == PartitionSpec(("y", "x"), None)
    np.testing.assert_array_equal(jnp.sum(x.jax(), 0), value.sum(0))


# -- shards -----------------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(KINDS))
def test_from_shards_and_shards_are_each_others_inverse(data, kind):
    axes, rank = data.draw(mesh_axes(8)), data.draw(st.integers(0, 3))
    layout, shape = data.draw(layouts(axes, rank)), data.draw(shapes(rank))
    blocks = any_blocks(layout, shape, "float32")
    x = holding(blocks, mesh_of(axes, kind), layout)  # the shape follows from the shards
    assert (x.shape, x.layout) == (shape, layout)
    assert_holds(x, blocks)
    assert [shard.shape for shard in x.shards] == local_shapes(shape, layout)
    np.testing.assert_array_equal(x.numpy(), collect(blocks, layout, shape, "float32"))


@given(st.data(), st.sampled_from(KINDS))
def test_no_reading_shows_the_padding(data, kind):
    """All values are 1 or more, so that a padding zero would show in any of the readings."""
    axes, rank = data.draw(mesh_axes(8)), data.draw(st.integers(1, 2))
    layout, shape = data.draw(layouts(axes, rank, partial=False)), data.draw(shapes(rank))
    value = values(shape) + 1
    x = lamina.shard(value, mesh_of(axes, kind), layout.dims)
    assert (x.shape, x.ndim, x.size, x.nbytes) == (shape, rank, value.size, value.nbytes)
    assert sum(int((np.asarray(s) < 1).sum()) for s in x.shards) == 0
    for read in (x.numpy(), np.asarray(x), np.from_dlpack(x), np.array(x.tolist(), "float32").reshape(shape)):
        np.testing.assert_array_equal(read, value)


def test_from_shards_takes_jax_arrays_from_anywhere():
    parts = [jax.device_put(np.full(2, i, "float32"), jax.devices()[7 - i]) for i in range(6)]
    x = lamina.from_shards(parts, NamedMapping(mesh_of(AXES), [("x", "y")]))
    assert x.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [shard.devices() for shard in x.shards] == [{device} for device in jax.devices()[:6]]


@on_both_kinds
def test_from_shards_keeps_the_pieces_as_they_are(kind):
    parts = [np.array([i, -i], "float32") for i in range(6)]
    x = lamina.from_shards(parts, NamedMapping(mesh_of(AXES, kind), unreduced={"x": "max", "y": "sum"}))
    assert [shard.tolist() for shard in x.shards] == [part.tolist() for part in parts]
    assert x.placements == (Partial("max"), Partial("sum"))
    assert x.tolist() == [3 + 4 + 5, -(0 + 1 + 2)]


@pytest.mark.parametrize(
    ("shapes_", "shape", "fact"),
    [
        ([(2,), (2,)], None, "2 shards for the 3 devices"),
        ([(1,), (2,), (1,)], None, "are not those of any tensor"),
        ([(2,), (1,), (1,)], (5,), "don't make up"),
        ([(2,), (1,), (1, 1)], None, "differ in rank"),
    ],
)
@on_both_kinds
def test_shards_that_make_up_no_tensor(kind, shapes_, shape, fact):
    mapping = NamedMapping(mesh_of({"x": 3}, kind), ["x"])
    with pytest.raises(lamina.LayoutError, match=fact):
        lamina.from_shards([np.ones(s, "float32") for s in shapes_], mapping, shape)


def test_shards_of_another_shape_than_the_layout_says():
    """Its shape was ignored."""
    said = lamina.TensorLayout("float32", (8, 4), NamedMapping(mesh_of({"x": 2}), ["x"]))
    assert lamina.from_shards([np.ones((4, 4), "float32")] * 2, said).shape == (8, 4)
    with pytest.raises(lamina.LayoutError, match=r"don't make up \(8, 4\), whose shards are \[\(4, 4\), \(4, 4\)\]"):
        lamina.from_shards([np.ones((2, 4), "float32")] * 2, said)


def test_shards_of_different_dtypes_make_up_no_tensor():
    with pytest.raises(lamina.LayoutError, match=r"different dtypes: \['float32', 'int32'\]"):
        lamina.from_shards([np.ones(1, "float32"), np.ones(1, "int32")], NamedMapping(mesh_of({"x": 2}), ["x"]))


# -- reading the value ------------------------------------------------------------------------------------------------


@on_both_kinds
def test_readings_of_a_whole_tensor(kind):
    value, x = uneven(kind)
    np.testing.assert_array_equal(x.numpy(), value, strict=True)
    np.testing.assert_array_equal(np.asarray(x), value, strict=True)
    np.testing.assert_array_equal(np.asarray(x, "int32"), value.astype("int32"), strict=True)
    np.testing.assert_array_equal(np.from_dlpack(x), value, strict=True)
    np.testing.assert_array_equal(jnp.from_dlpack(x), value)
    assert x.tolist() == value.tolist()
    assert len(x) == 5
    assert [x.item(7), x.item(1, 3), x.item(-1)] == [7, 7, 19]
    assert (x.shape, x.ndim, x.size, x.dtype, x.nbytes) == ((5, 4), 2, 20, np.float32, 80)


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool", "complex64", "uint8", "bfloat16"])
@on_both_kinds
def test_readings_of_a_scalar(kind, dtype):
    kind_of = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = lamina.shard(np.ones((), kind_of), mesh_of(AXES, kind), [], partial=["x"])
    assert x.item() == 1
    assert bool(x) is True
    assert complex(x) == 1
    if dtype != "complex64":
        assert (int(x), float(x)) == (1, 1.0)
    if dtype in ("int32", "uint8"):
        assert operator.index(x) == 1
        assert ["zero", "one"][x] == "one"
    else:
        with pytest.raises(TypeError):
            operator.index(x)


def test_a_scalar_is_formatted_as_its_number():
    x = lamina.shard(np.float32(2.5), mesh_of(AXES), [], partial=["x"])
    assert (f"{x:.3f}", f"{x}", f"{x!r:.6}") == ("2.500", repr(x), "Tensor")
    with pytest.raises(ValueError, match="Unknown format code"):
        f"{lamina.tensor(np.ones(2)):.3f}"


@pytest.mark.parametrize(
    ("read", "error"),
    [(len, TypeError), (iter, TypeError)],
)
def test_a_scalar_has_no_length(read, error):
    with pytest.raises(error):
        read(lamina.tensor(1.0))


def test_what_numpy_refuses_is_refused():
    x = uneven()[1]
    for read in (bool, float, int, operator.index, iter, lambda x: x.item()):
        with pytest.raises((TypeError, ValueError)):
            read(x)


def test_numpy_gives_an_array_of_ones_own():
    """What the caller writes into it, if numpy lets him at all, isn't seen by the tensor."""
    x = lamina.shard(values((6,)), mesh_of({"x": 2}), ["x"])
    for read in (x.numpy, lambda: np.asarray(x), lambda: np.array(x)):
        found = read()
        if found.flags.writeable:
            found[:] = -1
        assert x.tolist() == values((6,)).tolist()
    assert np.array(x).flags.writeable


@on_both_kinds
def test_repr_shows_the_value_and_the_layout(kind):
    x = lamina.shard(np.array([1.0, 2.0, 3.0], "float32"), mesh_of(AXES, kind), ["y"], partial={"x": "max"})
    assert repr(x) == "Tensor([1., 2., 3.], float32[3], '[x=2,y=3] y +max(x)')"
    assert repr(lamina.tensor(1)) == "Tensor(1, int32[], '[device=1] ()')"
    assert len(repr(lamina.tensor(np.zeros((1000, 1000))))) < 1000


def test_repr_under_jit_does_not_read_the_value():
    seen = []
    jax.jit(lambda x: seen.append(repr(x)))(uneven()[1])
    assert seen == ["Tensor(float32[5,4] traced, '[x=2,y=3] y,- +sum(x)')"]


def test_a_traced_tensor_has_no_value_yet():
    x = uneven()[1]
    for read in (lambda x: x.numpy(), bool, lambda x: x.item(), np.asarray):
        with pytest.raises((jax.errors.JAXTypeError, lamina.TransformError)):
            jax.jit(read)(x)
    with pytest.raises(lamina.TransformError, match="a traced Tensor has no shards yet"):
        jax.jit(lambda x: x.shards)(x)


@on_both_kinds
def test_pickle_keeps_value_and_layout(kind):
    value, x = uneven(kind)
    y = pickle.loads(pickle.dumps(x))
    assert (y.sharding, y.mesh, y.dtype) == (x.sharding, x.mesh, x.dtype)
    np.testing.assert_array_equal(y.numpy(), value, strict=True)
    assert [s.shape for s in y.shards] == [s.shape for s in x.shards]


# -- what it is -------------------------------------------------------------------------------------------------------


def test_it_is_immutable():
    x = lamina.tensor([1.0])
    with pytest.raises(AttributeError, match="a Tensor is immutable: can't set 'shape'"):
        x.shape = (2,)
    with pytest.raises(AttributeError):
        x.other = 1
    with pytest.raises(TypeError):
        x[0] = 2


@on_both_kinds
def test_mesh_sharding_and_placements_are_those_it_was_given(kind):
    mesh, x = mesh_of(AXES, kind), uneven(kind)[1]
    assert x.mesh == mesh
    assert x.placements == (Partial("sum"), Sharded(0))
    assert x.sharding == NamedMapping(mesh, ["y", None], unreduced=["x"])
    assert x.layout == Layout(AXES, ["y", ()], {"x": "sum"})
    assert lamina.shard(x, mesh, []).placements == (Replicated(), Replicated())


def test_an_order_that_placements_cant_say_is_an_error_and_not_a_guess():
    x = lamina.shard(values((6,)), mesh_of(AXES), [("y", "x")])
    assert x.sharding.spec == (("y", "x"),)
    with pytest.raises(lamina.ConversionError, match="placements can only say the mesh's own order"):
        x.placements


def test_device():
    assert lamina.tensor(1).device == CPU(0)
    assert uneven("simulated")[1].device == CPU(0)
    with pytest.raises(lamina.LayoutError, match="lies on 6 devices"):
        uneven()[1].device


def test_it_is_a_pytree_with_one_leaf():
    x = uneven()[1]
    (leaf,), tree = jax.tree.flatten(x)
    assert isinstance(leaf, jax.Array)
    y = jax.tree.unflatten(tree, [leaf])
    assert (y.shape, y.sharding) == (x.shape, x.sharding)
    doubled = jax.tree.map(lambda a: 2 * a, x)
    np.testing.assert_array_equal(doubled.numpy(), 2 * values((5, 4)))
    assert jax.tree_util.tree_leaves_with_path({"w": x})[0][0][0] == jax.tree_util.DictKey("w")
    placeholder = jax.tree.map(lambda _: None, x)
    assert jax.tree.structure(placeholder) is not None


def test_block_until_ready_returns_the_tensor():
    x = uneven()[1]
    assert x.block_until_ready() is x
    assert jax.block_until_ready(x).shape == x.shape


# -- memory kinds -----------------------------------------------------------------------------------------------------

KINDS_OF_MEMORY = sorted({memory.kind for memory in jax.devices()[0].addressable_memories()})


@pytest.mark.parametrize("memory", KINDS_OF_MEMORY)
@on_both_kinds
def test_a_mapping_may_name_the_memory(kind, memory):
    mesh, value = mesh_of(AXES, kind), values((6, 4))
    x = lamina.to_device(value, sharding=NamedMapping(mesh, ["y"], memory_kind=memory))
    assert x.jax().sharding.memory_kind == memory
    np.testing.assert_array_equal(x.numpy(), value)
    assert_holds(x, scatter(value, Layout(AXES, ["y", ()])))
    same = lamina.to_device(value, sharding=lamina.TensorLayout(value.dtype, value.shape, x.sharding))
    assert same.sharding == x.sharding and same.jax().sharding.memory_kind == memory
    back = lamina.shard(x, mesh, [None, "x"])
    np.testing.assert_array_equal(back.numpy(), value)
    assert_holds(back, scatter(value, Layout(AXES, [(), "x"])))


@pytest.mark.parametrize("memory", KINDS_OF_MEMORY)
def test_a_sharding_of_jax_may_name_the_memory(memory):
    """It went lost: the tensor lay in the default memory."""
    value, devices = values((6, 4)), np.array(jax.devices()[:6]).reshape(2, 3)
    spec = jax.sharding.PartitionSpec("x", ())
    on_all = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, ("x", "y")), spec, memory_kind=memory)
    for target in (on_all, jax.sharding.SingleDeviceSharding(jax.devices()[2], memory_kind=memory)):
        for source in (value, lamina.shard(value, mesh_of(AXES), ["y"])):
            x = lamina.to_device(source, sharding=target)
            assert x.jax().sharding.is_equivalent_to(target, 2) and x.jax().sharding.memory_kind == memory
            np.testing.assert_array_equal(x.numpy(), value)
