"""Host memory to devices: every chunk in its place, so many in flight and no more, no whole copy on the host."""

from __future__ import annotations

import tracemalloc
from math import prod

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina.engine import pipeline, transfer
from lamina.engine.pipeline import Flow, Load, boxes

MIB = 1 << 20
SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)


@pytest.fixture
def cut_everywhere(monkeypatch):
    """CPU devices get their loads in chunks, too, as accelerators do."""
    monkeypatch.setattr(Load, "is_cut", lambda load, flow: load.nbytes >= flow.smallest)


@given(shape=SHAPES, itemsize=st.sampled_from([1, 2, 8]), most=st.integers(1, 200))
def test_boxes_cover_a_shape_once_in_order_and_are_bounded(shape, itemsize, most):
    numbers = np.arange(prod(shape)).reshape(shape)
    found = [numbers[box] for box in boxes(shape, itemsize, most)]
    assert all(part.nbytes // 8 * itemsize <= max(most, itemsize) for part in found)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in found]), numbers.ravel())


@given(rows=st.integers(1, 1000), most=st.integers(1, 100))
def test_boxes_come_in_two_sizes_at_most_and_are_few(rows, most):
    """Each size is a program to compile."""
    found = [box[0].stop - box[0].start for box in boxes((rows,), 1, most)]
    assert len(set(found)) <= 2 and len(found) == -(-rows // most)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "float64", "int64"])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_what_arrives_in_chunks(cut_everywhere, dtype, in_flight):
    """Wide dtypes are cast chunk by chunk to what JAX keeps; columns aren't contiguous."""
    value = np.arange(37 * 10).reshape(37, 10).astype(jax.numpy.dtype(dtype))
    kept = jax.dtypes.canonicalize_dtype(value.dtype)
    flow = Flow(chunk_bytes=64, in_flight=in_flight, smallest=1)
    devices = jax.devices()[:2]
    loads = [Load.of(view, kept, d) for view, d in zip([value[:, :5], value.T[::2]], devices, strict=True)]
    loads.append(Load((2, 37), np.dtype(kept), (((1, 0), value[None, :, 3]), ((0, 0), value[None, :, 9])), devices[0]))
    found = pipeline.send(loads, flow)
    expected = [value[:, :5], value.T[::2], np.stack([value[:, 9], value[:, 3]])]
    for array, want, load in zip(found, expected, loads, strict=True):
        assert array.devices() == {load.device} and array.dtype == kept
        np.testing.assert_array_equal(np.asarray(array), want.astype(kept))


def test_no_more_than_the_flow_says_is_in_flight(cut_everywhere, monkeypatch):
    sent = written = most = 0
    write = pipeline._Assembly.write

    def put(value, device):
        nonlocal sent, most
        sent += value.dtype == np.float32
        most = max(most, sent - written)
        return original(value, device)

    def written_one(assembly, chunk):
        nonlocal written
        written += 1
        write(assembly, chunk)

    original = jax.device_put
    monkeypatch.setattr(jax, "device_put", put)
    monkeypatch.setattr(pipeline._Assembly, "write", written_one)
    load = Load.of(np.ones(1000, np.float32), np.float32, jax.devices()[1])
    pipeline.send([load], Flow(chunk_bytes=100, in_flight=5, smallest=1))
    assert (sent, written, most) == (40, 40, 5)


def test_what_is_small_goes_in_one_piece():
    load = Load.of(np.ones(10, np.float32), np.float32, jax.devices()[0])
    assert not load.is_cut(Flow(smallest=1)), "host memory is copied, not sent"
    assert not load.is_cut(Flow())


@pytest.mark.parametrize("way", ["to_device", "shard"])
def test_the_public_ways_go_through_the_pipeline(cut_everywhere, way):
    value = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)
    mesh = lamina.DeviceMesh.create((4,), ("x",))
    with pipeline.flowing(chunk_bytes=256, in_flight=7, smallest=1):
        found = lamina.to_device(value, lamina.CPU(3)) if way == "to_device" else lamina.shard(value, mesh, [None, "x"])
    np.testing.assert_array_equal(found.numpy(), value)


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("chunked", [False, True])
def test_place_stacked(monkeypatch, count, axis, chunked):
    if chunked:
        monkeypatch.setattr(Load, "is_cut", lambda load, flow: True)
    size = 2 * count
    inputs = [np.random.default_rng(i).random((size, 3, size)[: 3 if axis != 1 else None]) for i in range(3)]
    if axis == 1:
        inputs = [value.transpose(1, 0, 2) for value in inputs]
    devices = [lamina.CPU(i) for i in reversed(range(count))]
    with pipeline.flowing(chunk_bytes=64):
        found = transfer.place_stacked(inputs, devices, axis % inputs[0].ndim)
    expected = np.split(np.stack(inputs).astype(np.float32), count, axis=axis % inputs[0].ndim + 1)
    for array, want, device in zip(found, expected, devices, strict=True):
        assert array.devices() == {jax.devices()[device.id]}
        np.testing.assert_array_equal(np.asarray(array), want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_whole_copy_on_the_host(dtype):
    """CPU devices' memory is the host's, so what arrives counts; nothing else of that size may be there."""
    inputs = [np.ones((1024, 1024), dtype) for _ in range(8)]
    arriving = 8 * 4 * MIB
    devices = [lamina.CPU(i) for i in range(4)]
    tracemalloc.start()
    try:
        arrays = transfer.place_stacked(inputs, devices, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(array.nbytes for array in arrays) == arriving
    assert arriving <= peak <= arriving + MIB


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_staging_memory_is_bounded(cut_everywhere, dtype):
    """What the host holds on the way, when the device's memory is another: the chunks in flight and no more."""
    value = np.ones((4096, 1024), dtype)
    load = Load.of(value, np.float32, jax.devices()[0])
    flow = Flow(chunk_bytes=MIB // 4, in_flight=4, smallest=1)
    tracemalloc.start()
    try:
        jax.block_until_ready(pipeline.send([load], flow))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= (flow.in_flight + 1) * flow.chunk_bytes + MIB
