"""Host memory to devices: `to_device`, `shard`, `shard_and_stack` beside one plain `jax.device_put` of the same bytes.

    python -m benchmarks host                              with the settings that Lamina ships
    python -m benchmarks.host_transfer                     the same, printed only
    python -m benchmarks.host_transfer --sweep             every chunk size with every number in flight
    python -m benchmarks.host_transfer --mb 256,1024 --chunk-mb 4,8,16 --in-flight 16,32,64 --repeats 5

On an accelerator the mesh has all of them (one is enough); without one, 8 virtual CPU devices.  Bandwidth is the bytes
of the inputs over the median of interleaved repeats, waiting included.  Host memory is the rise of the process's
peak while a call runs, over the inputs that are there; on CPU devices it holds what arrives, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.figures import bytes_text, number
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved

PLAIN = "jax.device_put"
STACKED = 4  # inputs of shard_and_stack
TARGETS = {True: 3.0, False: 0.9}  # on an accelerator, on CPU devices


@dataclass(frozen=True)
class Asked:
    """What is measured: sizes in MB (10⁶ bytes), and the flows to try: (chunk in MB, chunks in flight)."""

    sizes: tuple[int, ...] = (256, 512, 1024)
    flows: tuple[tuple[float, int], ...] = ()
    repeats: int = 5


def run(settings: Settings) -> Result:
    sizes = settings.choose((16,), (256, 1024), (256, 512, 1024))
    return measure(Asked(sizes, repeats=settings.choose(2, 5, 9)))


def measure(asked: Asked) -> Result:
    from lamina.engine.pipeline import Flow

    _use_devices()
    usual = Flow()
    flows = asked.flows or ((usual.chunk_bytes / 2**20, usual.in_flight),)
    result, rows = Result(), []
    ratios: dict[str, float] = {}
    for size in asked.sizes:
        for flow in flows:
            for name, bandwidth, ratio, held in _at(size, flow, asked.repeats):
                rows.append((f"{size} MB", f"{number(flow[0])} MiB × {flow[1]}", name, *bandwidth, ratio, held))
                if name != PLAIN:
                    ratios[name] = min(ratios.get(name, float(ratio)), float(ratio))
    columns = ("input", "chunks", "call", "GB/s", "over plain", "host memory")
    result.tables = [Table(f"Host memory to {_where()}", columns, tuple(rows), "float32; medians; plain is one array.")]
    if len(flows) == 1:
        target = TARGETS[_accelerated()]
        for name, worst in ratios.items():
            what = f"{name} over plain jax.device_put, host memory to {_where()}"
            result.limit(what, f"≥ {target}", number(worst), worst >= target)
    return result


def _at(size: int, flow: tuple[float, int], repeats: int) -> list[tuple[str, tuple[str], str, str]]:
    """Each call at one size: name, GB/s, times the plain one's bandwidth, host memory above the inputs."""
    import jax

    from lamina.engine.pipeline import flowing

    calls = _calls(size)
    nbytes = size * 10**6 // 2**20 * 2**20
    with flowing(chunk_bytes=int(flow[0] * 2**20), in_flight=flow[1]):
        seconds = interleaved(calls, repeats, 1, jax.block_until_ready)
        held = {name: _peak_above(call) for name, call in calls.items()}
    return [
        (name, (number(nbytes / time / 1e9),), f"{seconds[PLAIN] / time:.2f}", bytes_text(held[name]))
        for name, time in seconds.items()
    ]


def _calls(size: int) -> dict[str, Callable[[], Any]]:
    """Every way, on inputs of the same bytes; each result is checked once."""
    import jax
    import numpy as np

    import lamina

    mesh = lamina.DeviceMesh.create((len(jax.devices()),), ("x",))
    rows = size * 10**6 // 2**20
    value = np.random.default_rng(0).random((rows * 8, 2**15), np.float32)  # 8 rows are 1 MiB
    inputs = list(value.reshape(STACKED, -1, 2**15)) if rows % STACKED == 0 else [value]
    inputs = [part[: len(part) // mesh.num_devices * mesh.num_devices] for part in inputs]
    device, home = mesh.devices[0], jax.devices()[0]
    calls = {
        PLAIN: lambda: jax.device_put(value, home),
        "to_device": lambda: lamina.to_device(value, device),
        "shard rows": lambda: lamina.shard(value, mesh, ["x"]),
        "shard columns": lambda: lamina.shard(value, mesh, [None, "x"]),
        "to_device, columns of a larger array": lambda: lamina.to_device(value[:, : 2**14], device),
        "shard_and_stack": _stacked(inputs, mesh.devices, 0),
        "shard_and_stack, axis 1": _stacked(inputs, mesh.devices, 1),
    }
    _check(calls, value, inputs)
    del calls["to_device, columns of a larger array"]  # it moves half of the bytes: checked, not compared
    return calls


def _stacked(inputs: list[Any], devices: Any, axis: int) -> Callable[[], Any]:
    """The op of graphs, run as a model that loads weights would."""
    from lamina.graph import DeviceRef, Graph, InferenceSession, TensorType, ops

    kinds = [TensorType("float32", part.shape, DeviceRef.CPU(0)) for part in inputs]
    graph = Graph("load", lambda *parts: ops.shard_and_stack(parts, devices, axis), kinds)
    model = InferenceSession().load(graph)
    return lambda: model.execute(*inputs)


def _check(calls: dict[str, Callable[[], Any]], value: Any, inputs: list[Any]) -> None:
    import numpy as np

    for name, call in calls.items():
        found = call()
        if isinstance(found, list):
            joined = np.concatenate([np.asarray(array) for array in found], 2 if "axis 1" in name else 1)
            np.testing.assert_array_equal(joined, np.stack(inputs))
        else:
            np.testing.assert_array_equal(np.asarray(found), value[:, : found.shape[1]])


def _peak_above(call: Callable[[], Any]) -> int:
    """The rise of this process's peak resident memory over what it holds now."""
    import jax

    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    except OSError:
        return 0
    before = _memory("VmRSS")
    jax.block_until_ready(call())
    return max(0, _memory("VmHWM") - before)


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def _use_devices() -> None:
    import jax

    jax.config.update("jax_num_cpu_devices", 8)


def _accelerated() -> bool:
    import lamina

    return lamina.accelerator_count() > 0


def _where() -> str:
    import jax

    devices = jax.devices()
    return f"{len(devices)} × {devices[0].device_kind}"


def main() -> None:
    from benchmarks.show import show

    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_transfer", description=__doc__)
    parser.add_argument("--mb", default="256,512,1024", help="sizes of the input")
    parser.add_argument("--chunk-mb", default="", help="chunk sizes in MiB to try")
    parser.add_argument("--in-flight", default="", help="numbers of chunks in flight to try")
    parser.add_argument("--sweep", action="store_true", help="2 to 32 MiB with 8 to 64 in flight")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    chunks, flights = options.chunk_mb, options.in_flight
    if options.sweep:
        chunks, flights = chunks or "2,4,8,16,32", flights or "8,16,32,64"
    flows = ()
    if chunks or flights:
        flows = tuple(product(map(float, (chunks or "8").split(",")), map(int, (flights or "32").split(","))))
    show("host", measure(Asked(tuple(map(int, options.mb.split(","))), flows, options.repeats)))


if __name__ == "__main__":
    main()
