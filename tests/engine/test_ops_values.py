"""Every communication op on generated layouts, on real and simulated meshes, against numpy on every device's block."""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict, defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import lamina
from lamina.planning.simulate import collect, positions, scatter
from lamina.sharding import CPU, DeviceMesh, NamedMapping, P, PlacementMapping, ReduceOp, Replicated, Sharded
from lamina.sharding.layout import Layout
from tests.engine.oracles import (
    KINDS,
    assert_holds,
    held_by,
    holding,
    laid,
    mapping_of,
    mesh_of,
    moved,
    on_both_kinds,
    reduced,
    runs,
)
from tests.strategies import OPS, any_blocks, layouts, mesh_axes, shapes, values

SUM, AVG, MIN, MAX, PROD = ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PROD
DEVICES = 8

on_a_real_or_simulated_mesh = st.sampled_from(KINDS)
eager_or_jitted = st.booleans()


class Case:
    """A tensor whose every device holds something else, and what they hold."""

    def __init__(self, layout: Layout, shape: tuple[int, ...], kind: str, dtype: str = "float32"):
        self.layout, self.shape, self.kind = layout, shape, kind
        self.mesh = mesh_of(layout.sizes, kind)
        self.blocks = any_blocks(layout, shape, dtype)
        self.tensor = holding(self.blocks, self.mesh, layout, shape)
        self.value = collect(self.blocks, layout, shape, dtype)

    def __repr__(self) -> str:
        return f"Case({str(self.layout)!r}, {self.shape}, {self.kind!r}, {self.value.dtype.name!r})"

    def moved_to(self, target: Layout):
        return moved(self.blocks, self.layout, target, self.shape)


@st.composite
def cases(draw, min_rank=0, max_rank=3, ops=OPS, partial=True, even=False, dtypes=("float32", "int32")):
    axes, rank = draw(mesh_axes(DEVICES)), draw(st.integers(min_rank, max_rank))
    layout = draw(layouts(axes, rank, partial, ops))
    shape = draw(shapes(rank))
    if even:
        shape = tuple(blocks * (size % 4) for blocks, size in zip(layout.grid, shape, strict=True))
    return Case(layout, shape, draw(on_a_real_or_simulated_mesh), draw(st.sampled_from(dtypes)))


# -- shard ------------------------------------------------------------------------------------------------------------


@given(st.data(), cases(), eager_or_jitted)
def test_shard_takes_a_tensor_from_any_layout_to_any_other(data, case, jitted):
    target = data.draw(layouts(case.layout.sizes, len(case.shape)))
    found = runs(lambda x: laid(x, case.mesh, target), jitted)(case.tensor)
    assert_holds(found, case.moved_to(target), target)
    np.testing.assert_array_equal(found.numpy(), case.value)


@given(
    st.data(), on_a_real_or_simulated_mesh, st.sampled_from([np.asarray, jnp.asarray, lamina.tensor]), eager_or_jitted
)
def test_shard_takes_arrays_of_any_kind(data, kind, as_kind, jitted):
    axes, rank = data.draw(mesh_axes(DEVICES)), data.draw(st.integers(0, 3))
    layout, shape = data.draw(layouts(axes, rank)), data.draw(shapes(rank))
    value, mesh = values(shape), mesh_of(axes, kind)
    assume(not (jitted and as_kind is lamina.tensor))  # JAX keeps what is committed to one device there
    found = runs(lambda x: laid(x, mesh, layout), jitted)(as_kind(value))
    assert_holds(found, scatter(value, layout), layout)


@pytest.mark.parametrize("spec", [[None], ["x"]], ids=str)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
def test_what_is_sharded_lies_on_the_devices_of_the_mesh(spec, jitted):
    mesh = mesh_of({"x": 2, "y": 2})
    found = runs(lambda x: lamina.shard(x, mesh, spec), jitted)(np.arange(4.0, dtype="float32"))
    assert found.jax().devices() == set(jax.devices()[:4])


@on_both_kinds
def test_shard_takes_python_numbers_and_0d_arrays(kind):
    mesh = mesh_of({"x": 2}, kind)
    for scalar in (3.0, np.float32(3), np.array(3.0, "float32"), jnp.float32(3)):
        found = lamina.shard(scalar, mesh, [], partial=["x"])
        assert [float(shard) for shard in found.shards] == [3.0, 0.0]
        assert found.item() == 3.0


@on_both_kinds
def test_shard_takes_a_pytree_and_keeps_its_structure(kind):
    mesh = mesh_of({"x": 2, "y": 2}, kind)
    tree = {"w": values((4, 6)), "layers": [jnp.ones(4), (lamina.tensor(np.ones(2)), None)]}
    found = lamina.shard(tree, mesh, ["y"])
    is_tensor = lambda leaf: isinstance(leaf, lamina.Tensor)  # noqa: E731
    assert jax.tree.structure(found, is_leaf=is_tensor) == jax.tree.structure(tree, is_leaf=is_tensor)
    assert_holds(found["w"], scatter(tree["w"], Layout(mesh.axes, ["y", ()])))
    assert all(leaf.placements == (Replicated(), Sharded(0)) for leaf in jax.tree.leaves(found, is_leaf=is_tensor))


@on_both_kinds
def test_shard_takes_a_dict_of_specs(kind):
    mesh = mesh_of({"x": 2, "y": 2}, kind)
    tree = {"w": values((4, 6)), "b": values((6,))}
    found = lamina.shard(tree, mesh, {"w": ["x", "y"], "b": ["y"]})
    for name, axes in (("w", ["x", "y"]), ("b", ["y"])):
        assert_holds(found[name], scatter(tree[name], Layout(mesh.axes, axes)))


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda items: defaultdict(list, items)])
def test_a_dict_stays_of_its_kind_and_keeps_its_order(kind):
    tree, mesh = kind([("w", values((4, 6))), ("b", values((6,)))]), mesh_of({"x": 2, "y": 2})
    found = lamina.shard(tree, mesh, {"b": ["y"], "w": ["x", "y"]})
    assert type(found) is type(tree) and list(found) == ["w", "b"]
    assert all(isinstance(leaf, np.ndarray) for leaf in tree.values())  # the caller's is as it was


@pytest.mark.parametrize(
    "spec",
    [["x", None], ("x",), P("x", None), P("x"), [("x",)], [lamina.DimSpec(("x",)), None], PartitionSpec("x", None)],
    ids=repr,
)
def test_a_spec_can_be_written_in_many_ways(spec):
    mesh = mesh_of({"x": 2, "y": 2})
    assert lamina.shard(values((4, 4)), mesh, spec).sharding == NamedMapping(mesh, ["x"])


def test_an_open_dim_keeps_the_sharding_that_it_has():
    mesh = mesh_of({"x": 2, "y": 2})
    x = lamina.shard(values((8, 8)), mesh, [("x", "y"), None])
    is_open = lamina.DimSpec(is_open=True)
    assert lamina.shard(x, mesh, [is_open, None]).layout == x.layout
    assert lamina.shard(x, mesh, [lamina.DimSpec(("x",), is_open=True), None]).layout == x.layout
    assert lamina.shard(x, mesh, [is_open, "y"]).layout == Layout(mesh.axes, ["x", "y"])
    assert lamina.shard(x, mesh, [is_open], replicated_axes={"y"}).layout == Layout(mesh.axes, ["x", ()])
    assert lamina.shard(values((8, 8)), mesh, [is_open]).layout.is_replicated


def test_reshard_is_shard_with_a_warning():
    mesh, value = mesh_of({"x": 2}), values((4,))
    with pytest.warns(DeprecationWarning, match="lamina.reshard is deprecated: use lamina.shard"):
        found = lamina.reshard(value, mesh, ["x"])
    assert_holds(found, scatter(value, found.layout))


@pytest.mark.parametrize("keyword", [{"donate": True}, {"memory_limit": 1e6}, {"replicated_axes": {"y"}}], ids=str)
@on_both_kinds
def test_the_keywords_of_shard_do_not_change_the_value(kind, keyword):
    mesh, value = mesh_of({"x": 2, "y": 2}, kind), values((5, 6))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XLA says that it could not use a donated buffer
        found = lamina.shard(lamina.shard(value, mesh, [None, "x"]), mesh, ["x", None], **keyword)
    assert_holds(found, scatter(value, Layout(mesh.axes, ["x", ()])))


# -- all_reduce -------------------------------------------------------------------------------------------------------


@given(cases(), eager_or_jitted)
def test_all_reduce_makes_the_value_of_all_pieces(case, jitted):
    assume(case.layout.partial)
    found = runs(lamina.all_reduce, jitted)(case.tensor)
    target = case.layout.replace(partial=())
    assert_holds(found, reduced(case.blocks, case.layout, case.layout.partial), target)


@given(st.data(), cases())
def test_all_reduce_over_some_partial_axes_keeps_the_value(data, case):
    assume(case.layout.partial)
    axes = data.draw(st.sets(st.sampled_from(case.layout.partial_axes), min_size=1))
    found = lamina.all_reduce(case.tensor, reduce_axes=axes)
    target = case.layout.replace(partial=[(a, op) for a, op in case.layout.partial if a not in axes])
    assert_holds(found, case.moved_to(target), target)
    np.testing.assert_array_equal(found.numpy(), case.value)


@given(st.data(), cases(even=True, partial=False), st.sampled_from([None, SUM, AVG, MIN, MAX]), eager_or_jitted)
def test_all_reduce_of_shards_is_elementwise_over_the_group(data, case, op, jitted):
    """Value-changing: every device's shard becomes the reduction of the shards of its group."""
    assume(case.layout.sharded_axes)
    chosen = data.draw(st.none() | st.sets(st.sampled_from(case.layout.sharded_axes), min_size=1))
    axes = set(case.layout.sharded_axes) if chosen is None else chosen
    found = runs(lambda x: lamina.all_reduce(x, reduce_op=op, reduce_axes=chosen), jitted)(case.tensor)
    expected = reduced(case.blocks, case.layout, [(axis, op or SUM) for axis in axes])
    if op is AVG:  # sum / n over all axes at once rounds once, axis by axis several times
        for where, block in held_by(found).items():
            np.testing.assert_allclose(block, expected[where], rtol=1e-6, strict=True)
    else:
        assert_holds(found, expected)
    assert found.layout == case.layout.replace([[a for a in entry if a not in axes] for entry in case.layout.dims])


def test_all_reduce_of_shards_by_prod():
    mesh = mesh_of({"x": 2, "y": 2})
    x = lamina.shard(np.arange(1.0, 9.0), mesh, [("y", "x")])
    assert lamina.all_reduce(x, reduce_op="prod").tolist() == [1 * 3 * 5 * 7, 2 * 4 * 6 * 8]
    # Along x alone: the shards (y, x) of [1,2 | 3,4 | 5,6 | 7,8] are multiplied in pairs.
    assert lamina.all_reduce(x, reduce_op="prod", reduce_axes="x").tolist() == [3, 8, 35, 48]


def test_all_reduce_takes_partial_and_sharded_axes_together():
    mesh = mesh_of({"x": 2, "y": 2})
    x = lamina.from_shards(
        [np.array([1.0, 2]), np.array([3.0, 4]), np.array([10.0, 20]), np.array([30.0, 40])],
        NamedMapping(mesh, ["y"], unreduced=["x"]),
    )
    assert lamina.all_reduce(x).tolist() == [11, 22, 33, 44]
    assert lamina.all_reduce(x, reduce_axes=["x", "y"]).tolist() == [44, 66]
    alone = lamina.all_reduce(x, reduce_axes="y")  # the pieces along x stay
    assert (alone.layout, alone.tolist()) == (Layout(mesh.axes, [()], {"x": SUM}), [44, 66])


@on_both_kinds
def test_all_reduce_of_a_whole_tensor_changes_nothing(kind):
    value = values((3,))
    x = lamina.shard(value, mesh_of({"x": 2}, kind), [None])
    assert lamina.all_reduce(x).tolist() == value.tolist()


# -- reduce_scatter ---------------------------------------------------------------------------------------------------


@given(st.data(), cases(min_rank=1), eager_or_jitted)
def test_reduce_scatter_splits_the_value_of_the_pieces(data, case, jitted):
    assume(case.layout.partial)
    axis = data.draw(st.integers(-len(case.shape), len(case.shape) - 1))
    found = runs(lambda x: lamina.reduce_scatter(x, axis), jitted)(case.tensor)
    dims = list(case.layout.dims)
    dims[axis] += case.layout.partial_axes
    assert_holds(found, case.moved_to(case.layout.replace(dims, ())), case.layout.replace(dims, ()))


@given(st.data(), cases(min_rank=1, even=True, partial=False), st.sampled_from([None, SUM, MIN, MAX]))
def test_reduce_scatter_of_shards_keeps_a_part_of_the_elementwise_reduction(data, case, op):
    assume(case.layout.sharded_axes)
    axis = data.draw(st.integers(0, len(case.shape) - 1))
    found = lamina.reduce_scatter(case.tensor, axis, reduce_op=op)
    each = reduced(case.blocks, case.layout, [(a, op or SUM) for a in case.layout.sharded_axes])
    whole = next(iter(each.values()))  # all axes that split something are reduced, so all devices hold the same
    dims = [()] * len(case.shape)
    dims[axis] = tuple(a for a in case.layout.sizes if a in case.layout.sharded_axes)
    assert_holds(found, scatter(whole, case.layout.replace(dims)), case.layout.replace(dims))


@pytest.mark.parametrize("op", OPS)
@on_both_kinds
def test_reduce_scatter_has_every_reduce_op(kind, op):
    layout = Layout({"x": 2, "y": 3}, [(), ()], {"x": op, "y": op})
    blocks = any_blocks(layout, (7, 4), "float32")
    found = lamina.reduce_scatter(holding(blocks, mesh_of(layout.sizes, kind), layout), 0)
    expected = scatter(collect(blocks, layout, (7, 4), "float32"), Layout(layout.axes, [("x", "y"), ()]))
    if op is AVG:  # XLA divides by 3 as it multiplies by 1/3
        for where, block in held_by(found).items():
            np.testing.assert_allclose(block, expected[where], rtol=1e-5, strict=True)
    else:
        assert_holds(found, expected)


@on_both_kinds
def test_shards_are_reduced_beside_a_dim_that_is_uneven(kind):
    """Only the dims that the reduced axes split must be even."""
    mesh, value = mesh_of({"x": 2, "y": 3}, kind), values((6, 4))
    x = lamina.shard(value, mesh, ["x", "y"])
    for found in (lamina.all_reduce(x, reduce_axes="x"), lamina.reduce_scatter(x, 1, reduce_axes="x")):
        np.testing.assert_array_equal(found.numpy(), value[:3] + value[3:])
    assert [shard.shape for shard in lamina.all_reduce(x, reduce_axes="x").shards[:3]] == [(3, 2), (3, 1), (3, 1)]


# -- all_gather -------------------------------------------------------------------------------------------------------


@given(st.data(), cases(), eager_or_jitted)
def test_all_gather_makes_dims_whole(data, case, jitted):
    rank = len(case.shape)
    axis = data.draw(st.none() | st.integers(-rank, rank - 1)) if rank else None
    keyword = data.draw(st.sampled_from(["axis", "physical_axis"]))
    found = runs(lambda x: lamina.all_gather(x, **{keyword: axis}), jitted)(case.tensor)
    gathered = range(rank) if axis is None else [axis % rank]
    target = case.layout.replace([() if d in gathered else entry for d, entry in enumerate(case.layout.dims)])
    assert_holds(found, case.moved_to(target), target)


@given(cases(min_rank=1))
def test_both_names_of_a_dim_may_count_from_either_end(case):
    rank = len(case.shape)
    expected = lamina.all_gather(case.tensor, rank - 1)
    assert_holds(lamina.all_gather(case.tensor, rank - 1, physical_axis=-1), held_by(expected), expected.layout)


# -- all_to_all -------------------------------------------------------------------------------------------------------


@given(st.data(), cases(min_rank=2), eager_or_jitted)
def test_tiled_all_to_all_moves_the_axes_to_the_other_dim(data, case, jitted):
    split, concat = data.draw(st.permutations(range(len(case.shape))))[:2]
    negative = data.draw(st.booleans()) * len(case.shape)
    found = runs(lambda x: lamina.all_to_all(x, split - negative, concat - negative), jitted)(case.tensor)
    dims = list(case.layout.dims)
    dims[split], dims[concat] = dims[split] + dims[concat], ()
    target = case.layout.replace(dims)
    assert_holds(found, case.moved_to(target), target)
    np.testing.assert_array_equal(found.numpy(), case.value)


def lax_all_to_all(x: lamina.Tensor, split: int, concat: int, tiled: bool) -> list[np.ndarray]:
    """What JAX's own collective makes of the shards of x, one result per device, row-major."""
    array, axes = x.jax(), x.layout.dims[concat]

    def on_device(block):
        moved = jax.lax.all_to_all(block, axes, split, concat, tiled=tiled)
        return moved[None]  # one result per device, so that nothing is assumed of how they fit together

    out = PartitionSpec(array.sharding.mesh.axis_names)
    program = jax.shard_map(
        on_device, mesh=array.sharding.mesh, in_specs=array.sharding.spec, out_specs=out, check_vma=False
    )
    stacked = jax.jit(program)(array)
    return list(np.asarray(stacked))


@pytest.mark.parametrize(("split", "concat"), [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)])
@pytest.mark.parametrize("axes", [("x",), ("y",), ("x", "y"), ("y", "x")], ids=str)
def test_tiled_all_to_all_is_that_of_jax(split, concat, axes):
    mesh = mesh_of({"x": 2, "y": 3})
    x = lamina.shard(values((12, 6, 18)), mesh, [axes if d == concat else None for d in range(3)])
    expected = lax_all_to_all(x, split, concat, tiled=True)
    assert_holds(lamina.all_to_all(x, split, concat), dict(zip(positions(x.layout), expected, strict=True)))


@on_both_kinds
@pytest.mark.parametrize(("split", "concat"), [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)])
@pytest.mark.parametrize("axes", [("x",), ("y",), ("y", "x")], ids=str)
def test_untiled_all_to_all_is_that_of_jax(split, concat, axes, kind):
    real, sizes = mesh_of({"x": 2, "y": 3}), {"x": 2, "y": 3}
    count = math.prod(sizes[axis] for axis in axes)
    value = values([count if d == split else 12 if d == concat else 5 for d in range(3)])
    dims = [axes if d == concat else None for d in range(3)]
    expected = lax_all_to_all(lamina.shard(value, real, dims), split, concat, tiled=False)
    found = lamina.all_to_all(lamina.shard(value, mesh_of(sizes, kind), dims), split, concat, tiled=False)
    # lax takes the split dim away; here it stays, as a dim of one entry per device.
    for shard, block in zip(found.shards, expected, strict=True):
        np.testing.assert_array_equal(np.squeeze(np.asarray(shard), split), block, strict=True)
    assert found.layout.dims[split] == axes


def test_untiled_all_to_all_keeps_other_dims_and_pieces():
    mesh = mesh_of({"x": 2, "y": 2, "z": 2})
    x = lamina.shard(values((2, 4, 5)), mesh, [None, "x", "y"], partial=["z"])
    found = lamina.all_to_all(x, 0, 1, tiled=False)
    assert (found.shape, str(found.layout)) == ((2, 2, 2, 5), "[x=2,y=2,z=2] x,-,-,y +sum(z)")
    # Each device's two columns come first, and the devices' shards are stacked behind them.
    np.testing.assert_array_equal(found.numpy(), values((2, 4, 5)).reshape(2, 2, 2, 5).swapaxes(1, 2))


# -- distributed_broadcast --------------------------------------------------------------------------------------------


@given(cases(), eager_or_jitted)
def test_distributed_broadcast_gathers_what_is_split(case, jitted):
    jitted &= not case.mesh.is_single  # a program can't leave the device of its arguments
    found = runs(lamina.distributed_broadcast, jitted)(case.tensor)
    if case.mesh.is_single:  # a tensor on one device is broadcast to all
        assert found.mesh == DeviceMesh.default()
    else:
        assert found.mesh == case.mesh
    assert found.layout.is_replicated
    for shard in found.shards:
        np.testing.assert_array_equal(np.asarray(shard), case.value, strict=True)


@given(cases(), mesh_axes(DEVICES), on_a_real_or_simulated_mesh)
def test_distributed_broadcast_to_another_mesh(case, axes, kind):
    found = lamina.distributed_broadcast(case.tensor, mesh_of(axes, kind))
    assert_holds(found, scatter(case.value, Layout(axes, [()] * len(case.shape))))


def test_distributed_broadcast_takes_host_data_and_the_mesh_around_it():
    mesh = mesh_of({"x": 2, "y": 3})
    with mesh:
        found = lamina.distributed_broadcast(np.arange(3))
    assert found.mesh == mesh
    assert [shard.tolist() for shard in found.shards] == [[0, 1, 2]] * 6
    assert lamina.distributed_broadcast(3.0).mesh == DeviceMesh.default()


def test_distributed_broadcast_of_a_jax_array_stays_on_its_mesh():
    """A Tensor's did, and an array of JAX that lies on a mesh went to all devices there are."""
    mesh = mesh_of({"x": 3})
    array = lamina.shard(values((6, 2)), mesh, ["x"]).jax()
    found = lamina.distributed_broadcast(array)
    assert found.mesh == mesh and found.layout.is_replicated
    np.testing.assert_array_equal(found.numpy(), values((6, 2)))


# -- ppermute ---------------------------------------------------------------------------------------------------------


@st.composite
def permutations_along(draw, case: Case):
    """Pairs along one axis that holds no copies, so that nothing can break replication; uneven dims are left alone."""
    uneven = [a for d, entry in enumerate(case.layout.dims) if case.shape[d] % case.layout.grid[d] for a in entry]
    free = [a for a in case.layout.sizes if a not in case.layout.replicated_axes and a not in uneven]
    assume(free)
    axis = draw(st.sampled_from(free))
    size = case.layout.sizes[axis]
    targets = draw(st.permutations(range(size)))
    kept = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    return axis, [(source, target) for source, (target, keep) in enumerate(zip(targets, kept, strict=True)) if keep]


@given(st.data(), cases(), eager_or_jitted)
def test_ppermute_moves_whole_shards_along_an_axis(data, case, jitted):
    axis, pairs = data.draw(permutations_along(case))
    found = runs(lambda x: lamina.ppermute(x, pairs, axis=axis), jitted)(case.tensor)
    place = list(case.layout.sizes).index(axis)
    sender = {target: source for source, target in pairs}
    expected = {}
    for where, block in case.blocks.items():
        source = sender.get(where[place])
        if source is None:
            expected[where] = np.zeros_like(block)
        else:
            expected[where] = case.blocks[*where[:place], source, *where[place + 1 :]]
    assert_holds(found, expected, case.layout)


@on_both_kinds
@pytest.mark.parametrize("dims", [[("x", "y"), ()], [("y", "x"), ()], ["y", "x"], ["x", "y"]], ids=str)
def test_ppermute_counts_devices_row_major_over_the_mesh(kind, dims):
    mesh, value = mesh_of({"x": 2, "y": 3}, kind), values((6, 6))
    x = lamina.shard(value, mesh, dims)
    found = lamina.ppermute(x, [(0, 5), (5, 1), (3, 3)])
    before, after = list(held_by(x).values()), list(held_by(found).values())
    for device, source in enumerate([None, 5, None, 3, None, 0]):
        expected = np.zeros_like(before[device]) if source is None else before[source]
        np.testing.assert_array_equal(after[device], expected, strict=True)


def test_ppermute_may_move_copies_together():
    mesh = mesh_of({"x": 2, "y": 2})
    x = lamina.shard(np.arange(4.0), mesh, ["x"])
    assert lamina.ppermute(x, [(0, 2), (1, 3), (2, 0), (3, 1)]).tolist() == [2, 3, 0, 1]
    assert lamina.ppermute(x, [(0, 3), (1, 2)]).tolist() == [0, 0, 0, 1]
    assert lamina.ppermute(x, []).tolist() == [0, 0, 0, 0]


# -- to_device and its short names ------------------------------------------------------------------------------------


@given(cases(), st.integers(0, DEVICES - 1), st.sampled_from([lamina.to_device, lamina.transfer_to]))
def test_to_device_gathers_onto_the_device(case, device, move):
    found = move(case.tensor, CPU(device))
    assert (found.device, found.mesh) == (CPU(device), DeviceMesh.single(CPU(device)))
    assert found.jax().devices() == {jax.devices()[device]}
    np.testing.assert_array_equal(found.numpy(), case.value, strict=True)


@given(st.data(), cases())
def test_to_device_takes_any_mapping(data, case):
    target = data.draw(layouts(case.layout.sizes, len(case.shape)))
    found = lamina.to_device(case.tensor, sharding=mapping_of(case.mesh, target))
    assert_holds(found, case.moved_to(target), target)


def test_to_device_takes_the_mappings_of_both_dialects_and_those_of_jax():
    mesh, value = mesh_of({"x": 2, "y": 2}), values((4, 6))
    expected = scatter(value, Layout(mesh.axes, ["y", ()]))
    by_jax = lamina.shard(np.zeros((4, 6)), mesh, ["y"]).jax().sharding
    for mapping in (PlacementMapping(mesh, [Replicated(), Sharded(-2)]), NamedMapping(mesh, ["y"]), by_jax):
        assert_holds(lamina.to_device(value, sharding=mapping), expected)
        assert_holds(lamina.to_device(value, mapping), expected)


def test_to_device_takes_jax_devices():
    device = jax.devices()[3]
    for chosen in (device, jax.sharding.SingleDeviceSharding(device)):
        assert lamina.to_device(np.ones(2), chosen).device == CPU(3)


@pytest.mark.parametrize("move", [lamina.to_device, lamina.transfer_to])
def test_to_device_without_a_target_leaves_a_tensor_where_it_is(move):
    x = lamina.shard(values((4,)), mesh_of({"x": 2}), ["x"])
    assert move(x) is x
    assert move(np.ones(2)).device == CPU(0)
    on_two = jax.device_put(np.ones(2), jax.devices()[2])
    assert move(on_two).device == CPU(2)


def test_to_device_takes_a_pytree():
    x = lamina.shard(values((4,)), mesh_of({"x": 2}), ["x"])
    found = lamina.to_device({"a": x, "b": [np.ones(2), 1.0]}, CPU(1))
    assert [leaf.device for leaf in (found["a"], *found["b"])] == [CPU(1)] * 3
    assert found["a"].tolist() == values((4,)).tolist()


@given(cases())
def test_cpu_is_the_first_cpu(case):
    found = lamina.cpu(case.tensor)
    assert found.device == CPU(0)
    np.testing.assert_array_equal(found.numpy(), case.value, strict=True)


@pytest.mark.parametrize("move", [lamina.gpu, lamina.accelerator])
def test_without_an_accelerator_the_error_lists_what_there_is(move):
    if lamina.accelerator_count():
        pytest.skip("this machine has one")
    with pytest.raises(lamina.DeviceError, match=r"Accelerator\(0\).* sees no accelerator, only CPU\(0\)\.\.CPU\(7\)"):
        move(np.ones(2))


# -- every op takes plain arrays --------------------------------------------------------------------------------------

ON_PLAIN_ARRAYS = {
    "all_reduce": lamina.all_reduce,
    "all_gather": lamina.all_gather,
    "all_to_all": lambda x: lamina.all_to_all(x, 0, 1),
    "reduce_scatter": lambda x: lamina.reduce_scatter(x, 0),
    "distributed_broadcast": lamina.distributed_broadcast,
    "ppermute": lambda x: lamina.ppermute(x, [(0, 0)]),
    "to_device": lambda x: lamina.to_device(x, CPU(0)),
    "cpu": lamina.cpu,
}


@pytest.mark.parametrize("as_kind", [np.asarray, jnp.asarray, lamina.tensor], ids=["numpy", "jax", "Tensor"])
@pytest.mark.parametrize("name", ON_PLAIN_ARRAYS)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
def test_on_one_device_every_op_keeps_the_value(name, as_kind, jitted):
    if jitted and name == "distributed_broadcast" and as_kind is lamina.tensor:
        pytest.skip("inside jax.jit, JAX keeps what is committed to one device there")
    value = values((4, 6))
    found = runs(ON_PLAIN_ARRAYS[name], jitted)(as_kind(value))
    assert isinstance(found, lamina.Tensor)
    np.testing.assert_array_equal(found.numpy(), value, strict=True)


def test_ops_take_an_array_that_jax_has_sharded():
    mesh, value = mesh_of({"x": 2, "y": 2}), values((4, 6))
    array = lamina.shard(value, mesh, ["x", "y"]).jax()
    assert_holds(lamina.all_gather(array, 1), scatter(value, Layout(mesh.axes, ["x", ()])))
    assert_holds(lamina.shard(array, mesh, ["y", "x"]), scatter(value, Layout(mesh.axes, ["y", "x"])))


# -- empty tensors ----------------------------------------------------------------------------------------------------


@on_both_kinds
@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (0, 0)], ids=str)
def test_ops_on_empty_tensors(kind, shape):
    mesh = mesh_of({"x": 2, "y": 3}, kind)
    x = lamina.shard(np.zeros(shape, "float32"), mesh, ["x"], partial=["y"])
    for op in (
        lamina.all_reduce,
        lamina.all_gather,
        lamina.distributed_broadcast,
        lambda x: lamina.reduce_scatter(x, 0),
        lambda x: lamina.all_reduce(x, reduce_axes=["y"]),
    ):
        assert op(x).shape == shape
        assert op(x).numpy().shape == shape
