"""TensorLayout and the distributed types: their invariants in order, and their local types."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import ConversionError, LayoutError
from lamina.sharding import (
    CPU,
    BufferType,
    DeviceMapping,
    DeviceMesh,
    DistributedBufferType,
    DistributedTensorType,
    DistributedType,
    NamedMapping,
    Partial,
    PlacementMapping,
    Replicated,
    Sharded,
    SymbolicDim,
    TensorLayout,
    TensorType,
    local_shard_shape_from_global,
)
from tests.facts import fact_of
from tests.strategies import layouts, mesh_axes, shapes

MESH = DeviceMesh.abstract((2, 4), ("dp", "tp"))
REAL = DeviceMesh([CPU(i) for i in range(8)], (2, 4), ("dp", "tp"))
KINDS = [DistributedTensorType, DistributedBufferType]
n = SymbolicDim("n")


@st.composite
def mapped(draw):
    sizes, rank = draw(mesh_axes()), draw(st.integers(0, 3))
    layout = draw(layouts(sizes, rank))
    mesh = DeviceMesh.abstract(tuple(sizes.values()), tuple(sizes))
    return NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial)), draw(shapes(rank))


# -- TensorLayout -----------------------------------------------------------------------------------------------------


def test_tensor_layout_1_the_mapping_fits_the_rank():
    with pytest.raises(LayoutError) as caught:
        TensorLayout("float32", (8,), NamedMapping(MESH, ["dp", "tp"]))
    assert fact_of(caught.value) == "the spec [dp=2,tp=4] dp,tp has 2 entries for a tensor of rank 1"
    with pytest.raises(LayoutError) as caught:
        TensorLayout("float32", (8,), PlacementMapping(MESH, [Sharded(1), Replicated()]))
    assert fact_of(caught.value) == "Sharded(1) on mesh axis 'dp' is out of range for a tensor of rank 1"


def test_tensor_layout_takes_a_mapping():
    with pytest.raises(TypeError) as caught:
        TensorLayout("float32", (8,), MESH)
    assert str(caught.value) == "mapping must be a lamina DeviceMapping, not DeviceMesh([dp=2,tp=4], abstract)"
    with pytest.raises(TypeError, match="^'nope' is not a dtype that Lamina knows$"):
        TensorLayout("nope", (8,), NamedMapping(MESH))


def test_tensor_layout_is_a_mapping_that_knows_its_rank():
    mapping = PlacementMapping(MESH, [Sharded(-1), Partial("max")])
    tensor = TensorLayout("bf16", (10, "n"), mapping)
    assert isinstance(tensor, DeviceMapping)
    assert (tensor.dtype, tensor.shape, tensor.rank, tensor.mesh) == ("bfloat16", (10, n), 2, MESH)
    assert tensor.placements == tensor.to_placements() == (Sharded(1), Partial("max"))
    assert tensor.to_named_sharding() == tensor.to_named_sharding(2) == mapping.to_named_sharding(2)
    assert tensor.layout() == tensor.layout(2) == mapping.layout(2)
    assert not tensor.is_fully_replicated and tensor.is_fully_resolved
    assert tensor.local_shapes == [(10, (n + 1) // 2)] * 4 + [(10, n // 2)] * 4
    with pytest.raises(LayoutError):
        tensor.layout(3)


def test_tensor_layouts_of_equal_meaning_are_equal():
    same = [
        TensorLayout("float32", (8, 8), NamedMapping(MESH, ["dp"])),
        TensorLayout("f32", [8, 8], NamedMapping(MESH, ["dp", None])),
        TensorLayout(float, (8, 8), PlacementMapping(MESH, [Sharded(0), Replicated()])),
        TensorLayout("float32", (8, 8), PlacementMapping(MESH, [Sharded(-2), Replicated()])),
    ]
    assert len(set(same)) == 1 and len(set(map(repr, same))) == 1
    different = [
        same[0],
        TensorLayout("float16", (8, 8), NamedMapping(MESH, ["dp"])),
        TensorLayout("float32", (8, 4), NamedMapping(MESH, ["dp"])),
        TensorLayout("float32", (8, 8), NamedMapping(MESH, [None, "dp"])),
        TensorLayout("float32", (8, 8, 1), NamedMapping(MESH, ["dp"])),
    ]
    assert len(set(different)) == len(different)


@given(mapped())
def test_tensor_layout_says_what_its_mapping_says(case):
    mapping, shape = case
    tensor = TensorLayout("int8", shape, mapping)
    assert tensor.local_shapes == local_shard_shape_from_global(shape, mapping.mesh, mapping)
    assert tensor.layout() == mapping.layout(len(shape))
    assert tensor.is_fully_replicated == mapping.is_fully_replicated
    for twin in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor)):
        assert twin == tensor and hash(twin) == hash(tensor) and repr(twin) == repr(tensor)


def test_tensor_layout_text():
    assert repr(TensorLayout("float32", (8, n), NamedMapping(MESH, ["dp"]))) == (
        "TensorLayout(float32[8,n], '[dp=2,tp=4] dp,-')"
    )


# -- distributed types ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_1_dtype_and_dims(kind):
    assert kind("bf16", (8, "n"), MESH, [Replicated()] * 2).dtype == "bfloat16"
    assert kind(float, (8, "n", 2 * n), MESH, [Replicated()] * 2).shape == (8, n, 2 * n)
    with pytest.raises(TypeError, match="^'nope' is not a dtype that Lamina knows$"):
        kind("nope", (8,), MESH, [Replicated()] * 2)
    with pytest.raises(ValueError, match="^a dim is 0 or more, not -8$"):
        kind("float32", (-8,), MESH, [Replicated()] * 2)


@pytest.mark.parametrize("kind", KINDS)
def test_2_the_placements_fit_the_mesh_and_the_rank(kind):
    with pytest.raises(LayoutError) as caught:
        kind("float32", (8,), MESH, [Sharded(0)])
    assert fact_of(caught.value) == "1 placements [Sharded(0)] for the 2 axes of the mesh [dp=2,tp=4]"
    with pytest.raises(LayoutError) as caught:
        kind("float32", (8,), MESH, [Sharded(0), Sharded(1)])
    assert fact_of(caught.value) == "Sharded(1) on mesh axis 'tp' is out of range for a tensor of rank 1"


@pytest.mark.parametrize("kind", KINDS)
def test_2_a_mapping_on_another_mesh_is_refused(kind):
    """No silent replication: `to_mesh` is the explicit way to drop axes."""
    other = DeviceMesh.abstract((4,), ("x",))
    with pytest.raises(LayoutError):
        kind("float32", (8,), other, NamedMapping(MESH, ["dp"]))
    assert kind("float32", (8,), other, NamedMapping(MESH, ["dp"]).to_mesh(other)).placements == (Replicated(),)


@pytest.mark.parametrize("kind", KINDS)
def test_3_equal_meaning_equal_type_equal_hash(kind):
    same = [
        kind("float32", (8, "n"), MESH, [Sharded(0), Replicated()]),
        kind("f32", (8, n), MESH, [Sharded(-2), Replicated()]),
        kind("float32", [8, n], MESH, NamedMapping(MESH, ["dp"])),
        kind("float32", [8, n + 0], MESH, NamedMapping(MESH, ["dp", None])),
    ]
    assert len(set(same)) == 1 and len(set(map(repr, same))) == 1
    different = [
        same[0],
        kind("float16", (8, "n"), MESH, [Sharded(0), Replicated()]),
        kind("float32", (8, "m"), MESH, [Sharded(0), Replicated()]),
        kind("float32", (8, "n"), MESH, [Sharded(0), Partial()]),
        kind("float32", (8, "n"), REAL, [Sharded(0), Replicated()]),
    ]
    assert len(set(different)) == len(different)


def test_3_a_tensor_is_no_buffer():
    tensor, buffer = (kind("float32", (8,), MESH, [Replicated()] * 2) for kind in KINDS)
    assert tensor != buffer and len({tensor, buffer}) == 2
    assert isinstance(tensor, DistributedType) and isinstance(buffer, DistributedType)


@pytest.mark.parametrize("kind, local", [(DistributedTensorType, TensorType), (DistributedBufferType, BufferType)])
def test_local_types_one_per_device(kind, local):
    found = kind("float32", (10, "n"), REAL, [Sharded(1), Sharded(0)]).local_types
    assert found[:5] == [
        local("float32", (3, (n + 1) // 2), CPU(0)),
        local("float32", (3, (n + 1) // 2), CPU(1)),
        local("float32", (2, (n + 1) // 2), CPU(2)),
        local("float32", (2, (n + 1) // 2), CPU(3)),
        local("float32", (3, n // 2), CPU(4)),
    ]
    assert all(type(one) is local for one in found)


def test_the_shared_type_is_abstract():
    with pytest.raises(TypeError, match="^DistributedType is abstract: use DistributedTensorType or Dist"):
        DistributedType("int8", (5,), MESH["dp"], [Sharded(0)])


def test_local_types_of_abstract_and_simulated_meshes():
    abstract = DistributedTensorType("int8", (5,), MESH["dp"], [Sharded(0)])
    assert abstract.local_types == [TensorType("int8", (3,), None), TensorType("int8", (2,), None)]
    simulated = DistributedTensorType("int8", (5,), DeviceMesh.simulated((2,), ("dp",)), [Sharded(0)])
    assert [one.device for one in simulated.local_types] == [CPU(0), CPU(0)]


@given(mapped())
def test_local_types_agree_with_the_shapes(case):
    mapping, shape = case
    found = DistributedTensorType("float32", shape, mapping.mesh, mapping)
    assert [one.shape for one in found.local_types] == local_shard_shape_from_global(shape, mapping.mesh, mapping)
    assert found.mapping == mapping and found.layout == mapping.layout(len(shape)) and found.rank == len(shape)


def test_placements_where_they_can_say_it():
    assert DistributedTensorType("int8", (8, 8), MESH, [Sharded(-1), Partial("max")]).placements == (
        Sharded(1),
        Partial("max"),
    )
    swapped = DistributedTensorType("int8", (8,), MESH, NamedMapping(MESH, [("tp", "dp")]))
    with pytest.raises(ConversionError):
        _ = swapped.placements
    assert [one.shape for one in swapped.local_types] == [(1,)] * 8


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind):
    one = kind("float32", (8, "n"), REAL, [Sharded(0), Partial("max")])
    for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
        assert type(twin) is kind and twin == one and hash(twin) == hash(one)
    for name in ("dtype", "shape", "mesh", "other"):
        with pytest.raises(AttributeError):
            setattr(one, name, None)
        with pytest.raises(AttributeError):
            delattr(one, name)
    assert repr(one) == f"{kind.__name__}(float32[8,n], '[dp=2,tp=4] dp,- +max(tp)')"


@pytest.mark.parametrize("kind", [TensorType, BufferType])
def test_local_types_are_values(kind):
    one = kind("f32", (8, "n"), CPU(0))
    assert one == kind("float32", [8, n], CPU(0)) != kind("float32", (8, "n"), CPU(1))
    assert hash(one) == hash(kind("float32", (8, n), CPU(0)))
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.shape = ()


def test_the_two_local_types_differ():
    assert TensorType("int8", (2,), None) != BufferType("int8", (2,), None)
