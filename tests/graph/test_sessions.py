"""Running graphs: bindings, stages, buffers, what may be passed, and what runs at the same time."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import DeviceMesh, DistributedBufferType, DistributedTensorType, Sharded
from lamina.graph import (
    Buffer,
    BufferType,
    DeviceRef,
    Graph,
    InferenceSession,
    Move,
    Region,
    Segment,
    TensorType,
    distributed,
    ops,
)
from lamina.graph.lower import lower
from lamina.graph.stages import stages
from tests.graph.helpers import ALL, data

A, B, C, D = ALL[:4]


def vector(device, dim="n", dtype="float32"):
    return TensorType(dtype, (dim,), device)


def load(build, *kinds, **options):
    return InferenceSession().load(Graph("g", build, kinds), **options)


# -- compiling --------------------------------------------------------------------------------------------------------


def test_compiled_once_per_binding_and_no_more_than_asked():
    traced = []

    def watched(x):
        traced.append(x.shape)
        return x + 1

    model = load(lambda x: ops.call(watched, x), vector(A), cached=2)
    traced.clear()
    for n in (3, 4, 3, 4, 3):
        assert model.execute(np.zeros(n, "float32"))[0].tolist() == [1.0] * n
    assert traced == [(3,), (4,)]
    model.execute(np.zeros(5, "float32"))  # 4 was used longer ago than 3
    model.execute(np.zeros(3, "float32"))
    assert traced == [(3,), (4,), (5,)] and len(model._compiled) == 2
    model.execute(np.zeros(4, "float32"))
    assert traced == [(3,), (4,), (5,), (4,)]


def kinds_of(found):
    return [type(stage).__name__ for stage in found]


def test_the_same_work_is_one_region():
    model = load(lambda a, b: [x * 2 for x in ops.allreduce.sum([a + 1, b + 1])], vector(A), vector(B))
    (region,) = model.stages(n=3)
    assert isinstance(region, Region) and [one.name for one in region.body] == [
        "constant", "add", "allreduce.sum", "constant", "mul",
    ]  # fmt: skip


def test_what_one_device_does_alone_follows_the_region():
    model = load(lambda a, b: ops.exp(ops.allreduce.sum([a, b])[0]), vector(A), vector(B))
    assert kinds_of(model.stages(n=3)) == ["Region", "Segment"]


def test_devices_that_do_different_work_get_segments_and_meet_in_regions():
    model = load(lambda a, b: ops.allreduce.sum([ops.exp(a), ops.sin(b)]), vector(A), vector(B))
    assert kinds_of(model.stages(n=3)) == ["Segment", "Segment", "Region"]
    x, y = data((3,)), data((3,), seed=1)
    np.testing.assert_allclose(model.execute(x, y)[1].numpy(), np.exp(x) + np.sin(y), rtol=1e-6)


def test_groups_of_devices_that_overlap():
    """Rows of a 2×2 grid reduce first, then columns."""

    def build(*xs):
        first = [*ops.allreduce.sum(xs[:2]), *ops.allreduce.sum(xs[2:])]
        return [*ops.allreduce.max([first[0], first[2]]), *ops.allreduce.max([first[1], first[3]])]

    model = load(build, *(vector(device) for device in (A, B, C, D)))
    inputs = [data((5,), seed=i) for i in range(4)]
    expected = np.maximum(inputs[0] + inputs[1], inputs[2] + inputs[3])
    for one in model.execute(*inputs):
        np.testing.assert_array_equal(one.numpy(), expected)


def test_groups_of_their_own_are_regions_of_their_own():
    model = load(
        lambda a, b, c, d: [*ops.allreduce.sum([a, b]), *ops.allgather([d, c])], *(vector(x) for x in (A, B, C, D))
    )
    found = model.stages(n=2)
    assert kinds_of(found) == ["Region", "Region"]
    assert {stage.devices for stage in found if isinstance(stage, Region)} == {(A, B), (D, C)}
    inputs = [data((2,), seed=i) for i in range(4)]
    found = model.execute(*inputs)
    np.testing.assert_array_equal(found[2].numpy(), np.concatenate([inputs[3], inputs[2]]))
    assert [one.device for one in found] == [A, B, D, C]


def test_a_pipeline_of_devices():
    def build(x):
        for device in (B, C, D):
            x = ops.relu(x + 1).to(device)
        return x

    model = load(build, vector(A))
    assert kinds_of(model.stages(n=2)) == ["Segment", "Move"] * 3
    x = data((2,))
    np.testing.assert_array_equal(
        model.execute(x)[0].numpy(), np.maximum(np.maximum(np.maximum(x + 1, 0) + 1, 0) + 1, 0)
    )


def test_no_program_runs_on_cpus_and_accelerators():
    """An all-gather of a CPU and an accelerator goes part by part; it can be planned without having either."""
    kinds = [vector(A), vector(DeviceRef.GPU(0))]
    lowered = lower(Graph("g", lambda a, b: ops.allgather([a, b]), kinds), {"n": 3})
    assert kinds_of(stages(lowered)) == ["Move"]


def test_what_nobody_needs_is_not_done():
    model = load(lambda a, b: [ops.exp(a), a + 1][1], vector(A), vector(B))
    (segment,) = model.stages(n=2)
    assert isinstance(segment, Segment) and [one.name for one in segment.body] == ["constant", "add"]


def test_nothing_waits_between_programs(monkeypatch):
    """Values on different devices run side by side because nobody waits for one before starting the next."""

    def waited(*_):
        raise AssertionError("a run waited")

    model = load(lambda a, b: [ops.exp(a), ops.exp(b), (a @ a).to(C)], vector(A), vector(B))
    inputs = [jax.device_put(data((3,)), jax.devices()[i]) for i in range(2)]
    model.execute(*inputs)
    monkeypatch.setattr(jax, "block_until_ready", waited)
    monkeypatch.setattr(jax, "device_get", waited)
    monkeypatch.setattr(np, "asarray", waited)
    found = model.execute(*inputs)
    monkeypatch.undo()
    np.testing.assert_allclose(found[0].numpy(), np.exp(data((3,))), rtol=1e-6)


def test_many_runs_in_a_row():
    """More programs with collectives than virtual CPU devices may have in their queue."""
    model = load(lambda a, b, c: ops.allgather([a, b, c]), vector(A), vector(B), vector(C))
    inputs = [jax.device_put(data((3,)), jax.devices()[i]) for i in range(3)]
    found = [model.execute(*inputs)[1] for _ in range(200)]
    np.testing.assert_array_equal(found[-1].numpy(), np.tile(data((3,)), 3))


def test_large_constants_are_sent_once_and_not_compiled_in():
    weights = data((64, 64))
    model = load(lambda x: x @ weights, TensorType("float32", ("n", 64), B))
    x = data((2, 64))
    for _ in range(2):
        np.testing.assert_allclose(model.execute(x)[0].numpy(), x @ weights, rtol=1e-5)
    assert list(model._constants) == ["c0"] and model._constants["c0"].devices() == {jax.devices()[1]}


# -- what may be passed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda x: x, lambda x: x.tolist(), lambda x: jax.device_put(x, jax.devices()[5]), lambda x: lamina.tensor(x),
    lambda x: x.astype("float64"), lambda x: lamina.to_device(x, B),
])  # fmt: skip
def test_inputs_of_every_kind(make):
    model = load(lambda x: x + 1, vector(B))
    x = data((3,))
    (found,) = model.execute(make(x))
    assert found.device == B
    np.testing.assert_array_equal(found.numpy(), x + 1)


def test_whatever_has_dlpack():
    torch_like = type("Exported", (), {
        "__dlpack__": lambda self, **options: data((3,)).__dlpack__(**options),
        "__dlpack_device__": lambda self: data((3,)).__dlpack_device__(),
    })()  # fmt: skip
    np.testing.assert_array_equal(load(lambda x: x + 1, vector(B)).execute(torch_like)[0].numpy(), data((3,)) + 1)


def test_outputs_have_dlpack():
    (found,) = load(lambda x: x + 1, vector(A)).execute(data((3,)))
    np.testing.assert_array_equal(np.from_dlpack(found), data((3,)) + 1)


def test_a_tensor_on_a_mesh_fills_the_inputs_of_its_devices():
    mesh = DeviceMesh((A, B), (2,), ("x",))
    model = load(lambda a, b, c: [a + c.to(A), b], vector(A), vector(B), vector(C))
    x = lamina.shard(data((6,)), mesh, ["x"])
    found = model.execute(x, np.ones(3, "float32"))
    np.testing.assert_array_equal(found[0].numpy(), data((6,))[:3] + 1)
    np.testing.assert_array_equal(found[1].numpy(), data((6,))[3:])


def test_simulated_meshes_and_one_device():
    mesh = DeviceMesh.simulated((4,), ("x",))
    kind = DistributedTensorType("float32", (10,), mesh, [Sharded(0)])
    graph = Graph("g", lambda xs: distributed([x * 2 for x in xs], mesh, [Sharded(0)]), [kind])
    x = lamina.shard(data((10,)), mesh, ["x"])
    np.testing.assert_array_equal(InferenceSession().load(graph)(x)[0].numpy(), data((10,)) * 2)


# -- buffers ----------------------------------------------------------------------------------------------------------


def counter(graph_inputs):
    buffer, x = graph_inputs
    buffer[...] = buffer[...] + x
    return buffer[...]


def test_buffers_are_updated_in_place():
    model = load(lambda b, x: counter((b, x)), BufferType("float32", (4,), B), TensorType("float32", (4,), B))
    buffer = Buffer(np.zeros(4, "float32"), B)
    places = set()
    results = []
    for i in range(4):
        before = buffer.value._array
        places.add(before.unsafe_buffer_pointer())
        results += model.execute(buffer, np.ones(4, "float32"))
        assert before.is_deleted(), "its memory was donated"
        assert buffer.numpy().tolist() == [i + 1.0] * 4
    assert len(places) == 1, "the same memory all the time"
    assert [one.tolist()[0] for one in results] == [1, 2, 3, 4], "what was returned stays what it was"


def test_writable_numpy_arrays_are_buffers():
    model = load(lambda b, x: counter((b, x)), BufferType("float32", (4,), B), TensorType("float32", (4,), B))
    array = np.zeros(4, "float32")
    for _ in range(3):
        model.execute(array, np.ones(4, "float32"))
    assert array.tolist() == [3.0] * 4


def test_loads_and_stores_are_in_order():
    def build(buffer):
        first = ops.buffer_load(buffer)
        ops.buffer_store(buffer, first * 10)
        second = buffer[...]
        ops.buffer_store_slice(buffer, second[:2] + 1, slice(1, 3))
        return [first, second, buffer[...], buffer[0]]

    model = load(build, BufferType("float32", (4,), A))
    buffer = Buffer(np.array([1, 2, 3, 4], "float32"))
    found = [one.tolist() for one in model.execute(buffer)]
    assert found == [[1, 2, 3, 4], [10, 20, 30, 40], [10, 11, 21, 40], 10]
    assert buffer.numpy().tolist() == [10, 11, 21, 40]


def test_a_cache_of_keys_over_a_mesh():
    mesh = DeviceMesh((A, B), (2,), ("x",))
    cache = DistributedBufferType("float32", (5, 4), mesh, [Sharded(1)])
    new = DistributedTensorType("float32", ("n", 4), mesh, [Sharded(1)])

    def build(buffers, values):
        for buffer, value in zip(buffers, values, strict=True):
            ops.buffer_store(buffer, ops.concat([buffer[...][value.shape[0] :], value]).rebind(buffer.shape))
        return ops.allreduce.sum([ops.sum(b[...], 0) for b in buffers])[0]

    model = load(build, cache, new)
    buffer = Buffer(lamina.shard(np.zeros((5, 4), "float32"), mesh, [None, "x"]))
    expected = np.zeros((5, 4), "float32")
    for n in (2, 1, 2, 3):
        value = data((n, 4), seed=n)
        (total,) = model.execute(buffer, lamina.shard(value, mesh, [None, "x"]))
        expected = np.concatenate([expected[n:], value])
        np.testing.assert_array_equal(buffer.numpy(), expected)
        np.testing.assert_array_equal(total.numpy()[0], expected.sum(0).reshape(2, 2).sum(0))
    assert buffer.value.sharding == lamina.NamedMapping(mesh, [None, "x"])


def test_functional_changes_nothing_and_can_be_traced():
    model = load(lambda b, x: counter((b, x)), BufferType("float32", (4,), A), TensorType("float32", (4,), A))
    buffer = Buffer(np.zeros(4, "float32"))
    outputs, stored = model.functional(buffer, np.ones(4, "float32"))
    assert outputs[0].tolist() == stored[0].tolist() == [1] * 4 and buffer.numpy().tolist() == [0] * 4

    @jax.jit
    def twice(held, x):
        for _ in range(2):
            _, (held,) = model.functional(held, x)
        return held

    assert twice(jnp.zeros(4), jnp.ones(4)).tolist() == [2.0] * 4
    gradient = jax.grad(lambda held: model.functional(held, held * 2)[1][0].jax().sum())(jnp.ones(4))
    assert gradient.tolist() == [3.0] * 4


def test_a_buffer_that_is_only_read_stays():
    model = load(lambda b: b[...] * 2, BufferType("float32", (2,), A))
    buffer = Buffer(np.ones(2, "float32"))
    array = buffer.value._array
    assert model.execute(buffer)[0].tolist() == [2, 2] and buffer.value._array is array


def test_inputs_stay_usable_and_are_not_kept():
    model = load(lambda a, b: ops.allreduce.sum([a, b]), vector(A), vector(B))
    inputs = [jax.device_put(data((3,), seed=i), jax.devices()[i]) for i in range(2)]
    known = weakref.ref(inputs[0])
    for _ in range(2):
        model.execute(*inputs)
    np.testing.assert_array_equal(np.asarray(inputs[0]), data((3,)))
    inputs.clear()
    gc.collect()
    assert known() is None


def test_moves_go_straight_to_their_device(monkeypatch):
    """No value that is on a device is read by the host on its way to another one."""
    model = load(lambda x: ops.distributed_broadcast(x * 2, None, devices=[A, B, C]), vector(A))
    assert kinds_of(model.stages(n=2)) == ["Segment", "Move"]
    assert isinstance(model.stages(n=2)[1], Move)
    x = jax.device_put(data((3,)), jax.devices()[0])
    model.execute(x)
    with monkeypatch.context() as patch:
        patch.setattr(np, "asarray", lambda *_: pytest.fail("read by the host"))
        found = model.execute(x)
    for one in found:
        np.testing.assert_array_equal(one.numpy(), data((3,)) * 2)
    assert DeviceRef.GPU(0) == lamina.Accelerator(0)
