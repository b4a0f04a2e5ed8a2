"""`calibrate`: what a message costs on a real mesh, measured.

Along each axis every device passes a block to its neighbour, first a small one and then larger ones.  The time of the
small one is the axis's latency α; what a larger one takes beyond it, per byte, is 1/β.  The fastest of several runs
counts, since whatever else the machine does can only add to it.

Where several processes share the mesh, an axis that leads from one to another is taken for a link between hosts: what
is measured is the share of one device while all of its process's devices send.  The first process's figures count for
all, so that every process plans the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lamina.engine import compat, inventory
from lamina.engine.storage import Storage, storage
from lamina.errors import LayoutError, with_fix
from lamina.planning import Link, Topology
from lamina.sharding import DeviceMesh, Layout

SMALL, LARGE = 1 << 10, 1 << 22  # elements of a device's block
RUNS = 7


def calibrate(mesh: DeviceMesh, path: str | Path | None = None) -> Topology:
    """The links of a real mesh, measured: latency and bandwidth along each axis, and of copies in memory.

    Takes some seconds.  With a `path` they are saved there; give the Topology, or `Topology.load(path)`, as `topology=`
    to `shard` and `explain`, or set LAMINA_TOPOLOGY to the path, to plan for them.

    >>> import lamina
    >>> links = lamina.calibrate(lamina.DeviceMesh.create((2,), ("x",)))
    >>> links.link("x").latency > 0, links.link("x").bandwidth > 0
    (True, True)
    """
    if mesh.is_abstract or mesh.is_simulated or mesh.is_single:
        fact = f"calibrate(mesh={mesh!r}): between these positions nothing is sent, so there is nothing to measure"
        raise LayoutError(with_fix(fact, "give a mesh over several real devices"))
    axes = {name: _link(mesh, name) for name, size in mesh.axes if size > 1}
    slowest = max(axes.values(), key=lambda link: (1 / link.bandwidth, link.latency))
    copied = _seconds_per_byte(_copy(mesh), mesh)[1]
    measured = Topology(f"calibrated {mesh}", slowest, axes, 2 / copied if copied > 0 else float("inf"))
    agreed = _agreed(measured)
    if path is not None and jax.process_index() == 0:
        agreed.save(path)
    return agreed


def _link(mesh: DeviceMesh, axis: str) -> Link:
    size = mesh.axis_size(axis)
    shift = partial(jax.lax.ppermute, axis_name=axis, perm=[(i, (i + 1) % size) for i in range(size)])
    latency, per_byte = _seconds_per_byte(shift, mesh)
    bandwidth = 1 / max(per_byte, 1e-15)
    processes = inventory.processes_of(mesh)
    if not _leads_to_another_process(processes, mesh.axis_names.index(axis)):
        return Link(latency, bandwidth)
    return Link(latency, bandwidth * mesh.num_devices / len(np.unique(processes)), shared=True)


def _leads_to_another_process(processes: np.ndarray, axis: int) -> bool:
    return bool((processes != processes.take([0], axis)).any())


def _copy(mesh: DeviceMesh) -> Callable[[Any], Any]:
    return lambda block: jnp.flip(block, 0)  # a copy that XLA can't leave out


def _seconds_per_byte(body: Callable[[Any], Any], mesh: DeviceMesh) -> tuple[float, float]:
    """The time of the body on a small block of each device, and what a large one takes beyond it, per byte."""
    small, large = (_fastest(body, _blocks(mesh, size)) for size in (SMALL, LARGE))
    return small, max(large - small, 0.0) / (4 * (LARGE - SMALL))


def _blocks(mesh: DeviceMesh, size: int) -> Storage:
    return storage(mesh, Layout(mesh.axes, [mesh.axis_names]), (size * mesh.num_devices,))


def _fastest(body: Callable[[Any], Any], held: Storage) -> float:
    run = jax.jit(compat.shard_map(body, inventory.jax_mesh(held.mesh), held.spec, held.spec))
    zeros = jax.jit(lambda: jnp.zeros(held.shape, jnp.float32), out_shardings=held.sharding)()
    times = []
    for _ in range(RUNS + 1):  # the first compiles
        jax.block_until_ready(zeros)
        start = time.perf_counter()
        jax.block_until_ready(run(zeros))
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _agreed(measured: Topology) -> Topology:
    """The first process's figures, on every process."""
    if jax.process_count() == 1:
        return measured
    from jax.experimental import multihost_utils

    links = [measured.default, *measured.axes.values()]
    figures = np.array([measured.copy, *(x for link in links for x in (link.latency, link.bandwidth))])
    first = multihost_utils.broadcast_one_to_all(figures.view(np.uint32)).view(np.float64)
    figured = zip(links, first[1:].reshape(-1, 2), strict=True)
    default, *rest = (Link(float(a), float(b), link.shared) for link, (a, b) in figured)
    return Topology(measured.name, default, dict(zip(measured.axes, rest, strict=True)), float(first[0]))
