"""`lamina.save` and `lamina.load` beside numpy's files, and orbax where it is installed.

Every contestant saves the same sharded arrays of 8 virtual CPU devices to files that are synced to the disk, and loads
them back onto the same devices; the files are in the page cache then, so a load measures the software and not the disk.
numpy writes one file per array without checksums.  Orbax doesn't sync its files, and has no checksums of the data.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import number, seconds_text
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import once, turns


@dataclass(frozen=True)
class Case:
    """So many float32 arrays of this shape, each split by rows over all devices."""

    name: str
    count: int
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        return 4 * self.count * self.shape[0] * self.shape[1]


@dataclass(frozen=True)
class Contestant:
    save: Callable[[Path], Any]
    load: Callable[[Path], Any]


def run(settings: Settings) -> Result:
    cases = (
        Case("one array of 256 MiB", 1, (8192, 8192)),
        Case("64 arrays of 4 MiB", 64, (1024, 1024)),
        Case("500 arrays of 16 KiB", 500, (64, 64)),
    )
    if settings.quick:
        cases = (Case("8 arrays of 1 MiB", 8, (512, 512)),)
    repeats = settings.choose(1, 3, 11)
    with progress("checkpoints", len(cases) * repeats) as done:
        timed = {case: _measure(case, repeats, done) for case in cases}
    return Result(tables=[_table(timed, way) for way in ("save", "load")])


def _measure(case: Case, repeats: int, done: Callable[[int], None]) -> dict[str, dict[str, float]]:
    """The median seconds of each contestant's saves and loads; all of them in each repeat, in another order."""
    contestants = _contestants(case)
    samples: dict[str, dict[str, list[float]]] = {name: {"save": [], "load": []} for name in contestants}
    for repeat in range(-1, repeats):  # the first time doesn't count
        for name, contestant in turns(list(contestants.items()), max(repeat, 0)):
            folder = Path(tempfile.mkdtemp(prefix="lamina-bench-"))
            os.sync()
            seconds = {"save": once(lambda c=contestant, f=folder: c.save(f))}
            seconds["load"] = once(lambda c=contestant, f=folder: c.load(f))
            shutil.rmtree(folder)
            if repeat >= 0:
                for way, value in seconds.items():
                    samples[name][way].append(value)
        done(repeat >= 0)
    return {name: {way: median(values) for way, values in ways.items()} for name, ways in samples.items()}


def _contestants(case: Case) -> dict[str, Contestant]:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import lamina

    mesh = lamina.DeviceMesh.create((8,), ("x",))
    values = np.random.default_rng(0).standard_normal((case.count, *case.shape), dtype="float32")
    tree = {f"layer{i}": lamina.shard(value, mesh, ["x"]) for i, value in enumerate(values)}
    arrays = {name: t.jax() for name, t in tree.items()}
    rows = NamedSharding(next(iter(arrays.values())).sharding.mesh, PartitionSpec("x"))

    def to_numpy(folder: Path) -> None:
        for name, array in arrays.items():
            with open(folder / f"{name}.npy", "wb") as file:
                np.save(file, np.asarray(array))
                file.flush()
                os.fsync(file.fileno())

    def from_numpy(folder: Path) -> None:
        jax.block_until_ready([jax.device_put(np.load(folder / f"{name}.npy"), rows) for name in arrays])

    found = {
        "numpy": Contestant(to_numpy, from_numpy),
        "lamina": Contestant(
            lambda folder: lamina.save(folder, tree), lambda folder: jax.block_until_ready(lamina.load(folder, tree))
        ),
    }
    if find_spec("orbax"):
        found["orbax"] = _orbax(arrays)
    return found


def _orbax(arrays: dict[str, Any]) -> Contestant:
    import jax
    import orbax.checkpoint

    keeper = orbax.checkpoint.StandardCheckpointer()
    like = {name: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for name, a in arrays.items()}

    def save(folder: Path) -> None:
        keeper.save(folder / "step", arrays)
        keeper.wait_until_finished()

    return Contestant(save, lambda folder: jax.block_until_ready(keeper.restore(folder / "step", like)))


def _table(timed: dict[Case, dict[str, dict[str, float]]], way: str) -> Table:
    names = list(next(iter(timed.values())))
    rows = []
    for case, ways in timed.items():
        seconds = {name: ways[name][way] for name in names}
        speed = case.nbytes / seconds["lamina"] / 1e9
        others = [number(seconds["lamina"] / seconds[name]) for name in names if name != "lamina"]
        rows.append((case.name, *(seconds_text(seconds[name]) for name in names), f"{speed:.2g} GB/s", *others))
    ratios = [f"lamina / {name}" for name in names if name != "lamina"]
    what = {"save": "Saving, synced to the disk (orbax: not)", "load": "Loading from the page cache onto 8 devices"}[
        way
    ]
    return Table(what, ("what", *names, "lamina's speed", *ratios), tuple(rows))
