"""One of several processes that reshard together, and take the time.  `benchmarks.processes` starts them.

python -m benchmarks.process_worker NUMBER COUNT ADDRESS FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import lamina
from benchmarks.hlo import traffic
from benchmarks.process_tables import OURS, SLOW, THEIRS
from benchmarks.timing import turns
from lamina.planning import Topology
from lamina.sharding import Layout
from lamina.sharding.text import parse_layout


def main() -> None:
    number, count, address, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    job = json.loads((folder / "job.json").read_text())
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", job["devices"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, number, initialization_timeout=60)
    meet = _barrier()
    with (folder / f"{number}.jsonl").open("w") as answers:
        for case in job["cases"]:
            answer = measure(*map(parse_layout, case["layouts"]), tuple(case["shape"]), job, meet)
            print(json.dumps(answer), file=answers, flush=True)
    meet()
    sys.stdout.flush()
    os._exit(0)  # JAX's own shutdown waits for heartbeats; all are here, and all is written


def measure(source: Layout, target: Layout, shape: tuple[int, ...], job: dict[str, Any], meet: Callable) -> dict:
    """The seconds of every repeat of every way; an error's text for a way that can't do it."""
    mesh = lamina.DeviceMesh.create(tuple(source.sizes.values()), tuple(source.sizes))
    topology = calibrated(mesh) if job["topology"] == "calibrated" else job["topology"]
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x = lamina.shard(value, mesh, source.dims)
    programs, ways = _ways(x, mesh, target, {"topology": topology} if topology else {})
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    errors: dict[str, str] = {}
    for way, call in list(ways.items()):
        try:
            _check(jax.block_until_ready(call()), value)
        except Exception as error:  # any: the others still want to be measured
            errors[way] = f"{type(error).__name__}: {error}"[:300]
            del ways[way]
    repeats = job["repeats"]
    _take(ways, seconds, repeats, meet)
    if meet(_is_slow(seconds)) > 0:  # of hundreds of medians of a few repeats some are far off by chance
        for times in seconds.values():
            times.clear()
        _take(ways, seconds, 4 * repeats, meet)
    moved = {way: traffic(program.as_text()) for way, program in programs.items()}
    return {
        "seconds": {way: seconds[way] for way in ways},
        "errors": errors,
        "bytes": {way: one.mean for way, one in moved.items()},
        "kinds": {way: one.kinds for way, one in moved.items()},
        "crossing": {way: one.crossing(job["devices"]) for way, one in moved.items()},
    }


def _take(ways: dict[str, Callable], seconds: dict[str, list[float]], repeats: int, meet: Callable) -> None:
    for repeat in range(repeats):
        for way, call in turns(list(ways.items()), repeat):
            meet()
            start = perf_counter()
            jax.block_until_ready(call())
            seconds[way].append(perf_counter() - start)


def _is_slow(seconds: dict[str, list[float]]) -> bool:
    """Does Lamina look slower than 1.1 times the better of JAX's ways?"""
    medians = {way: median(times) for way, times in seconds.items() if times}
    ours, theirs = ([medians[way] for way in some if way in medians] for some in (OURS, THEIRS))
    return bool(ours and theirs) and max(ours) > SLOW * min(theirs)


@cache
def calibrated(mesh: lamina.DeviceMesh) -> Topology:
    """What a user does once on a cluster."""
    return lamina.calibrate(mesh)


def _ways(x: Any, mesh: Any, target: Layout, keywords: dict[str, Any]) -> tuple[dict, dict[str, Callable]]:
    """The programs that both compile, and the four ways to the target."""
    array = x.jax()
    there = NamedSharding(array.sharding.mesh, PartitionSpec(*(axes or None for axes in target.dims)))
    compiled = jax.jit(lambda a: a, out_shardings=there).lower(array).compile()
    ours = jax.jit(lambda t: lamina.shard(t, mesh, target.dims, **keywords)).lower(x).compile()
    return {"lamina": ours, "jax": compiled}, {
        "lamina": lambda: lamina.shard(x, mesh, target.dims, **keywords).jax(),
        "lamina jitted": lambda: ours(x).jax(),
        "jax.jit": lambda: compiled(array),
        "jax.device_put": lambda: jax.device_put(array, there),
    }


def _check(found: Any, value: np.ndarray) -> None:
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(shard.data, value[shard.index])


def _barrier() -> Callable[..., float]:
    """A program that no process can end before all have started it; it gives the sum of what they say."""
    mesh = jax.make_mesh((jax.device_count(),), ("all",), axis_types=(AxisType.Auto,))
    split, whole = NamedSharding(mesh, PartitionSpec("all")), NamedSharding(mesh, PartitionSpec())
    total = jax.jit(lambda a: a.sum(), out_shardings=whole)

    def saying(what: float) -> Any:
        return jax.make_array_from_callback((jax.device_count(),), split, lambda index: np.full(1, what, np.float32))

    said = {what: saying(what) for what in (False, True)}
    return lambda what=False: float(total(said[what]).addressable_data(0))


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(3)


if __name__ == "__main__":
    main()
