"""python -m tests.checkpoint.worker STARTER RANK COUNT PORT PATH SCENARIO…: one of several that save together.

The starter is what joins them: `lamina` (lamina.initialize) or `jax` (jax.distributed alone).

Each scenario is a function below; what it returns is printed as one line: said, and JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import lamina
from lamina.checkpoint.arrays import Stored
from lamina.engine import watching
from tests.strategies import values

SHAPES = {"even": (8, 8), "uneven": (7, 10), "empty rows": (1, 5)}


def mesh() -> lamina.DeviceMesh:
    """All devices of all processes."""
    return lamina.DeviceMesh.create((2, jax.device_count() // 2), ("x", "y"))


def tree() -> dict[str, Any]:
    m = mesh()
    split = {name: lamina.shard(values(shape), m, ["x", "y"]) for name, shape in SHAPES.items()}
    rows = {f"{name} rows": lamina.shard(values(shape), m, [("y", "x")]) for name, shape in SHAPES.items()}
    copies = lamina.shard(values((3, 3)), m, [])
    pieces = lamina.shard(values((5, 4)), m, ["y"], partial=["x"])
    other = {
        "host": np.arange(4),
        "local": jax.numpy.arange(3),
        "own": lamina.tensor([1.0, 2.0]),
        "simulated": simulated(),
        "one": one(),
        "step": 7,
        "key": jax.random.key(1),
    }
    return {"split": split, "rows": rows, "copies": copies, "pieces": pieces, **other}


def simulated() -> lamina.Tensor:
    return lamina.shard(values((5,)), lamina.DeviceMesh.simulated((2,), ("x",)), ["x"])


def one() -> lamina.Tensor:
    """On one device, which is the last process's, as all of them know."""
    last = lamina.DeviceMesh.single(lamina.CPU(jax.device_count() - 1))
    return lamina.shard(values((3,)), last, [])


def holds(t: lamina.Tensor, value: np.ndarray) -> bool:
    """Do this process's devices hold just their blocks of the value (the first pieces, of a Partial tensor)?"""
    held = t._held
    mine = {shard.device: np.asarray(shard.data) for shard in t._array.addressable_shards}
    for device, where in zip(held.mesh.devices, held.layout.positions(), strict=True):
        real = jax.devices("cpu")[device.id]
        if real.process_index == jax.process_index():
            box = tuple(slice(*part) for part in held.layout.block(held.shape, where))
            wanted = value[box] * (held.layout.keeps_the_value(where) is None)
            found = mine[real][(0,) * len(held.lead)][tuple(slice(0, size) for size in wanted.shape)]
            if not np.array_equal(found, wanted):
                return False
    return True


class Recorded:
    """What this process writes or reads, as [folder, [start, stop] of each dim] entries."""

    def __init__(self, method: str):
        self.method, self.plain, self.entries = method, getattr(Stored, method), []

    def __enter__(self) -> list[Any]:
        def call(stored: Stored, where: Any, *given: Any) -> Any:
            self.entries.append([stored.folder.name, [[part.start, part.stop] for part in where]])
            return self.plain(stored, where, *given)

        setattr(Stored, self.method, call)
        return self.entries

    def __exit__(self, *_: object) -> None:
        setattr(Stored, self.method, self.plain)


# -- scenarios --------------------------------------------------------------------------------------------------------


def save(path: Path) -> Any:
    with Recorded("write") as written:
        lamina.save(path, tree(), step=1)
    return written


def reload(path: Path) -> Any:
    """What was saved (by whomever), in the same layouts and in others."""
    like = tree()
    with Recorded("read") as read:
        same = lamina.load(path, like)
    good = all(holds(same["split"][name], values(shape)) for name, shape in SHAPES.items())
    good &= all(
        holds(same["rows"][name], values(shape)) for shape, name in zip(SHAPES.values(), like["rows"], strict=True)
    )
    good &= holds(same["copies"], values((3, 3))) and holds(same["pieces"], values((5, 4)))
    good &= same["own"].tolist() == [1.0, 2.0] and same["simulated"].tolist() == list(range(5))
    good &= jax.process_index() != jax.process_count() - 1 or same["one"].tolist() == [0, 1, 2]
    good &= same["host"].tolist() == [0, 1, 2, 3] and same["local"].tolist() == [0, 1, 2] and same["step"] == 7
    for spec in (["y", "x"], [None, ("x", "y")], [("x", "y")], []):
        mapping = lamina.NamedMapping(mesh(), spec)
        found = lamina.load(path, {"split": mapping, "pieces": mapping})
        good &= holds(found["pieces"], values((5, 4)))
        good &= all(holds(found["split"][name], values(shape)) for name, shape in SHAPES.items())
    return [good, read]


def backgrounds(path: Path) -> Any:
    x = lamina.shard(values((8, 8)), mesh(), ["x", "y"])
    for step in (1, 2, 3):
        saving = lamina.save(path, {"x": x}, step=step, keep=2, wait=False)
        x = lamina.shard(x, x.mesh, ["x", "y"] if step % 2 == 0 else ["y", "x"], donate=True)
    saving.wait()
    found = lamina.load(path, {"x": x}, step=2)["x"]
    return [lamina.latest(path), holds(found, values((8, 8)))]


def differ(path: Path) -> Any:
    rank = jax.process_index()
    said = []
    for step, wrong in (
        (1, {"a": np.zeros(3 + rank), "b": np.ones(2)}),
        (1, {"a": np.zeros(3)} if rank else {}),
        (1 + rank, {"a": np.zeros(3)}),
        (1, {"a": object() if rank else 3}),
    ):
        try:
            lamina.save(path, wrong, step=step)
            said.append("nothing")
        except lamina.CheckpointError as error:
            said.append(str(error))
    return said, os.listdir(path)


def fails(path: Path) -> Any:
    """One process can't write; afterwards, one can't read."""
    lamina.save(path, tree(), step=1)
    plain = Stored.write

    def full(*_: Any) -> Any:
        raise ValueError("No space left on device")

    if jax.process_index() == 1:
        Stored.write = full  # type: ignore[method-assign]
    said = []
    for wait in (True, False):
        try:
            lamina.save(path, tree(), step=2, wait=wait).wait()
        except ValueError as error:
            said.append(str(error))
    Stored.write = plain  # type: ignore[method-assign]
    file = path / "step-00000001" / "arrays" / "split.even" / "c.1.1"  # process 1's
    content = file.read_bytes()
    lamina.save(path.parent / f"{path.name} meeting", 0)  # nobody damages what another one reads
    if jax.process_index() == 1:
        file.write_bytes(content[:-1])
    lamina.save(path.parent / f"{path.name} meeting", 0)
    try:
        lamina.load(path, {"split": {"even": tree()["split"]["even"]}})
    except lamina.CheckpointError as error:
        said.append(str(error))
    return said, sorted(os.listdir(path))


def killed(path: Path) -> Any:
    """Process 1 dies in the middle of writing; process 0 says so within the time that it waits."""
    lamina.save(path, tree(), step=1)
    plain, count = Stored.write, iter(range(100))

    def dying(*given: Any) -> Any:
        if next(count) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*given)

    if jax.process_index() == 1:
        Stored.write = dying  # type: ignore[method-assign]
    if watching.current is None:  # nobody watches: only the time tells
        os.environ["LAMINA_CHECKPOINT_TIMEOUT"] = "2"
    try:
        lamina.save(path, tree(), step=2)
    except lamina.LaminaError as error:
        return type(error).__name__, str(error), sorted(os.listdir(path))
    return "nothing", []


SCENARIOS = {name: globals()[name] for name in ("save", "reload", "backgrounds", "differ", "fails", "killed")}


def main(starter: str, rank: str, count: str, port: str, path: str, *scenarios: str) -> None:
    devices = 4 // int(count)
    jax.config.update("jax_platforms", "cpu")
    if starter == "lamina" and int(count) > 1:
        lamina.initialize(f"127.0.0.1:{port}", int(count), int(rank), devices_per_process=devices)
    else:
        jax.config.update("jax_num_cpu_devices", devices)
    if starter == "jax":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(rank))
    for scenario in scenarios:
        folder = Path(path) / scenario.partition(":")[2] if ":" in scenario else Path(path) / scenario
        folder.mkdir(exist_ok=True)
        print("said", json.dumps(SCENARIOS[scenario.partition(":")[0]](folder)), flush=True)
    if "killed" in scenarios:
        os._exit(0)  # JAX's own farewell would wait for the one who died


if __name__ == "__main__":
    main(*sys.argv[1:])
