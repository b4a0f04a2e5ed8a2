"""Every op between devices against numpy: every dtype, 1 to 8 devices, uneven and symbolic sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lamina.graph import DeviceRef, Graph, InferenceSession, Signals, TensorType, ops
from lamina.sharding.dims import split_sizes
from tests.graph.helpers import DTYPES, data, devices, run

COUNTS = range(1, 9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.exhaustive(keep=8)
def test_allgather(dtype, count, even, axis):
    sizes = [3 if even else (i * 2) % 5 for i in range(count)]
    inputs = [data((n, 2, n)[1:] if axis else (n, 2), dtype, i) for i, n in enumerate(sizes)]
    found = run(lambda *xs: ops.allgather(xs, axis=axis), inputs, devices(count))
    assert len(found) == count
    for one in found:
        np.testing.assert_array_equal(one, np.concatenate(inputs, axis))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.exhaustive(keep=6)
def test_allreduce(dtype, count, op):
    if dtype == "complex64" and op != "sum":
        pytest.skip("complex numbers have no order")
    inputs = [data((3, 4), dtype, i) for i in range(count)]
    reduce = {"sum": np.sum, "max": np.max, "min": np.min}[op]
    expected = np.any(inputs, 0) if dtype == "bool" and op == "sum" else reduce(np.stack(inputs), 0)
    for one in run(lambda *xs: getattr(ops.allreduce, op)(xs), inputs, devices(count)):
        np.testing.assert_array_equal(one, expected.astype(jnp.dtype(dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.exhaustive(keep=6)
def test_reducescatter(dtype, count, even, axis):
    size = 2 * count + (0 if even else count // 2 + 1)
    inputs = [data((size, 3) if axis == 0 else (3, size), dtype, i) for i in range(count)]
    total = np.any(inputs, 0) if dtype == "bool" else np.sum(np.stack(inputs), 0).astype(jnp.dtype(dtype))
    ends = np.cumsum(split_sizes(size, count))[:-1]
    found = run(lambda *xs: ops.reducescatter.sum(xs, axis=axis), inputs, devices(count))
    for one, part in zip(found, np.split(total, ends, axis), strict=True):
        np.testing.assert_array_equal(one, part)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("root", [0, -1])
@pytest.mark.exhaustive(keep=6)
def test_distributed_broadcast(dtype, count, root):
    x, homes = data((3, 4), dtype), devices(count)
    signals = Signals(homes)
    graph = Graph(
        "broadcast",
        lambda x, *signals: ops.distributed_broadcast(x, signals),
        [TensorType(dtype, x.shape, homes[root]), *signals.input_types()],
    )
    found = InferenceSession(homes).load(graph).execute(x, *signals.buffers())
    assert [one.device for one in found] == homes
    for one in found:
        np.testing.assert_array_equal(one.numpy(), x)


@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_distributed_scatter(count, chunks):
    if count % chunks:
        pytest.skip("the devices come in equal groups")
    homes, inputs = devices(count), [data((2 + i, 3), seed=i) for i in range(chunks)]
    found = run(lambda *xs: ops.distributed_scatter(xs, None, devices=homes), inputs, [homes[count // 2]] * chunks)
    for i, one in enumerate(found):
        np.testing.assert_array_equal(one, inputs[i // (count // chunks)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("where", ["host", "device", "computed"])
@pytest.mark.exhaustive(keep=10)
def test_shard_and_stack(dtype, count, axis, where):
    """From numpy, from an array on CPU(0), from a value of the graph, and from another device than CPU(0)."""
    shape = (2 * count, 3) if axis == 0 else (3, 2 * count)
    inputs = [data(shape, dtype, i) for i in range(3)]
    home = DeviceRef.CPU(1 if where == "device" else 0)

    def build(*xs):
        return ops.shard_and_stack([x[...] if where == "computed" else x for x in xs], devices(count), axis)

    found = run(build, inputs, [home] * 3)
    expected = np.split(np.stack(inputs), count, axis if axis < 0 else axis + 1)
    for one, part in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, part)


def test_the_seeds_examples():
    a, b = data((10, 3), seed=1), data((10, 3), seed=2)
    two = devices(2)
    for axis, (x, y) in enumerate([(a, b), (a.T, b.T)]):
        found = run(lambda x, y, axis=axis: ops.shard_and_stack([x, y], two, axis), [x, y], [DeviceRef.CPU(0)] * 2)
        for i, one in enumerate(found):
            cut = (slice(None),) * axis + (slice(5 * i, 5 * i + 5),)
            np.testing.assert_array_equal(one, np.stack([x[cut], y[cut]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_transfer_to(dtype):
    x = data((3, 4), dtype)
    there, twice, same = run(
        lambda x: [x.to(devices(8)[0]), ops.transfer_to(x.to(devices(8)[3]), devices(8)[1]), x.to(x.device)],
        [x],
        [DeviceRef.CPU(2)],
    )
    for one in (there, twice, same):
        np.testing.assert_array_equal(one, x)


def test_transfer_to_the_same_device_is_the_same_value():
    def build(x):
        assert ops.transfer_to(x, x.device) is x
        assert ops.transfer_to(x, jax.devices()[0]) is x
        return x

    Graph("same", build, [TensorType("float32", (2,), DeviceRef.CPU(0))])


SYMBOLIC = {
    "allgather": (lambda *xs: ops.allgather(xs), ["a", "b"], lambda x, y: [np.concatenate([x, y])] * 2),
    "allreduce": (lambda *xs: ops.allreduce.max(xs), ["n", "n"], lambda x, y: [np.maximum(x, y)] * 2),
    "reducescatter": (
        lambda *xs: ops.reducescatter.sum(xs, axis=0),
        ["n", "n"],
        lambda x, y: np.split(x + y, [-(-len(x) // 2)]),
    ),
    "broadcast": (
        lambda x, y: ops.distributed_broadcast(x, None, devices=devices(2)),
        ["n", "m"],
        lambda x, y: [x, x],
    ),
}


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("sizes", [(4, 4), (3, 3), (1, 1), (0, 0), (2, 5)])
def test_symbolic_sizes(name, sizes):
    build, names, expected = SYMBOLIC[name]
    if len(set(names)) == 1 and len(set(sizes)) > 1:
        pytest.skip("one name, one size")
    inputs = [data((n, 3), seed=i) for i, n in enumerate(sizes)]
    found = run(build, inputs, devices(2), [(name, 3) for name in names])
    for one, want in zip(found, expected(*inputs), strict=True):
        np.testing.assert_array_equal(one, want)


def test_symbolic_shard_and_stack_is_checked_when_the_size_is_known():
    graph = Graph(
        "s", lambda x: ops.shard_and_stack([x], devices(2)), [TensorType("float32", ("n", 3), DeviceRef.CPU(0))]
    )
    assert str(graph.outputs[0].shape) == "[1, n // 2, 3]"
    model = InferenceSession().load(graph)
    x = data((6, 3))
    for one, want in zip(model.execute(x), np.split(x[None], 2, 1), strict=True):
        np.testing.assert_array_equal(one.numpy(), want)
    with pytest.raises(ValueError, match="5 of \\[5, 3\\] is not evenly divisible by 2 devices"):
        model.execute(data((5, 3)))


def test_data_that_is_no_value_comes_to_the_device_of_its_buffer():
    homes = devices(2)
    signals = Signals(homes)
    with Graph("raw", input_types=signals.input_types()) as graph:
        graph.output(
            *ops.allgather([np.ones(2, "float32"), np.zeros(3, "float32")], graph.inputs),
            *ops.distributed_broadcast(7, graph.inputs),
        )
    found = InferenceSession().load(graph).execute(*signals.buffers())
    assert [one.device for one in found] == homes * 2
    assert [one.tolist() for one in found] == [[1, 1, 0, 0, 0]] * 2 + [7, 7]
