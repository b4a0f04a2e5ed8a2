"""The device mesh: its four invariants in order, then what it answers.  `create` needs JAX: see tests/errors."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import LayoutError
from lamina.sharding import CPU, Accelerator, DeviceMesh, NamedMapping
from lamina.sharding.mesh import ambient_mesh, as_mesh, positions
from tests.facts import fact_of
from tests.strategies import mesh_axes


def refused(*arguments, error=LayoutError) -> str:
    with pytest.raises(error) as caught:
        DeviceMesh(*arguments)
    return fact_of(caught.value)


def real(sizes: dict[str, int]) -> DeviceMesh:
    return DeviceMesh([CPU(i) for i in range(math.prod(sizes.values()))], tuple(sizes.values()), tuple(sizes))


# -- the invariants ---------------------------------------------------------------------------------------------------


def test_1_axis_names_are_distinct_identifiers_one_per_size():
    assert refused((), (), ()) == "a mesh needs at least one axis"
    assert refused((), (2, 2), ("x",)) == "mesh_shape (2, 2) has 2 entries, but axis_names ('x',) has 1"
    assert refused((), (2, 2), ("x", "x")) == "axis name 'x' stands twice in ('x', 'x')"
    assert refused((), (2,), ("x y",)) == "axis name 'x y' is not an identifier"
    assert refused((), (2,), (3,)) == "axis name 3 is not an identifier"


@pytest.mark.parametrize("size", [0, -1, 2.0, "2", True, None])
def test_2_axis_sizes_are_integers_from_1(size):
    assert refused((), (size,), ("x",)) == f"axis 'x' has size {size!r}; sizes are integers >= 1"


def test_1_2_everything_wrong_with_the_axes_is_said_at_once():
    text = refused((), (0, 2, -1), ("x", "1y", "z"))
    assert "axis name '1y' is not an identifier" in text
    assert "axis 'x' has size 0" in text and "axis 'z' has size -1" in text


def test_2_any_integer_type_will_do():
    numpy = pytest.importorskip("numpy")
    mesh = DeviceMesh.abstract((numpy.int64(2), numpy.int32(3)), ("x", "y"))
    assert mesh == DeviceMesh.abstract((2, 3), ("x", "y"))
    assert [type(size) for size in mesh.mesh_shape] == [int, int]


def test_3_as_many_devices_as_positions_or_none():
    assert refused([CPU(0), CPU(1)], (3,), ("x",)) == "mesh [x=3] has 3 positions, but 2 devices were given"
    assert refused([CPU(0)] * 7, (2, 3), ("x", "y")) == "mesh [x=2,y=3] has 6 positions, but 7 devices were given"
    assert DeviceMesh((), (2, 3), ("x", "y")).is_abstract


@pytest.mark.parametrize("bad", [0, "cpu", None, CPU])
def test_3_devices_are_devices(bad):
    text = refused([bad], (1,), ("x",), error=TypeError)
    assert text == f"mesh [x=1]: devices must be lamina.CPU(i) or lamina.Accelerator(i), not {bad!r}"


def test_3_one_device_without_a_list_is_told_what_to_write():
    assert "devices" in refused(CPU(0), (1,), ("x",), error=TypeError)


def test_4_all_distinct_or_all_the_same():
    assert refused([CPU(0), CPU(0), CPU(1)], (3,), ("x",)) == (
        "mesh [x=3]: CPU(0) stands at 2 positions; devices must be all distinct, or all the same (a simulated mesh)"
    )
    assert not real({"x": 3}).is_simulated
    assert DeviceMesh([CPU(1)] * 3, (3,), ("x",)).is_simulated
    assert not DeviceMesh([CPU(0), Accelerator(0)], (2,), ("x",)).is_simulated


# -- constructors -----------------------------------------------------------------------------------------------------


def test_kinds_of_meshes():
    single = DeviceMesh.single(Accelerator(1))
    assert (single.num_devices, single.ndim, single.is_single, single.is_simulated) == (1, 1, True, False)
    assert single.devices == (Accelerator(1),)

    simulated = DeviceMesh.simulated((2, 3), ("x", "y"), device=CPU(5))
    assert simulated.devices == (CPU(5),) * 6 and simulated.is_simulated and not simulated.is_abstract
    assert DeviceMesh.simulated((2,), ("x",)).devices == (CPU(0), CPU(0))

    abstract = DeviceMesh.abstract((64, 64), ("dp", "tp"))
    assert (abstract.num_devices, abstract.devices, abstract.is_abstract) == (4096, (), True)
    assert not abstract.is_simulated and not abstract.is_single


def test_one_axis_needs_no_tuples():
    assert DeviceMesh.abstract(4, "x") == DeviceMesh.abstract((4,), ("x",))
    assert DeviceMesh.simulated(4, "x") == DeviceMesh.simulated([4], ["x"])


def test_a_simulated_mesh_of_one_position_is_the_mesh_of_that_device():
    assert DeviceMesh.simulated((1,), ("device",)) == DeviceMesh.single(CPU(0))


# -- what it answers --------------------------------------------------------------------------------------------------


@given(mesh_axes())
def test_positions_are_row_major(sizes):
    mesh = real(sizes)
    expected = list(product(*map(range, sizes.values())))
    assert [mesh.coordinates(d) for d in range(mesh.num_devices)] == expected
    assert [tuple(where.values()) for where in positions(mesh)] == expected
    assert all(tuple(where) == mesh.axis_names for where in positions(mesh))
    for device, place in enumerate(expected):
        for index, name in enumerate(mesh.axis_names):
            assert place[index] == mesh.device_coord(device, name)
            assert place[index] == mesh.device_coord(device, index) == mesh.device_coord(device, index - mesh.ndim)
    assert (mesh.ndim, mesh.num_devices, mesh.axes) == (len(sizes), math.prod(sizes.values()), tuple(sizes.items()))


def test_axes_by_name_and_by_index():
    mesh = DeviceMesh.abstract((2, 3), ("x", "y"))
    assert mesh.axis_size("x") == mesh.axis_size(0) == mesh.axis_size(-2) == 2
    assert mesh.axis_size("y") == mesh.axis_size(1) == mesh.axis_size(-1) == 3


@pytest.mark.parametrize("ask", ["z", 2, -3, 1.5, None, True])
def test_unknown_axes(ask):
    mesh = DeviceMesh.abstract((2, 3), ("x", "y"))
    expected = (
        f"mesh axis {ask} is out of range for [x=2,y=3] with 2 axes"
        if type(ask) is int
        else f"{ask!r} is not an axis of the mesh [x=2,y=3]"
    )
    for question in (mesh.axis_size, lambda axis: mesh.device_coord(0, axis)):
        with pytest.raises(LayoutError) as caught:
            question(ask)
        assert fact_of(caught.value) == expected


@pytest.mark.parametrize("device", [6, -1, 100])
def test_devices_out_of_range(device):
    mesh = DeviceMesh.abstract((2, 3), ("x", "y"))
    with pytest.raises(LayoutError) as caught:
        mesh.device_coord(device, "x")
    assert fact_of(caught.value) == f"device {device} is out of range for [x=2,y=3] with 6 devices"


@pytest.mark.parametrize("device", [True, 1.0, "0", None])
def test_devices_are_counted_by_integers(device):
    """True would count as 1, and 1.0 gave coordinates 0.0."""
    mesh = DeviceMesh.abstract((2, 3), ("x", "y"))
    for question in (mesh.coordinates, lambda device: mesh.device_coord(device, "x")):
        with pytest.raises(TypeError, match="device must be an integer, the position in the mesh, not "):
            question(device)


# -- sub-meshes -------------------------------------------------------------------------------------------------------


def test_a_sub_mesh_stands_at_0_of_the_other_axes():
    mesh = real({"x": 2, "y": 3, "z": 2})
    assert mesh["x"] == DeviceMesh([CPU(0), CPU(6)], (2,), ("x",))
    assert mesh["y"] == DeviceMesh([CPU(0), CPU(2), CPU(4)], (3,), ("y",))
    assert mesh["y", "x"].devices == tuple(CPU(i) for i in (0, 6, 2, 8, 4, 10))


@given(mesh_axes(), st.data())
def test_sub_meshes_by_coordinates(sizes, data):
    mesh = real(sizes)
    order = data.draw(st.permutations(list(sizes)))
    names = tuple(order[: data.draw(st.integers(1, len(order)))])
    sub = mesh[names]
    assert sub.axes == tuple((name, sizes[name]) for name in names)
    index = {tuple(where.values()): device for where, device in zip(positions(mesh), mesh.devices, strict=True)}
    for where, device in zip(positions(sub), sub.devices, strict=True):
        assert index[tuple(where.get(name, 0) for name in mesh.axis_names)] == device


@given(mesh_axes())
def test_a_sub_mesh_of_all_axes_in_order_is_the_mesh(sizes):
    mesh = real(sizes)
    assert mesh[tuple(sizes)] == mesh
    for names in permutations(sizes):
        assert mesh[names][tuple(sizes)] == mesh


def test_sub_meshes_stay_what_the_mesh_is():
    assert DeviceMesh.abstract((2, 3), ("x", "y"))["y", "x"] == DeviceMesh.abstract((3, 2), ("y", "x"))
    assert DeviceMesh.simulated((2, 3), ("x", "y"))["y"].is_simulated


@pytest.mark.parametrize(
    "names, text",
    [
        ("z", "'z' is not an axis of the mesh [x=2,y=3]"),
        (("x", "z", "w"), "'z' is not an axis of the mesh [x=2,y=3]; 'w' is not an axis of the mesh [x=2,y=3]"),
        (("x", "x"), "axis name 'x' stands twice in ('x', 'x')"),
        ((), "a mesh needs at least one axis"),
        (0, "0 is not an axis of the mesh [x=2,y=3]"),
    ],
)
def test_sub_meshes_that_are_not_there(names, text):
    for mesh in (DeviceMesh.abstract((2, 3), ("x", "y")), real({"x": 2, "y": 3})):
        with pytest.raises(LayoutError) as caught:
            mesh[names]
        assert fact_of(caught.value) == text


# -- with mesh: -------------------------------------------------------------------------------------------------------

OUTER, INNER = DeviceMesh.abstract((2,), ("x",)), DeviceMesh.abstract((3,), ("y",))


def test_the_innermost_with_counts():
    assert ambient_mesh() is None
    with OUTER as entered:
        assert entered is OUTER is ambient_mesh() is DeviceMesh.default()
        with INNER:
            assert ambient_mesh() is INNER is as_mesh(None)
            with OUTER:
                assert NamedMapping(spec=["x"]).mesh is OUTER
            assert ambient_mesh() is INNER
        assert ambient_mesh() is OUTER
    assert ambient_mesh() is None


def test_an_exception_leaves_the_mesh_too():
    with pytest.raises(ZeroDivisionError), OUTER:
        _ = 1 // 0
    assert ambient_mesh() is None


def test_a_given_mesh_beats_the_ambient_one():
    with OUTER:
        assert NamedMapping(INNER, ["y"]).mesh is INNER


def test_every_thread_has_its_own():
    inside, outside, seen = threading.Event(), threading.Event(), {}

    def other():
        seen["at start"] = ambient_mesh()
        with INNER:
            inside.set()
            outside.wait(10)
            seen["within"] = ambient_mesh()

    with OUTER:
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        seen["here"] = ambient_mesh()
        outside.set()
        thread.join(10)
    assert seen == {"at start": None, "here": OUTER, "within": INNER}
    assert ambient_mesh() is None


def test_no_mesh_at_all():
    with pytest.raises(LayoutError) as caught:
        NamedMapping(spec=["x"])
    assert str(caught.value) == (
        "no mesh was given, and there is no `with mesh:` around this call\n"
        "  fix: give a lamina.DeviceMesh, or call this inside of `with mesh:`"
    )


# -- a value ----------------------------------------------------------------------------------------------------------

ALL_KINDS = [
    real({"x": 2, "y": 2}),
    real({"x": 1}),
    DeviceMesh.simulated((2, 3), ("x", "y"), device=Accelerator(1)),
    DeviceMesh.abstract((2, 3), ("x", "y")),
]


@pytest.mark.parametrize("mesh", ALL_KINDS, ids=repr)
def test_copies_are_equal(mesh):
    for twin in (pickle.loads(pickle.dumps(mesh)), copy.deepcopy(mesh), copy.copy(mesh)):
        assert twin == mesh and hash(twin) == hash(mesh) and repr(twin) == repr(mesh)
        assert [twin.coordinates(d) for d in range(twin.num_devices)] == [
            *map(mesh.coordinates, range(mesh.num_devices))
        ]


def test_any_difference_tells_meshes_apart():
    meshes = [
        real({"x": 2, "y": 2}),
        real({"y": 2, "x": 2}),
        real({"x": 4}),
        DeviceMesh([CPU(i) for i in (0, 2, 1, 3)], (2, 2), ("x", "y")),
        DeviceMesh([Accelerator(i) for i in range(4)], (2, 2), ("x", "y")),
        DeviceMesh.simulated((2, 2), ("x", "y")),
        DeviceMesh.simulated((2, 2), ("x", "y"), device=CPU(1)),
        DeviceMesh.abstract((2, 2), ("x", "y")),
    ]
    assert len(set(meshes)) == len(meshes)
    assert meshes[0] != "mesh"


@pytest.mark.parametrize("name", ["devices", "mesh_shape", "axis_names", "other"])
def test_frozen(name):
    mesh = real({"x": 2})
    with pytest.raises(AttributeError):
        setattr(mesh, name, ())
    with pytest.raises(AttributeError):
        delattr(mesh, name)
    assert mesh == real({"x": 2})


def test_text():
    assert [(str(mesh), repr(mesh)) for mesh in ALL_KINDS] == [
        ("[x=2,y=2]", "DeviceMesh([x=2,y=2], on CPU(0)..CPU(3))"),
        ("[x=1]", "DeviceMesh([x=1], on CPU(0))"),
        ("[x=2,y=3]", "DeviceMesh([x=2,y=3], simulated on Accelerator(1))"),
        ("[x=2,y=3]", "DeviceMesh([x=2,y=3], abstract)"),
    ]
