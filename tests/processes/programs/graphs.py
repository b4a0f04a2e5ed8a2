"""Graphs over devices of several processes: every op between devices, a block with its gradient, buffers.

Run with 2 devices per process.  Every process passes the same host data, and reads the results on its own devices.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import lamina
from lamina.graph import Buffer, BufferType, DeviceRef, Graph, InferenceSession, Signals, TensorType, distributed, ops

ALL = [DeviceRef.CPU(i) for i in range(jax.device_count())]


def main() -> None:
    collectives()
    weights()
    pipeline()
    block()
    memory()
    print("graphs are right")


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def check(found: list[lamina.Tensor], expected: list[Any]) -> None:
    """Those on this process's devices hold what they should; there are some."""
    read = 0
    for one, want in zip(found, expected, strict=True):
        if jax.devices()[one.device.id].process_index == jax.process_index():
            np.testing.assert_allclose(one.numpy(), want, rtol=1e-5, atol=1e-5)
            read += 1
        assert one.shape == np.shape(want)
    assert read


def run(build: Any, inputs: list[np.ndarray], places: list[Any]) -> list[lamina.Tensor]:
    kinds = [TensorType(x.dtype, x.shape, device) for x, device in zip(inputs, places, strict=True)]
    return InferenceSession().load(Graph("test", build, kinds)).execute(*inputs)


def collectives() -> None:
    homes = ALL[::-1]
    even = [data(4, 2, seed=i) for i in range(len(homes))]
    uneven = [data(1 + i, 2, seed=i) for i in range(len(homes))]
    check(run(lambda *xs: ops.allgather(xs), even, homes), [np.concatenate(even)] * len(homes))
    check(run(lambda *xs: ops.allgather(xs), uneven, homes), [np.concatenate(uneven)] * len(homes))
    check(run(lambda *xs: ops.allreduce.max(xs), even, homes), [np.max(even, 0)] * len(homes))
    wide = [data(len(homes) + 1, 3, seed=i) for i in range(len(homes))]
    check(run(lambda *xs: ops.reducescatter.sum(xs, axis=0), wide, homes), np.array_split(np.sum(wide, 0), len(homes)))
    for root in (ALL[0], ALL[-1]):
        check(
            run(lambda x: ops.distributed_broadcast(x * 2, None, devices=homes), [even[0]], [root]),
            [even[0] * 2] * len(homes),
        )
    scattered = run(lambda x, y: ops.distributed_scatter([x, y + 1], None, devices=homes), even[:2], [ALL[1]] * 2)
    check(scattered, [even[0]] * (len(homes) // 2) + [even[1] + 1] * (len(homes) // 2))


def weights() -> None:
    inputs = [data(8, 6, seed=i) for i in range(3)]
    expected = np.split(np.stack(inputs), len(ALL), axis=1)
    for build in (
        lambda *xs: ops.shard_and_stack(xs, ALL),
        lambda *xs: ops.shard_and_stack([x + 0 for x in xs], ALL),  # from a device, not from the host
    ):
        check(run(build, inputs, [ALL[0]] * 3), expected)


def pipeline() -> None:
    def build(x: Any) -> Any:
        for device in (*ALL[1:], *ALL):
            x = (x + 1).to(device)
        return [x, ops.sum(ops.sum(x, 0)).reshape(()).to(ALL[0])]

    x = data(3, 2)
    found = run(build, [x], [ALL[0]])
    steps = 2 * len(ALL) - 1
    mine = [jax.devices()[one.device.id].process_index == jax.process_index() for one in found]
    for one, want, own in zip(found, [x + steps, (x + steps).sum()], mine, strict=True):
        if own:
            np.testing.assert_allclose(one.numpy(), want)


def block() -> None:
    mesh = lamina.DeviceMesh(ALL, (len(ALL),), ("tp",))
    signals = Signals(ALL)
    columns = lamina.DistributedTensorType("float32", (6, 8), mesh, [lamina.Sharded(1)])
    rows = lamina.DistributedTensorType("float32", (8, 6), mesh, [lamina.Sharded(0)])
    every = lamina.DistributedTensorType("float32", ("n", 6), mesh, [lamina.Replicated()])

    def mlp(xs: Any, up: Any, down: Any, *signals: Any) -> Any:
        hidden = [ops.tanh(x @ w) for x, w in zip(xs, up, strict=True)]
        sums = ops.allreduce.sum([h @ w for h, w in zip(hidden, down, strict=True)], signals)
        return distributed(sums, mesh, [lamina.Replicated()])

    model = InferenceSession(ALL).load(Graph("mlp", mlp, [every, columns, rows, *signals.input_types()]))
    x, up, down = data(3, 6) / 4, data(6, 8, seed=1) / 4, data(8, 6, seed=2) / 4
    tensors = [lamina.shard(a, mesh, s) for a, s in ((x, []), (up, [None, "tp"]), (down, ["tp"]))]
    for given in (tensors, [x, up, down]):
        (y,) = model.execute(*given, *signals.buffers())
        np.testing.assert_allclose(y.numpy(), np.tanh(x @ up) @ down, rtol=1e-4, atol=1e-5)

    def loss(*given: Any) -> Any:
        return (model(*given, *signals.buffers())[0].jax() ** 2).sum()

    gradients = jax.jit(jax.grad(loss, (0, 1, 2)))(*tensors)
    expected = jax.grad(lambda x, up, down: ((jax.numpy.tanh(x @ up) @ down) ** 2).sum(), (0, 1, 2))(x, up, down)
    for one, want in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), want, rtol=1e-3, atol=1e-4)


def memory() -> None:
    """A counter on the last device, told by the first."""

    def build(buffer: Any, x: Any) -> Any:
        buffer[...] = buffer[...] + x.to(buffer.device)
        return []

    kinds = [BufferType("float32", (2,), ALL[-1]), TensorType("float32", (2,), ALL[0])]
    model = InferenceSession().load(Graph("count", build, kinds))
    total = Buffer(np.zeros(2, "float32"), ALL[-1])
    for _ in range(3):
        model.execute(total, np.ones(2, "float32"))
    if jax.devices()[-1].process_index == jax.process_index():
        assert total.numpy().tolist() == [3.0, 3.0]


if __name__ == "__main__":
    main()
