"""From one mesh to another: the same devices in another order or shape, some of them, more, others, one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina.engine import programs
from lamina.engine.crossing import move
from lamina.planning.simulate import collect, scatter
from lamina.sharding import CPU, DeviceMesh, NamedMapping
from lamina.sharding.layout import Layout
from tests.engine.oracles import assert_holds, holding, laid, mapping_of
from tests.strategies import any_blocks, layouts, shapes, values


def mesh(devices, shape, names=("x", "y", "z")) -> DeviceMesh:
    return DeviceMesh([CPU(i) for i in devices], shape, names[: len(shape)])


MESHES = {
    "first four": mesh(range(4), (2, 2)),
    "the same in another order": mesh([3, 1, 0, 2], (2, 2)),
    "the same as one axis": mesh(range(4), (4,)),
    "with other names": DeviceMesh([CPU(i) for i in range(4)], (2, 2), ("a", "b")),
    "a subset": mesh([1, 2], (2,)),
    "a superset": mesh(range(8), (2, 4)),
    "overlapping": mesh([2, 3, 4, 5, 6, 7], (2, 3)),
    "disjoint": mesh([6, 5, 7], (3,)),
    "one device": DeviceMesh.single(CPU(2)),
    "another device": DeviceMesh.single(CPU(6)),
    "simulated": DeviceMesh.simulated((2, 2), ("x", "y")),
    "simulated elsewhere": DeviceMesh.simulated((3, 5), ("x", "y"), CPU(5)),
}
PAIRS = [pytest.param(MESHES[a], MESHES[b], id=f"{a} to {b}") for a, b in product(MESHES, MESHES) if a != b]

# Every kind of layout once on either side: split evenly and not, nested in both orders, pieces.
SPECS = {
    1: [([(0,), ()], {}), ([(), (0,)], {}), ([(), ()], {0: "sum"})],
    2: [
        ([(0,), (1,)], {}),
        ([(1, 0), ()], {}),
        ([(), (0, 1)], {}),
        ([(1,), ()], {0: "max"}),
        ([(), ()], {0: "avg", 1: "sum"}),
    ],
}


def some_layouts(on: DeviceMesh) -> list[Layout]:
    names = on.axis_names
    return [
        Layout(on.axes, [[names[i] for i in axes] for axes in dims], {names[i]: op for i, op in partial.items()})
        for dims, partial in SPECS[on.ndim]
    ]


@contextmanager
def carried(by: str) -> Iterator[None]:
    """Between devices with memories of their own, messages carry a value; here they all share one, and copies do."""
    if by == "copies":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "_carrier", lambda action: partial(move, source=action.source, target=action.target))
        programs.runner.cache_clear()
        try:
            yield
        finally:
            programs.runner.cache_clear()


CARRIERS = ("copies", "messages")


@pytest.mark.exhaustive(keep=12)
@pytest.mark.parametrize("by", CARRIERS)
@pytest.mark.parametrize("shape", [(8, 12), (5, 7)], ids=str)
@pytest.mark.parametrize(("origin", "destination"), PAIRS)
def test_every_kind_of_mesh_to_every_other(origin, destination, shape, by):
    with carried(by):
        check_every_layout(origin, destination, shape)


def check_every_layout(origin: DeviceMesh, destination: DeviceMesh, shape: tuple[int, int]) -> None:
    for number, source in enumerate(some_layouts(origin)):
        blocks = any_blocks(source, shape, "float32")
        value = collect(blocks, source, shape, "float32")
        x = holding(blocks, origin, source, shape)
        targets = some_layouts(destination)
        target = targets[number % len(targets)]
        for found in (laid(x, destination, target), lamina.to_device(x, sharding=mapping_of(destination, target))):
            assert found.mesh == destination
            assert_holds(found, scatter(value, target), target)
            assert_is_on_its_devices(found)


def assert_is_on_its_devices(x: lamina.Tensor) -> None:
    cpus = jax.devices("cpu")
    for name, shard in zip(x.mesh.devices, x.shards, strict=True):
        assert shard.devices() == {cpus[name.id]}


@given(st.data())
def test_any_layout_on_any_devices(data):
    """Drawn device orders and layouts, so that no one arrangement is special."""

    def drawn_mesh() -> DeviceMesh:
        shape = data.draw(st.sampled_from([(2, 2), (4,), (2, 3), (3,), (8,), (2, 2, 2), (1, 2)]))
        devices = data.draw(st.permutations(range(8)))[: int(np.prod(shape))]
        return mesh(devices, shape)

    origin, destination, rank = drawn_mesh(), drawn_mesh(), data.draw(st.integers(0, 2))
    shape = data.draw(shapes(rank))
    source, target = data.draw(layouts(dict(origin.axes), rank)), data.draw(layouts(dict(destination.axes), rank))
    blocks = any_blocks(source, shape, "float32")
    with carried(data.draw(st.sampled_from(CARRIERS))):
        found = laid(holding(blocks, origin, source, shape), destination, target)
    value = collect(blocks, source, shape, "float32")
    if origin == destination:
        np.testing.assert_array_equal(found.numpy(), value)
    else:
        assert_holds(found, scatter(value, target), target)
    assert_is_on_its_devices(found)


def test_messages_carry_where_memories_differ(monkeypatch):
    """The fixture above stands for this: without one memory for all, `move` is what runs."""
    x = lamina.shard(values((5, 7)), MESHES["first four"], ["x", "y"])
    action = programs.Transfer(x._held, lamina.shard(values((5, 7)), MESHES["disjoint"], ["x"])._held)
    monkeypatch.setattr(programs, "_in_one_memory", lambda held: False)
    assert programs._carrier(action).func is move


def test_the_input_stays_usable():
    value = values((5, 7))
    x = lamina.shard(value, MESHES["first four"], ["x", "y"])
    for destination in MESHES.values():
        lamina.distributed_broadcast(x, destination)
    assert_holds(x, scatter(value, x.layout))


@pytest.mark.parametrize("chosen", [lamina.CPU(1), lamina.CPU(7)], ids=str)
def test_to_a_device_from_every_mesh(chosen):
    value = values((5, 7))
    for origin in MESHES.values():
        found = lamina.to_device(lamina.shard(value, origin, [origin.axis_names[-1]]), chosen)
        assert found.device == chosen
        assert_is_on_its_devices(found)
        np.testing.assert_array_equal(found.numpy(), value)


def test_inside_jit_the_devices_must_be_the_same():
    x = lamina.shard(values((4, 4)), MESHES["first four"], ["x", "y"])
    with pytest.raises(
        lamina.TransformError, match="inside jax.jit a value can't move between meshes over different devices"
    ):
        jax.jit(lambda x: lamina.shard(x, MESHES["the same in another order"], ["x"]))(x)


@pytest.mark.parametrize("destination", ["the same as one axis", "with other names"])
def test_inside_jit_another_mesh_over_the_same_devices_is_fine(destination):
    value, there = values((5, 8)), MESHES[destination]
    x = lamina.shard(value, MESHES["first four"], ["x", "y"])
    for target in some_layouts(there):
        found = jax.jit(lambda x, target=target: laid(x, there, target))(x)
        assert_holds(found, scatter(value, target), target)
        assert_is_on_its_devices(found)


# -- host data --------------------------------------------------------------------------------------------------------

EVERY_MESH = pytest.mark.parametrize("there", [pytest.param(m, id=name) for name, m in MESHES.items()])


@EVERY_MESH
def test_host_data_goes_to_any_mesh(there):
    for target in some_layouts(there) if there.ndim > 1 or not there.is_single else [Layout(there.axes, [(), ()])]:
        for shape in ((8, 12), (5, 7)):
            found = laid(values(shape), there, target)
            assert_holds(found, scatter(values(shape), target), target)
            assert_is_on_its_devices(found)


@EVERY_MESH
@pytest.mark.parametrize("dtype", ["float32", "float64"])  # as it is, and converted
def test_the_tensor_does_not_see_what_happens_to_its_source(there, dtype):
    # Large and aligned, because that is when JAX's CPU backend would share the memory of a numpy array.
    source = np.ones((64, 1024), dtype)
    shards = lamina.shard(source, there, [there.axis_names[-1]])
    copies = lamina.distributed_broadcast(source, there)
    on_device = lamina.to_device(source, CPU(0))
    here = lamina.tensor(source)
    source[:] = 7
    for x in (shards, copies, on_device, here):
        assert (x.numpy() == 1).all()


@pytest.mark.parametrize("spec", [["x", "y"], [("y", "x")], [None, "x"]], ids=str)
def test_each_device_receives_its_own_shard_of_host_data_and_no_more(spec, monkeypatch):
    """The bytes that `device_put` is given are those of the shards: no device ever holds the whole."""
    sent: dict[int, int] = {}
    put = jax.device_put

    def watched(x, device=None, **options):
        targets = device if isinstance(device, list) else [device] * len(jax.tree.leaves(x))
        for leaf, target in zip(jax.tree.leaves(x), targets, strict=True):
            sent[target.id] = sent.get(target.id, 0) + leaf.nbytes
        return put(x, device, **options)

    there, value = MESHES["overlapping"], values((6, 12))
    monkeypatch.setattr(jax, "device_put", watched)
    x = lamina.shard(value, there, spec)
    monkeypatch.undo()
    assert sent == {name.id: np.asarray(shard).nbytes for name, shard in zip(there.devices, x.shards, strict=True)}


def test_a_python_number_goes_to_a_mesh_of_other_devices():
    found = lamina.shard(3.0, MESHES["disjoint"], [], partial=["x"])
    assert [float(s) for s in found.shards] == [3, 0, 0]
    assert_is_on_its_devices(found)


# -- jax.Arrays -------------------------------------------------------------------------------------------------------


@EVERY_MESH
def test_a_jax_array_goes_to_any_mesh_from_where_it_is(there):
    value = values((6, 12))
    split = lamina.shard(value, MESHES["overlapping"], ["x", "y"]).jax()
    for array in (jax.device_put(value, jax.devices()[3]), split, jax.device_put(value)):
        for target in some_layouts(there):
            assert_holds(laid(array, there, target), scatter(value, target), target)


def test_to_device_takes_a_mapping_of_another_mesh():
    value = values((6, 12))
    x = lamina.shard(value, MESHES["overlapping"], ["x", "y"])
    found = lamina.to_device(x, sharding=NamedMapping(MESHES["disjoint"], [None, "x"]))
    assert_holds(found, scatter(value, Layout({"x": 3}, [(), "x"])))
    on_two = jax.sharding.Mesh(np.array(jax.devices()[3:5]), ("m",))
    found = lamina.to_device(x, sharding=jax.sharding.NamedSharding(on_two, jax.sharding.PartitionSpec(None, "m")))
    assert found.mesh == DeviceMesh([CPU(3), CPU(4)], (2,), ("m",))
    assert_holds(found, scatter(value, Layout({"m": 2}, [(), "m"])))
