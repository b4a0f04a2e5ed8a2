"""The canonical layout: its invariants, and its meaning against a definition in plain Python."""

from __future__ import annotations

import copy
import math
import pickle
from collections import defaultdict
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError
from lamina.sharding import DeviceMesh, Layout, NamedMapping, ReduceOp
from lamina.sharding.layout import check_rank
from lamina.sharding.mesh import positions
from tests.strategies import OPS, layouts, mesh_axes, shapes

IDENTITY = {ReduceOp.SUM: 0.0, ReduceOp.PROD: 1.0, ReduceOp.MIN: math.inf, ReduceOp.MAX: -math.inf}
COMPUTE = {
    ReduceOp.SUM: sum,
    ReduceOp.AVG: lambda values: sum(values) / len(values),
    ReduceOp.MIN: min,
    ReduceOp.MAX: max,
    ReduceOp.PROD: math.prod,
}


@st.composite
def laid_out(draw, partial=True):
    """(layout, shape)"""
    rank = draw(st.integers(0, 3))
    return draw(layouts(draw(mesh_axes()), rank, partial)), draw(shapes(rank))


def places(layout: Layout) -> list[dict[str, int]]:
    return list(positions(DeviceMesh.abstract([n for _, n in layout.axes], [a for a, _ in layout.axes])))


def refused(*arguments) -> str:
    with pytest.raises(LayoutError) as caught:
        Layout(*arguments)
    return str(caught.value)


# -- the invariants ---------------------------------------------------------------------------------------------------


def test_1_every_axis_is_one_of_the_mesh():
    assert refused({"x": 2}, [("y",)]) == "'y' is not an axis of the mesh [x=2]"
    assert refused({"x": 2}, [()], {"y": ReduceOp.SUM}) == "'y' is not an axis of the mesh [x=2]"


def test_2_no_axis_is_used_twice():
    assert refused({"x": 2}, [("x",), ("x",)]) == "axis 'x' is used twice: by dim 0 and by dim 1"
    assert refused({"x": 2}, [("x", "x")]) == "axis 'x' is used twice: by dim 0 and by dim 0"
    assert refused({"x": 2}, [("x",)], {"x": ReduceOp.MAX}) == "axis 'x' is used twice: by dim 0 and as Partial"
    assert "axis 'x' is used twice" in refused({"x": 2}, [()], [("x", ReduceOp.SUM), ("x", ReduceOp.MAX)])
    assert "axis 'x' is used twice" in refused({"x": 1}, [("x",), ("x",)])  # of size 1 too


def test_1_2_everything_wrong_is_said_at_once():
    assert refused({"x": 2}, [("y",), ("x",), ("x",)], {"z": ReduceOp.SUM}) == (
        "'y' is not an axis of the mesh [x=2]; "
        "axis 'x' is used twice: by dim 1 and by dim 2; "
        "'z' is not an axis of the mesh [x=2]"
    )


def test_3_size_1_axes_are_dropped_and_partial_is_in_mesh_order():
    sizes = {"x": 2, "one": 1, "y": 3, "z": 2}
    plain = Layout(sizes, [("x",), ()], {"y": ReduceOp.SUM, "z": ReduceOp.MAX})
    same = [
        Layout(sizes, [("x", "one"), ()], {"y": ReduceOp.SUM, "z": ReduceOp.MAX}),
        Layout(sizes, [("one", "x"), ()], [("z", ReduceOp.MAX), ("y", ReduceOp.SUM)]),
        Layout(sizes, [["x"], ["one"]], {"z": "max", "y": "sum"}),
        Layout(sizes.items(), [("x",), ()], {"one": ReduceOp.AVG, "z": ReduceOp.MAX, "y": ReduceOp.SUM}),
    ]
    for layout in same:
        assert layout == plain and hash(layout) == hash(plain) and str(layout) == str(plain)
        assert (layout.dims, layout.partial) == (plain.dims, plain.partial)


def test_layouts_that_mean_something_else_differ():
    sizes = {"x": 2, "y": 2}
    different = [
        Layout(sizes, [("x",)]),
        Layout(sizes, [("y",)]),
        Layout(sizes, [("x", "y")]),
        Layout(sizes, [("y", "x")]),
        Layout(sizes, [("x",), ()]),
        Layout(sizes, [("x",)], {"y": ReduceOp.SUM}),
        Layout(sizes, [("x",)], {"y": ReduceOp.MAX}),
        Layout({"y": 2, "x": 2}, [("x",)]),
        Layout({"x": 2, "y": 3}, [("x",)]),
    ]
    assert len(set(different)) == len(different)


# -- the meaning ------------------------------------------------------------------------------------------------------


@given(laid_out())
def test_the_blocks_of_every_group_tile_the_tensor_exactly(case):
    """A group: the devices that agree on the axes that split nothing.  Their blocks partition the global indices."""
    layout, shape = case
    groups = defaultdict(list)
    for where in places(layout):
        groups[tuple(where[a] for a, _ in layout.axes if a not in layout.sharded_axes)].append(where)
    for group in groups.values():
        covered = [
            index
            for where in group
            for index in product(*(range(start, stop) for start, stop in layout.block(shape, where)))
        ]
        assert len(covered) == math.prod(shape)
        assert set(covered) == set(product(*map(range, shape)))


@given(laid_out())
def test_devices_that_differ_only_along_unsplit_axes_hold_the_same_block(case):
    layout, shape = case
    held = defaultdict(set)
    for where in places(layout):
        held[tuple(where[a] for a in layout.sharded_axes)].add(layout.block(shape, where))
    assert all(len(blocks) == 1 for blocks in held.values())


@given(st.integers(0, 40), st.integers(1, 12))
def test_sizes_differ_by_at_most_1_larger_first(size, blocks):
    layout = Layout({"x": blocks}, [("x",)])
    bounds = [layout.block((size,), {"x": i})[0] for i in range(blocks)]
    sizes = [stop - start for start, stop in bounds]
    assert sizes == sorted(sizes, reverse=True) and max(sizes) - min(sizes) <= 1 and sum(sizes) == size
    assert [start for start, _ in bounds] == [sum(sizes[:i]) for i in range(blocks)]
    assert layout.padded_block((size,)) == (sizes[0],)
    assert layout.is_even((size,)) == (len(set(sizes)) == 1)


@pytest.mark.parametrize(
    "size, axes, sizes",
    [
        (10, (4,), [3, 3, 2, 2]),
        (10, (2, 2), [3, 3, 2, 2]),
        (3, (8,), [1, 1, 1, 0, 0, 0, 0, 0]),
        (7, (2, 3), [2, 1, 1, 1, 1, 1]),
        (0, (3,), [0, 0, 0]),
        (1, (2,), [1, 0]),
    ],
)
def test_the_sizes_that_the_design_names(size, axes, sizes):
    layout = Layout({f"a{i}": n for i, n in enumerate(axes)}, [tuple(f"a{i}" for i in range(len(axes)))])
    blocks = [layout.block((size,), where)[0] for where in places(layout)]
    assert [stop - start for start, stop in blocks] == sizes


@given(mesh_axes(), st.integers(0, 30), st.data())
def test_nested_axes_are_one_flat_axis_major_to_minor(sizes, size, data):
    order = tuple(data.draw(st.permutations(list(sizes))))
    nested = Layout(sizes, [order])
    flat = Layout({"flat": math.prod(sizes.values())}, [("flat",)])
    for where in places(nested):
        number = 0
        for axis in order:
            number = number * sizes[axis] + where[axis]
        assert nested.block_index(where) == (number,)
        assert nested.block((size,), where) == flat.block((size,), {"flat": number})


@given(laid_out())
def test_a_replicated_value_made_into_pieces_reduces_to_itself(case):
    """`keeps_the_value` says what a device holds; reducing from the last axis to the first gives the value."""
    layout, _ = case
    value = 3.0
    axes = list(layout.sizes)
    pieces = {}
    for where in places(layout):
        mark = layout.keeps_the_value(where)
        pieces[tuple(where.values())] = value if mark is None else IDENTITY[layout.reduce_op(mark)]
    for axis in reversed(axes):
        at, groups = axes.index(axis), defaultdict(list)
        for where, piece in pieces.items():
            groups[(*where[:at], 0, *where[at + 1 :])].append(piece)
        op = layout.reduce_op(axis)
        if op is None:
            assert all(len(set(held)) == 1 for held in groups.values())
        pieces = {where: held[0] if op is None else COMPUTE[op](held) for where, held in groups.items()}
    assert [*pieces.values()] == [value]


def test_keeps_the_value_by_hand():
    layout = Layout({"x": 2, "y": 2, "z": 2}, [], {"x": ReduceOp.SUM, "y": ReduceOp.MAX, "z": ReduceOp.AVG})
    kept = [layout.keeps_the_value({"x": x, "y": y, "z": z}) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    assert kept == [None, None, "y", "y", "x", "x", "y", "y"]


# -- what it answers --------------------------------------------------------------------------------------------------


@given(laid_out())
def test_each_real_axis_has_one_use(case):
    layout, _ = case
    uses = [*layout.sharded_axes, *layout.partial_axes, *layout.replicated_axes]
    assert sorted(uses) == sorted(axis for axis, size in layout.axes if size > 1)
    assert layout.is_replicated == (len(layout.replicated_axes) == len(uses))
    assert {axis: layout.reduce_op(axis) for axis in layout.partial_axes} == dict(layout.partial)
    assert all(layout.reduce_op(axis) is None for axis in (*layout.sharded_axes, *layout.replicated_axes))
    assert layout.num_devices == len(places(layout))
    assert math.prod(layout.grid) == layout.count(layout.sharded_axes)
    assert layout.rank == len(layout.dims) == len(layout.grid)


@given(laid_out())
def test_replace_changes_only_what_it_names(case):
    layout, _ = case
    assert layout.replace() == layout
    assert layout.replace(partial=()).dims == layout.dims and not layout.replace(partial=()).partial
    assert layout.replace(dims=[()]).partial == layout.partial


def test_the_rank_must_fit():
    layout = Layout({"x": 2}, [("x",), ()])
    with pytest.raises(LayoutError) as caught:
        check_rank(layout, (4,))
    assert str(caught.value) == "the layout [x=2] x,- has 2 dims, but the shape (4,) has 1"
    for question in (layout.is_even, layout.padded_block, lambda shape: layout.block(shape, {"x": 0})):
        with pytest.raises(ValueError):
            question((4,))


# -- a value ----------------------------------------------------------------------------------------------------------


@given(laid_out())
def test_copies_are_equal(case):
    layout, shape = case
    for twin in (pickle.loads(pickle.dumps(layout)), copy.copy(layout), copy.deepcopy(layout)):
        assert twin == layout and hash(twin) == hash(layout) and repr(twin) == repr(layout)
        assert [twin.block(shape, w) for w in places(twin)] == [layout.block(shape, w) for w in places(layout)]


@pytest.mark.parametrize("name", ["dims", "partial", "axes", "sizes", "other"])
def test_frozen(name):
    layout = Layout({"x": 2}, [("x",)])
    with pytest.raises(AttributeError):
        setattr(layout, name, ())
    with pytest.raises(AttributeError):
        delattr(layout, name)
    assert layout == Layout({"x": 2}, [("x",)])


def test_the_sizes_cannot_be_changed_from_outside():
    layout = Layout({"x": 2}, [("x",)])
    with pytest.raises((TypeError, AttributeError)):
        layout.sizes["x"] = 3
    assert layout.sizes == {"x": 2}


def test_what_was_passed_in_can_change_later():
    sizes, dims, partial = {"x": 2, "y": 2}, [["x"]], {"y": ReduceOp.SUM}
    layout = Layout(sizes, dims, partial)
    sizes["z"] = 3
    dims[0].append("z")
    partial.clear()
    assert layout == Layout({"x": 2, "y": 2}, [("x",)], {"y": ReduceOp.SUM})


@given(laid_out())
def test_mappings_give_the_same_layout(case):
    layout, _ = case
    mesh = DeviceMesh.abstract([n for _, n in layout.axes], [a for a, _ in layout.axes])
    assert NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial)).layout(layout.rank) == layout


@pytest.mark.parametrize("op", OPS)
def test_every_op_prints(op):
    assert str(Layout({"x": 2}, [], {"x": op})) == f"[x=2] () +{op}(x)"
