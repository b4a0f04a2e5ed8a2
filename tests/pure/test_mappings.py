"""The two dialects: their invariants, equality across them, and conversions that keep everything or refuse."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamina.errors import ConversionError, LayoutError
from lamina.sharding import (
    CPU,
    DeviceMapping,
    DeviceMesh,
    DimSpec,
    Layout,
    NamedMapping,
    P,
    Partial,
    Placement,
    PlacementMapping,
    ReduceOp,
    Replicated,
    Sharded,
    ShardingSpec,
    TensorLayout,
)
from lamina.sharding.specs import as_dim_spec, as_dim_specs
from tests.facts import fact_of
from tests.strategies import OPS, layouts, mesh_axes

MESH = DeviceMesh.abstract((2, 4), ("dp", "tp"))
CUBE = DeviceMesh.abstract((2, 3, 1), ("x", "y", "one"))


@dataclass(frozen=True)
class Diagonal(Placement):
    """A placement of a user's own."""


def refused(make, error=LayoutError) -> str:
    with pytest.raises(error) as caught:
        make()
    assert type(caught.value) is error
    return fact_of(caught.value)


def mesh_of(sizes: dict[str, int]) -> DeviceMesh:
    return DeviceMesh.abstract(tuple(sizes.values()), tuple(sizes))


@st.composite
def named(draw, resolved=True) -> tuple[NamedMapping, int]:
    sizes, rank = draw(mesh_axes()), draw(st.integers(0, 3))
    layout = draw(layouts(sizes, rank))
    dims = [
        DimSpec(axes, *(() if resolved else (draw(st.booleans()), draw(st.integers(0, 2))))) for axes in layout.dims
    ]
    kind = None if resolved else draw(st.sampled_from([None, "pinned_host"]))
    return NamedMapping(mesh_of(sizes), dims, unreduced=dict(layout.partial), memory_kind=kind), rank


@st.composite
def placed(draw) -> tuple[PlacementMapping, int]:
    sizes, rank = draw(mesh_axes()), draw(st.integers(0, 3))
    options = st.just(Replicated()) | st.sampled_from(OPS).map(Partial)
    if rank:
        options |= st.integers(-rank, rank - 1).map(Sharded)
    return PlacementMapping(mesh_of(sizes), [draw(options) for _ in sizes]), rank


# -- PlacementMapping -------------------------------------------------------------------------------------------------


def test_placements_1_as_many_as_mesh_axes():
    text = refused(lambda: PlacementMapping(MESH, [Sharded(0)]))
    assert text == "1 placements [Sharded(0)] for the 2 axes of the mesh [dp=2,tp=4]"


@pytest.mark.parametrize("bad", ["tp", None, Sharded, 0])
def test_placements_2_each_is_a_placement(bad):
    text = refused(lambda: PlacementMapping(MESH, [Sharded(0), bad]), TypeError)
    assert text == f"{bad!r} is not a placement: use Replicated(), Sharded(dim) or Partial(op)"


def test_placements_2_a_lone_placement_is_told_what_to_write():
    assert "placements" in refused(lambda: PlacementMapping(MESH, Sharded(0)), TypeError)


def test_placements_2_custom_ones_are_carried_but_not_converted():
    mapping = PlacementMapping(MESH, [Diagonal(), Sharded(0)])
    assert mapping.placements == mapping.to_placements() == (Diagonal(), Sharded(0))
    assert mapping == PlacementMapping(MESH, [Diagonal(), Sharded(0)]) != PlacementMapping(MESH, [Diagonal()] * 2)
    assert not mapping.is_fully_replicated
    assert mapping.to_mesh(MESH["dp"]).placements == (Diagonal(),)
    for convert in (mapping.to_named_sharding, mapping.layout):
        text = refused(lambda convert=convert: convert(2), ConversionError)
        assert text == "the custom placement Diagonal() on mesh axis 'dp' has no named spec"


def test_a_sharded_axis_outside_the_rank_is_refused_as_soon_as_the_rank_is_known():
    mapping = PlacementMapping(MESH, [Sharded(2), Replicated()])  # the rank isn't known
    expected = "Sharded(2) on mesh axis 'dp' is out of range for a tensor of rank 2"
    assert refused(lambda: mapping.to_named_sharding(2)) == expected
    assert refused(lambda: mapping.layout(2)) == expected
    assert refused(lambda: TensorLayout("float32", (4, 4), mapping)) == expected
    assert mapping.layout(3).dims == ((), (), ("dp",))


def test_all_axes_outside_the_rank_are_named():
    text = refused(lambda: PlacementMapping(MESH, [Sharded(2), Sharded(-3)]).layout(2))
    assert "Sharded(2) on mesh axis 'dp'" in text and "Sharded(-3) on mesh axis 'tp'" in text


# -- NamedMapping -----------------------------------------------------------------------------------------------------


def test_named_1_every_axis_is_one_of_the_mesh_and_is_used_once():
    assert refused(lambda: NamedMapping(MESH, ["z"])) == "'z' is not an axis of the mesh [dp=2,tp=4]"
    assert refused(lambda: NamedMapping(MESH, [], unreduced=["z"])) == "'z' is not an axis of the mesh [dp=2,tp=4]"
    assert refused(lambda: NamedMapping(MESH, ["dp", "dp"])) == "axis 'dp' is used twice: by dim 0 and by dim 1"
    assert refused(lambda: NamedMapping(MESH, [("dp", "dp")])) == "axis 'dp' is used twice: by dim 0 and by dim 0"
    text = refused(lambda: NamedMapping(MESH, ["dp"], unreduced={"dp": "max"}))
    assert text == "axis 'dp' is used twice: by dim 0 and as unreduced"
    assert "axis 'tp' is used twice" in refused(lambda: NamedMapping(MESH, [], unreduced=["tp", "tp"]))


def test_named_1_everything_wrong_is_said_at_once():
    assert refused(lambda: NamedMapping(MESH, ["dp", "z", "dp"], unreduced=["w"])) == (
        "axis 'dp' is used twice: by dim 0 and by dim 2; "
        "'z' is not an axis of the mesh [dp=2,tp=4]; "
        "'w' is not an axis of the mesh [dp=2,tp=4]"
    )


def test_named_2_at_most_one_priority_per_dim():
    assert refused(lambda: NamedMapping(MESH, ["dp"], priorities=[1, 2])) == "2 priorities (1, 2) for 1 dims"
    mapping = NamedMapping(MESH, ["dp", None], priorities=[None, 3])
    assert mapping.priorities == (0, 3)
    assert mapping == NamedMapping(MESH, ["dp", DimSpec(priority=3)])


@pytest.mark.parametrize("bad", ["dp", "dp,tp", 0, None])
def test_a_spec_has_one_entry_per_dim(bad):
    assert refused(lambda: NamedMapping(MESH, bad)).startswith(f"{bad!r} is not a spec: use one entry per dim")


@pytest.mark.parametrize("bad", [0, 1.5, True, object])
def test_entries(bad):
    text = refused(lambda: NamedMapping(MESH, ["dp", bad]))
    assert text == f"{bad!r} is not a spec entry: use None, an axis name, a tuple of axis names or a DimSpec"


def test_the_ops_of_unreduced():
    assert NamedMapping(MESH, [], unreduced="tp").unreduced == {"tp": ReduceOp.SUM}
    assert NamedMapping(MESH, [], unreduced=["tp", "dp"]).unreduced == {"dp": ReduceOp.SUM, "tp": ReduceOp.SUM}
    assert NamedMapping(MESH, [], unreduced={"tp": "MAX"}).unreduced == {"tp": ReduceOp.MAX}
    text = refused(lambda: NamedMapping(MESH, [], unreduced={"tp": "bogus"}))
    assert text == "unreduced['tp']='bogus': the reduce op must be one of sum, avg, min, max, prod"


def test_memory_kind_is_a_string():
    text = refused(lambda: NamedMapping(MESH, [], memory_kind=3), TypeError)
    assert text == "memory_kind must be a string such as 'pinned_host', not 3"


def test_the_spec_in_its_shortest_form():
    mapping = NamedMapping(MESH, [("dp",), [], DimSpec("tp"), DimSpec(is_open=True)])
    assert mapping.spec == ("dp", None, "tp", DimSpec(is_open=True))
    assert NamedMapping(MESH, [("tp", "dp")]).spec == (("tp", "dp"),)


def test_sharding_spec_is_the_same_class():
    assert ShardingSpec is NamedMapping


# -- DimSpec and P ----------------------------------------------------------------------------------------------------


def test_all_ways_to_write_an_entry():
    assert as_dim_spec(None) == as_dim_spec(()) == DimSpec() == DimSpec(())
    assert as_dim_spec("x") == as_dim_spec(("x",)) == as_dim_spec(["x"]) == DimSpec("x") == DimSpec(("x",))
    assert as_dim_spec(("y", "x")) == DimSpec(["y", "x"]) != DimSpec(("x", "y"))
    entries = DimSpec("x"), DimSpec(), DimSpec(("y", "z"))
    assert P("x", None, ("y", "z")) == as_dim_specs(["x", None, ["y", "z"]]) == entries
    assert P() == ()


def test_dim_specs_are_values():
    assert len({DimSpec("x"), DimSpec("x"), DimSpec("x", is_open=True), DimSpec("x", priority=1)}) == 3
    spec = DimSpec(("x", "y"), is_open=True, priority=2)
    assert pickle.loads(pickle.dumps(spec)) == copy.deepcopy(spec) == spec
    with pytest.raises(AttributeError):
        spec.axes = ()


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: DimSpec(["x", 3]), "3 in ('x', 3) is not the name of a mesh axis"),
        (lambda: DimSpec("x", priority=-1), "priority -1 of ('x',) is not an integer >= 0"),
        (lambda: DimSpec("x", priority=True), "priority True of ('x',) is not an integer >= 0"),
        (lambda: P("x", 0), "0 is not a spec entry: use None, an axis name, a tuple of axis names or a DimSpec"),
    ],
)
def test_dim_specs_that_cannot_be(make, text):
    assert refused(make) == text


def test_a_dim_spec_of_a_number_is_told_what_to_write():
    with pytest.raises((LayoutError, TypeError), match="name of a mesh axis"):
        DimSpec(3)


# -- equal meaning, equal object --------------------------------------------------------------------------------------

SAME = [
    [
        PlacementMapping(MESH, [Sharded(0), Replicated()]),
        NamedMapping(MESH, ["dp"]),
        NamedMapping(MESH, ["dp", None]),
        NamedMapping(MESH, [("dp",), (), None]),
        NamedMapping(MESH, P("dp")),
        NamedMapping(MESH, [DimSpec("dp")], priorities=[0]),
    ],
    [
        PlacementMapping(MESH, [Sharded(1), Sharded(1)]),
        NamedMapping(MESH, [None, ("dp", "tp")]),
    ],
    [
        PlacementMapping(MESH, [Partial("max"), Sharded(0)]),
        NamedMapping(MESH, ["tp"], unreduced={"dp": ReduceOp.MAX}),
    ],
    [
        PlacementMapping(MESH, [Replicated(), Replicated()]),
        NamedMapping(MESH),
        NamedMapping(MESH, [None, None, None]),
    ],
    [
        PlacementMapping(CUBE, [Sharded(0), Replicated(), Sharded(1)]),
        PlacementMapping(CUBE, [Sharded(0), Replicated(), Sharded(5)]),
        PlacementMapping(CUBE, [Sharded(0), Replicated(), Partial("avg")]),
        PlacementMapping(CUBE, [Sharded(0), Replicated(), Diagonal()]),
        PlacementMapping(CUBE, [Sharded(0), Replicated(), Replicated()]),
        NamedMapping(CUBE, ["x", "one"]),
        NamedMapping(CUBE, [("one", "x")]),
        NamedMapping(CUBE, ["x"], unreduced={"one": "prod"}),
    ],
    [
        PlacementMapping(CUBE, [Sharded(-1), Replicated(), Sharded(0)]),
        PlacementMapping(CUBE, [Sharded(-1), Replicated(), Replicated()]),
    ],
]


@pytest.mark.parametrize("same", SAME, ids=lambda same: repr(same[0]))
def test_mappings_that_mean_the_same_are_equal(same):
    for one in same:
        for other in same:
            assert one == other, (one, other)
            assert hash(one) == hash(other), (one, other)


def test_mappings_that_mean_something_else_differ():
    different = [
        *(same[0] for same in SAME),
        NamedMapping(MESH, ["tp"]),
        NamedMapping(MESH, [("tp", "dp")]),
        NamedMapping(MESH, [("dp", "tp")]),
        NamedMapping(MESH, ["dp"], unreduced={"tp": "sum"}),
        NamedMapping(MESH, ["dp"], unreduced={"tp": "max"}),
        NamedMapping(MESH, [DimSpec("dp", is_open=True)]),
        NamedMapping(MESH, ["dp"], priorities=[1]),
        NamedMapping(MESH, ["dp"], memory_kind="pinned_host"),
        NamedMapping(MESH["tp", "dp"], ["dp"]),
        NamedMapping(DeviceMesh.simulated((2, 4), ("dp", "tp")), ["dp"]),
    ]
    assert len(set(different)) == len(different)
    assert NamedMapping(MESH, ["dp"]) != "dp"


def test_negative_axes_count_from_the_end_once_the_rank_is_known():
    negative, positive = (PlacementMapping(MESH, [Sharded(axis), Replicated()]) for axis in (-1, 1))
    assert negative != positive  # of a tensor of rank 3, say
    assert negative.to_named_sharding(2) == positive.to_named_sharding(2)
    assert negative.layout(2) == positive.layout(2)
    one, other = (TensorLayout("float32", (4, 4), mapping) for mapping in (negative, positive))
    assert one == other and hash(one) == hash(other)
    assert negative.to_named_sharding(3) == NamedMapping(MESH, [None, None, "dp"])


@given(placed())
def test_equal_to_its_own_translation(case):
    mapping, rank = case
    other = mapping.to_named_sharding(rank)
    if all(p.axis >= 0 for p in mapping.placements if isinstance(p, Sharded)):
        assert mapping == other and hash(mapping) == hash(other)
    assert mapping.layout(rank) == other.layout(rank)
    assert mapping.is_fully_replicated == other.is_fully_replicated == mapping.layout(rank).is_replicated


# -- conversions ------------------------------------------------------------------------------------------------------


@given(placed())
def test_placements_to_named_and_back_loses_nothing(case):
    mapping, rank = case
    back = mapping.to_named_sharding(rank).to_placements()
    positive = tuple(Sharded(p.axis % rank) if isinstance(p, Sharded) else p for p in mapping.placements)
    assert back == positive


@given(named())
def test_named_to_placements_and_back_loses_nothing_or_refuses(case):
    mapping, rank = case
    sizes, order = dict(mapping.mesh.axes), mapping.mesh.axis_names
    real = [[axis for axis in dim.axes if sizes[axis] > 1] for dim in mapping.dim_specs]
    sayable = all(axes == sorted(axes, key=order.index) for axes in real)
    try:
        placements = mapping.to_placements()
    except ConversionError:
        assert not sayable
        return
    assert sayable
    back = PlacementMapping(mapping.mesh, placements).to_named_sharding(rank)
    assert back == mapping and back.layout(rank) == mapping.layout(rank)
    assert {axis: op for axis, op in back.unreduced.items() if sizes[axis] > 1} == {
        axis: op for axis, op in mapping.unreduced.items() if sizes[axis] > 1
    }


REFUSALS = [
    (
        "axis order",
        NamedMapping(MESH, [None, ("tp", "dp")]),
        "dim 1 is split over ('tp', 'dp'), but placements can only say the mesh's own order ('dp', 'tp')",
    ),
    ("open dim", NamedMapping(MESH, [DimSpec("dp", is_open=True)]), "dim 0 is open, which placements can't say"),
    ("priority", NamedMapping(MESH, ["dp"], priorities=[2]), "dim 0 has priority 2, which placements can't say"),
    (
        "memory kind",
        NamedMapping(MESH, ["dp"], memory_kind="pinned_host"),
        "memory kind 'pinned_host', which placements can't say",
    ),
]


@pytest.mark.parametrize("mapping, text", [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_what_placements_cannot_say(mapping, text):
    assert refused(mapping.to_placements, ConversionError) == text


def test_all_reasons_are_given():
    mapping = NamedMapping(MESH, [DimSpec(("tp", "dp"), is_open=True, priority=1)], memory_kind="pinned_host")
    text = refused(mapping.to_placements, ConversionError)
    for word in ("('tp', 'dp')", "open", "priority 1", "'pinned_host'"):
        assert word in text


def test_an_axis_named_twice_is_refused_before_any_conversion():
    assert "used twice" in refused(lambda: NamedMapping(MESH, ["dp", "dp"]).to_placements())


def test_the_order_of_size_1_axes_is_no_order():
    assert NamedMapping(CUBE, [("one", "x", "y")]).to_placements()[:2] == (Sharded(0), Sharded(0))


@pytest.mark.parametrize("op", OPS)
def test_every_reduce_op_survives_both_ways(op):
    mapping = PlacementMapping(MESH, [Partial(op), Sharded(0)])
    assert mapping.to_named_sharding(1).unreduced == {"dp": op}
    assert mapping.to_named_sharding(1).to_placements() == mapping.placements


def test_to_named_sharding_has_one_entry_per_dim():
    mapping = NamedMapping(MESH, ["dp"])
    assert mapping.to_named_sharding(3).spec == ("dp", None, None)
    assert NamedMapping(MESH, ["dp", None, None]).to_named_sharding(1).spec == ("dp",)
    text = refused(lambda: NamedMapping(MESH, ["dp", "tp"]).to_named_sharding(1))
    assert text == "the spec [dp=2,tp=4] dp,tp has 2 entries for a tensor of rank 1"


@given(named(resolved=False))
def test_to_named_sharding_keeps_what_only_names_can_say(case):
    mapping, rank = case
    wider = mapping.to_named_sharding(rank + 1)
    assert wider == mapping and len(wider.spec) == rank + 1
    assert wider.to_named_sharding(rank).dim_specs == mapping.dim_specs
    assert (wider.unreduced, wider.memory_kind) == (mapping.unreduced, mapping.memory_kind)


@given(named(resolved=False))
def test_is_fully_resolved(case):
    mapping, _ = case
    assert mapping.is_fully_resolved == (not any(dim.is_open or dim.priority for dim in mapping.dim_specs))
    assert PlacementMapping(MESH, [Sharded(0), Partial()]).is_fully_resolved


# -- to_mesh ----------------------------------------------------------------------------------------------------------


def test_to_mesh_drops_the_axes_that_are_not_there():
    there = DeviceMesh.abstract((8, 4), ("pp", "tp"))
    assert NamedMapping(MESH, [("dp", "tp")], unreduced=()).to_mesh(there) == NamedMapping(there, ["tp"])
    assert NamedMapping(MESH, ["tp"], unreduced=["dp"]).to_mesh(there) == NamedMapping(there, ["tp"])
    placements = PlacementMapping(MESH, [Sharded(0), Partial("max")]).to_mesh(there).placements
    assert placements == (Replicated(), Partial("max"))


def test_to_mesh_keeps_what_only_names_can_say():
    mapping = NamedMapping(MESH, [DimSpec(("tp", "dp"), True, 2)], memory_kind="pinned_host")
    moved = mapping.to_mesh(DeviceMesh.simulated((4, 2), ("tp", "dp")))
    assert (moved.dim_specs, moved.memory_kind) == (mapping.dim_specs, "pinned_host")


@given(named())
def test_to_the_same_mesh_changes_nothing(case):
    mapping, rank = case
    assert mapping.to_mesh(mapping.mesh) == mapping
    tensor = TensorLayout("float32", (4,) * rank, mapping)
    assert tensor.to_mesh(mapping.mesh) == tensor


@given(placed(), st.data())
def test_mappings_that_are_equal_stay_equal_on_another_mesh(case, data):
    """Whatever the dialect: placements on a mesh with another axis order can't say the nesting, and refuse."""
    mapping, rank = case
    assume(all(p.axis >= 0 for p in mapping.placements if isinstance(p, Sharded)))
    names = tuple(data.draw(st.permutations(mapping.mesh.axis_names)))
    there = mapping.mesh[names[: data.draw(st.integers(1, len(names)))]]
    expected = mapping.to_named_sharding(rank).to_mesh(there)
    try:
        moved = mapping.to_mesh(there)
    except ConversionError:
        with pytest.raises(ConversionError):
            expected.to_placements()
    else:
        assert moved == expected


def test_the_nesting_of_placements_is_kept_or_refused_on_a_mesh_with_another_order():
    """On the mesh [tp=4,dp=2], two Sharded(0) would mean (tp,dp), with the rows in another order."""
    there = MESH["tp", "dp"]
    one, other = PlacementMapping(MESH, [Sharded(0), Sharded(0)]), NamedMapping(MESH, [("dp", "tp")])
    assert one == other
    assert other.to_mesh(there).spec == (("dp", "tp"),)
    with pytest.raises(ConversionError, match="order"):
        one.to_mesh(there)


@pytest.mark.parametrize("bad", ["mesh", 3, (2, 4)])
def test_to_mesh_takes_a_mesh(bad):
    for mapping in (NamedMapping(MESH, ["dp"]), PlacementMapping(MESH, [Sharded(0), Replicated()])):
        text = refused(lambda mapping=mapping: mapping.to_mesh(bad), TypeError)
        assert text == f"mesh must be a lamina.DeviceMesh, not {type(bad).__name__} {bad!r}"


# -- the mesh of a mapping --------------------------------------------------------------------------------------------


def test_without_a_mesh_the_ambient_one():
    with MESH:
        assert NamedMapping(spec=["dp"]) == NamedMapping(None, ["dp"]) == NamedMapping(MESH, ["dp"])
        assert PlacementMapping(None, [Sharded(0), Replicated()]).mesh is MESH
    for make in (lambda: NamedMapping(spec=["dp"]), lambda: PlacementMapping(None, [Sharded(0)])):
        assert "no mesh was given, and there is no `with mesh:` around this call" in refused(make)


@pytest.mark.parametrize("bad", ["mesh", (2, 4)])
def test_the_mesh_is_a_mesh(bad):
    expected = f"mesh must be a lamina.DeviceMesh, not {type(bad).__name__} {bad!r}"
    assert refused(lambda: NamedMapping(bad, []), TypeError) == expected
    assert refused(lambda: PlacementMapping(bad, []), TypeError) == expected


# -- values -----------------------------------------------------------------------------------------------------------


@given(named(resolved=False), placed())
def test_copies_are_equal(one, other):
    real = PlacementMapping(DeviceMesh([CPU(0), CPU(1)], (2,), ("x",)), [Partial("avg")])
    for mapping in (one[0], other[0], real):
        for twin in (pickle.loads(pickle.dumps(mapping)), copy.deepcopy(mapping), copy.copy(mapping)):
            assert type(twin) is type(mapping)
            assert twin == mapping and hash(twin) == hash(mapping) and repr(twin) == repr(mapping)


@pytest.mark.parametrize(
    "mapping, name",
    [
        (PlacementMapping(MESH, [Sharded(0), Replicated()]), "placements"),
        (PlacementMapping(MESH, [Sharded(0), Replicated()]), "_mesh"),
        (NamedMapping(MESH, ["dp"]), "dim_specs"),
        (NamedMapping(MESH, ["dp"]), "memory_kind"),
        (NamedMapping(MESH, ["dp"]), "other"),
        (TensorLayout("float32", (4,), NamedMapping(MESH, ["dp"])), "shape"),
    ],
)
def test_frozen(mapping, name):
    before = repr(mapping)
    with pytest.raises(AttributeError):
        setattr(mapping, name, None)
    with pytest.raises(AttributeError):
        delattr(mapping, name)
    assert repr(mapping) == before


def test_what_comes_out_is_a_copy():
    mapping = NamedMapping(MESH, ["dp"], unreduced=["tp"])
    mapping.unreduced.clear()
    assert mapping.unreduced == {"tp": ReduceOp.SUM}


def test_the_base_is_abstract():
    with pytest.raises(TypeError):
        DeviceMapping()


def test_text():
    assert repr(PlacementMapping(MESH, [Sharded(0), Partial()])) == (
        "PlacementMapping([dp=2,tp=4], [Sharded(0), Partial(SUM)])"
    )
    mapping = NamedMapping(MESH, [None, DimSpec("dp", True, 2)], unreduced={"tp": "max"}, memory_kind="pinned_host")
    assert repr(mapping) == "NamedMapping('[dp=2,tp=4] -,dp?!2 +max(tp) @pinned_host')"
    assert str(NamedMapping(MESH)) == "[dp=2,tp=4] ()"


def test_the_layout_of_a_mapping():
    assert NamedMapping(MESH, [("tp", "dp")], unreduced=()).layout(2) == Layout(MESH.axes, [("tp", "dp"), ()])
    assert PlacementMapping(MESH, [Sharded(-1), Partial("min")]).layout(2) == Layout(
        MESH.axes, [(), ("dp",)], {"tp": ReduceOp.MIN}
    )
