"""`model.execute` beside the same program written directly in JAX, on virtual CPU devices.

Each case is a graph and its twin.  Where devices work in lock-step the twin is what one would write by hand: one
`shard_map` under `jax.jit` on arrays that lie there already, after the same `jax.device_put` for what is broadcast.
The pipeline's twin is a jitted function per device and a `jax.device_put` between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import geomean, number, seconds_text
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved

MOST = 1.1
COUNT = 4


@dataclass(frozen=True)
class Case:
    """A name, the sizes, and `make(size)`, which gives (ours, theirs) as calls without arguments."""

    name: str
    sizes: tuple[int, ...]
    make: Callable[[int], tuple[Callable[[], Any], Callable[[], Any]]]
    counts: bool = True  # is it under the limit?


def run(settings: Settings) -> Result:
    cases = [
        Case("TP MLP, Tensors in and out", (64, 256, 1024), _mlp),
        Case("TP MLP, x broadcast from one device", (64, 256, 1024), _broadcast_mlp),
        Case("pipeline over 4 devices", (256, 1024), _pipeline),
        Case("TP MLP, a list of arrays per weight", (256, 1024), _mlp_of_lists, counts=False),
    ]
    sizes = settings.choose(1, 3, 3)
    result, rows, ratios = Result(), [], []
    with progress("graphs", sum(min(len(case.sizes), sizes) for case in cases)) as done:
        for case in cases:
            for size in case.sizes[:sizes]:
                times = _timed(case, size, settings)
                ratio = times["graph"] / times["jax"]
                if case.counts:
                    ratios.append(ratio)
                rows.append((case.name, size, *map(seconds_text, times.values()), number(ratio)))
                done(1)
    result.tables = [
        _concurrency(settings),
        Table("Executing a graph", ("case", "size", "graph", "JAX", "ratio"), tuple(rows)),
    ]
    result.limit(
        "execute over the same program in JAX, geomean", f"≤ {MOST}", number(geomean(ratios)), geomean(ratios) <= MOST
    )
    return result


def _timed(case: Case, size: int, settings: Settings) -> dict[str, float]:
    import jax
    import numpy as np

    ours, theirs = case.make(size)
    found = ours()[0].numpy()
    np.testing.assert_allclose(found, np.asarray(theirs()), rtol=2e-3, atol=2e-3)
    loops = 20 if size <= 64 else 5 if size <= 256 else 1
    contestants = {"graph": ours, "jax": theirs}
    return interleaved(contestants, settings.choose(3, 15, 41), loops, jax.block_until_ready)


def _weights(size: int) -> tuple[Any, Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    shapes = (size, size), (size, 4 * size), (4 * size, size)
    x, up, down = (generator.standard_normal(shape, np.float32) / size**0.5 for shape in shapes)
    return x, up, down


def _mesh() -> Any:
    import lamina

    return lamina.DeviceMesh.create((COUNT,), ("tp",))


def _graph(mesh: Any, size: int, broadcast: bool) -> Any:
    from lamina import DistributedTensorType, Replicated, Sharded
    from lamina.graph import Graph, InferenceSession, TensorType, distributed, ops

    def forward(x: Any, up: Any, down: Any) -> Any:
        xs = ops.distributed_broadcast(x, None, devices=mesh.devices) if broadcast else x
        hidden = [ops.relu(each @ w) for each, w in zip(xs, up, strict=True)]
        sums = ops.allreduce.sum([h @ w for h, w in zip(hidden, down, strict=True)])
        return distributed(sums, mesh, [Replicated()])

    shape = (size, size)
    kind = TensorType("float32", shape, mesh.devices[0]) if broadcast else None
    kinds = [
        kind or DistributedTensorType("float32", shape, mesh, [Replicated()]),
        DistributedTensorType("float32", (size, 4 * size), mesh, [Sharded(1)]),
        DistributedTensorType("float32", (4 * size, size), mesh, [Sharded(0)]),
    ]
    return InferenceSession(mesh.devices).load(Graph("mlp", forward, kinds))


def _twin(mesh: Any) -> Any:
    import jax
    from jax.sharding import PartitionSpec as P

    from lamina.engine.inventory import jax_mesh

    def body(x: Any, up: Any, down: Any) -> Any:
        return jax.lax.psum(jax.nn.relu(x @ up) @ down, "tp")

    specs = P(), P(None, "tp"), P("tp", None)
    return jax.jit(jax.shard_map(body, mesh=jax_mesh(mesh), in_specs=specs, out_specs=P(), check_vma=False))


def _mlp(size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import lamina

    mesh = _mesh()
    x, up, down = _weights(size)
    tensors = [lamina.shard(a, mesh, s) for a, s in ((x, []), (up, [None, "tp"]), (down, ["tp"]))]
    arrays = [tensor.jax() for tensor in tensors]
    model, twin = _graph(mesh, size, broadcast=False), _twin(mesh)
    return lambda: model.execute(*tensors), lambda: twin(*arrays)


def _broadcast_mlp(size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    import lamina

    mesh = _mesh()
    x, up, down = _weights(size)
    tensors = [lamina.shard(a, mesh, s) for a, s in ((up, [None, "tp"]), (down, ["tp"]))]
    arrays = [tensor.jax() for tensor in tensors]
    first = jax.device_put(x, jax.devices()[0])
    there = NamedSharding(arrays[0].sharding.mesh, PartitionSpec())
    model, twin = _graph(mesh, size, broadcast=True), _twin(mesh)
    return lambda: model.execute(first, *tensors), lambda: twin(jax.device_put(first, there), *arrays)


def _mlp_of_lists(size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import lamina

    mesh = _mesh()
    x, up, down = _weights(size)
    tensors = [lamina.shard(a, mesh, s) for a, s in ((x, []), (up, [None, "tp"]), (down, ["tp"]))]
    lists, arrays = [tensor.shards for tensor in tensors], [tensor.jax() for tensor in tensors]
    model, twin = _graph(mesh, size, broadcast=False), _twin(mesh)
    return lambda: model.execute(*lists), lambda: twin(*arrays)


def _pipeline(size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import jax

    from lamina import CPU
    from lamina.graph import Graph, InferenceSession, TensorType, ops

    x, up, down = _weights(size)
    homes = jax.devices()[:COUNT]
    weights = [(jax.device_put(up, home), jax.device_put(down, home)) for home in homes]
    first = jax.device_put(x, homes[0])
    kinds = [TensorType("float32", (size, size), CPU(0))]
    for i in range(COUNT):
        kinds += [TensorType("float32", w.shape, CPU(i)) for w in (up, down)]

    def forward(x: Any, *weights: Any) -> Any:
        for i in range(COUNT):
            x = ops.relu(x.to(CPU(i)) @ weights[2 * i]) @ weights[2 * i + 1]
        return x

    model = InferenceSession().load(Graph("pipeline", forward, kinds))
    layer = jax.jit(lambda x, up, down: jax.nn.relu(x @ up) @ down)

    def theirs() -> Any:
        y = first
        for home, (up, down) in zip(homes, weights, strict=True):
            y = layer(jax.device_put(y, home), up, down)
        return y

    flat = [w for pair in weights for w in pair]
    return lambda: model.execute(first, *flat), theirs


def _concurrency(settings: Settings) -> Table:
    """The same work once on one device, twice on one, and once on each of two."""
    import jax
    import numpy as np

    from lamina import CPU
    from lamina.graph import Graph, InferenceSession, TensorType, ops

    size = settings.choose(128, 512, 512)
    x = np.random.default_rng(0).standard_normal((size, size), np.float32) / size**0.5

    def work(x: Any) -> Any:
        for _ in range(8):
            x = ops.call(jax.numpy.sort, x)  # one thread's work, wherever XLA would share a product among all
        return x

    def model(devices: list[Any]) -> Any:
        kinds = [TensorType("float32", x.shape, device) for device in devices]
        loaded = InferenceSession().load(Graph("work", lambda *xs: [work(each) for each in xs], kinds))
        inputs = [jax.device_put(x, jax.devices()[device.id]) for device in devices]
        return lambda: loaded.execute(*inputs)

    ways = {"1 × on 1 device": [CPU(0)], "2 × on 1 device": [CPU(0), CPU(0)], "1 × on each of 2": [CPU(0), CPU(1)]}
    calls = {name: model(devices) for name, devices in ways.items()}
    times = interleaved(calls, settings.choose(2, 9, 15), 1, jax.block_until_ready)
    base = next(iter(times.values()))
    rows = tuple((name, seconds_text(time), number(time / base)) for name, time in times.items())
    return Table("Values on different devices run side by side", ("work", "time", "of the first"), rows)
