"""Shape arithmetic: the three functions agree with each other and with the layout's blocks, symbolic dims included."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError
from lamina.sharding import (
    DeviceMesh,
    Layout,
    NamedMapping,
    Partial,
    PlacementMapping,
    Replicated,
    Sharded,
    SymbolicDim,
    global_shape_from_local,
    local_shard_shape_from_global,
    shard_shape,
)
from lamina.sharding.dims import substitute
from lamina.sharding.mesh import positions
from lamina.sharding.shapes import local_shapes
from tests.strategies import layouts, mesh_axes, shapes

M4 = DeviceMesh.abstract((4,), ("x",))
M22 = DeviceMesh.abstract((2, 2), ("x", "y"))
n, m = SymbolicDim("n"), SymbolicDim("m")


@st.composite
def placed(draw, min_rank=0):
    """(placements, mesh, shape): axes nest in mesh order, some count from the end."""
    sizes, rank = draw(mesh_axes()), draw(st.integers(min_rank, 3))
    options = st.sampled_from([Replicated(), Partial(), Partial("max")])
    if rank:
        options |= st.integers(-rank, rank - 1).map(Sharded)
    mesh = DeviceMesh.abstract(tuple(sizes.values()), tuple(sizes))
    return [draw(options) for _ in sizes], mesh, draw(shapes(rank))


@st.composite
def mapped(draw):
    """(mapping, shape): axes in any order."""
    sizes, rank = draw(mesh_axes()), draw(st.integers(0, 3))
    layout = draw(layouts(sizes, rank))
    mesh = DeviceMesh.abstract(tuple(sizes.values()), tuple(sizes))
    return NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial)), draw(shapes(rank))


def block_shapes(layout: Layout, mesh: DeviceMesh, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(stop - start for start, stop in layout.block(shape, where)) for where in positions(mesh)]


# -- they agree -------------------------------------------------------------------------------------------------------


@given(placed())
def test_with_the_blocks_of_the_layout(case):
    placements, mesh, shape = case
    layout = PlacementMapping(mesh, placements).layout(len(shape))
    assert local_shard_shape_from_global(shape, mesh, placements) == block_shapes(layout, mesh, shape)


@given(mapped())
def test_with_the_blocks_of_any_mapping(case):
    mapping, shape = case
    layout = mapping.layout(len(shape))
    found = local_shard_shape_from_global(shape, mapping.mesh, mapping)
    assert found == block_shapes(layout, mapping.mesh, shape) == local_shapes(shape, layout)
    assert tuple(shard_shape(shape, mapping)) == found[0]
    assert global_shape_from_local(found, mapping.mesh, mapping) == shape


@given(placed())
def test_shard_shape_is_the_first_shard_and_the_largest(case):
    placements, mesh, shape = case
    every = local_shard_shape_from_global(shape, mesh, placements)
    first = shard_shape(shape, placements, mesh.mesh_shape)
    assert tuple(first) == every[0] == tuple(map(max, zip(*every, strict=True)))
    assert first == shard_shape(shape, placements, mesh)
    assert first == shard_shape(shape, PlacementMapping(mesh, placements))


@given(placed())
def test_there_and_back(case):
    placements, mesh, shape = case
    every = local_shard_shape_from_global(shape, mesh, placements)
    assert global_shape_from_local(every, mesh, placements) == shape
    assert global_shape_from_local([list(local) for local in every], mesh, placements) == shape


@given(placed(min_rank=1))
def test_one_shard_is_taken_as_the_even_case(case):
    placements, mesh, local = case
    found = global_shape_from_local(local, mesh, placements)
    assert local_shard_shape_from_global(found, mesh, placements) == [local] * mesh.num_devices


# -- symbolic dims ----------------------------------------------------------------------------------------------------


@given(placed(), st.data())
def test_binding_symbols_before_or_after_gives_the_same(case, data):
    placements, mesh, shape = case
    names = [f"d{i}" for i in range(len(shape))]
    keep = [data.draw(st.booleans()) for _ in shape]
    symbolic = tuple(name if symbol else size for name, size, symbol in zip(names, shape, keep, strict=True))
    binding = dict(zip(names, shape, strict=True))

    def bound(dims):
        return tuple(substitute(dim, binding) for dim in dims)

    every = local_shard_shape_from_global(symbolic, mesh, placements)
    assert [bound(local) for local in every] == local_shard_shape_from_global(shape, mesh, placements)
    assert bound(shard_shape(symbolic, placements, mesh)) == tuple(shard_shape(shape, placements, mesh))


@given(placed())
def test_symbolic_shapes_come_back_from_all_shards(case):
    placements, mesh, shape = case
    symbolic = tuple(SymbolicDim(f"d{i}") for i in range(len(shape)))
    every = local_shard_shape_from_global(symbolic, mesh, placements)
    assert global_shape_from_local(every, mesh, placements) == symbolic


def test_symbolic_shapes_by_hand():
    assert shard_shape((n,), [Sharded(0)], (4,)) == [(n + 3) // 4]
    assert shard_shape((4 * n, m), [Sharded(0)], (4,)) == [n, m]
    assert shard_shape(("n", 6), [Sharded(-1)], (4,)) == [n, 2]
    assert local_shard_shape_from_global(("n",), M22, [Sharded(0), Sharded(0)]) == [
        ((n + 3) // 4,),
        ((n + 2) // 4,),
        ((n + 1) // 4,),
        (n // 4,),
    ]
    assert global_shape_from_local((n, 3), M4, [Sharded(0)]) == (4 * n, 3)
    assert global_shape_from_local([(n,)] * 4, M4, [Sharded(0)]) == (4 * n,)


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_nested_is_flat():
    nested = local_shard_shape_from_global((10,), M22, [Sharded(0), Sharded(0)])
    assert nested == local_shard_shape_from_global((10,), M4, [Sharded(0)]) == [(3,), (3,), (2,), (2,)]
    other_way_round = NamedMapping(M22, [("y", "x")])
    assert local_shard_shape_from_global((10,), M22, other_way_round) == [(3,), (2,), (3,), (2,)]


def test_replicated_and_partial_keep_the_shape():
    assert shard_shape((5, 3), [Replicated(), Partial()], (2, 4)) == [5, 3]
    assert local_shard_shape_from_global((), M4, [Partial("max")]) == [()] * 4


def test_smaller_than_the_shard_count_and_empty():
    assert local_shard_shape_from_global((3,), DeviceMesh.abstract((8,), ("x",)), [Sharded(0)]) == (
        [(1,)] * 3 + [(0,)] * 5
    )
    assert local_shard_shape_from_global((0, 2), M4, [Sharded(0)]) == [(0, 2)] * 4


def test_negative_axes_everywhere():
    shape = (10, 6)
    assert shard_shape(shape, [Sharded(-2)], (4,)) == shard_shape(shape, [Sharded(0)], (4,)) == [3, 6]
    every = local_shard_shape_from_global(shape, M4, [Sharded(-1)])
    assert every == local_shard_shape_from_global(shape, M4, [Sharded(1)])
    assert global_shape_from_local(every, M4, [Sharded(-1)]) == shape
    assert global_shape_from_local((3, 6), M4, [Sharded(-2)]) == (12, 6)


def test_scalars():
    assert shard_shape((), [Replicated()], (4,)) == []
    assert global_shape_from_local((), M4, [Replicated()]) == ()
    assert global_shape_from_local([(), (), (), ()], M4, [Partial()]) == ()


# -- what can't be ----------------------------------------------------------------------------------------------------

SPLIT = [Sharded(0)]


@pytest.mark.parametrize(
    "call, text",
    [
        (
            lambda: shard_shape((10,), [Sharded(1)], (4,)),
            "Sharded(1) on mesh axis 'axis0' is out of range for a tensor of rank 1",
        ),
        (
            lambda: shard_shape((10,), SPLIT, (4, 2)),
            "1 placements [Sharded(0)] for the 2 axes of the mesh [axis0=4,axis1=2]",
        ),
        (
            lambda: global_shape_from_local([(3,), (3,)], M4, SPLIT),
            "2 local shapes for the 4 devices of [x=4]",
        ),
        (
            lambda: global_shape_from_local([(3,), (3, 1), (2,), (2,)], M4, SPLIT),
            "the local shapes [(3,), (3, 1), (2,), (2,)] differ in rank",
        ),
        (
            lambda: global_shape_from_local([(3,), (1,), (2,), (2,)], M4, SPLIT),
            "the local shapes [(3,), (1,), (2,), (2,)] are not those of any tensor: "
            "a dim of 8 over [x=4] x would give [(2,), (2,), (2,), (2,)]",
        ),
        (
            lambda: global_shape_from_local([(5,), (4,), (5,), (5,)], M4, [Replicated()]),
            "the local shapes [(5,), (4,), (5,), (5,)] are not those of any tensor",
        ),
        (
            lambda: shard_shape((10,), NamedMapping(M4, [None, "x"])),
            "the spec [x=4] -,x has 2 entries for a tensor of rank 1",
        ),
    ],
)
def test_what_cannot_be(call, text):
    with pytest.raises(LayoutError, match=f"^{re.escape(text)}"):
        call()


@pytest.mark.parametrize("bad", [-1, 2.5, None, "n + 1"])
def test_dims_that_cannot_be(bad):
    with pytest.raises((ValueError, TypeError)):
        shard_shape((bad,), SPLIT, (4,))


def test_placements_need_a_mesh():
    with pytest.raises((LayoutError, TypeError), match="mesh"):
        shard_shape((10,), SPLIT)


@pytest.mark.parametrize(
    "call",
    [
        lambda: local_shard_shape_from_global((10,), M22, NamedMapping(M4, ["x"])),
        lambda: global_shape_from_local((3,), M22, NamedMapping(M4, ["x"])),
        lambda: shard_shape((10,), NamedMapping(M4, ["x"]), (2, 2)),
    ],
)
def test_a_mapping_on_another_mesh_is_refused(call):
    with pytest.raises(LayoutError):
        call()
