"""`load` and `latest`: a saved tree again, each leaf where it is asked for."""

from __future__ import annotations

from collections import deque
from os import PathLike
from pathlib import Path
from typing import Any

from lamina.checkpoint import matching, versions
from lamina.checkpoint import tree as trees
from lamina.checkpoint.arrays import tensorstore
from lamina.checkpoint.leaves import listed
from lamina.checkpoint.manifest import Manifest
from lamina.checkpoint.progress import progress
from lamina.checkpoint.targets import Finish
from lamina.checkpoint.together import Meeting
from lamina.errors import CheckpointError, Problems, explained, fact_and_fix, with_fix

IN_FLIGHT_BYTES = 512 << 20  # what is read ahead of what is already on its devices


def load(path: str | PathLike[str], like: Any = None, *, step: int | None = None) -> Any:
    """The tree that was saved as a step of the directory `path` (default: the latest), or a part of it.

    `like` says what is wanted, and where, as a tree with the names of the saved one.  Where it has a Tensor, a
    jax.Array, a jax.ShapeDtypeStruct, a numpy array, a TensorLayout or a Python value, the loaded leaf is such a one,
    of the same shape, dtype and layout.  Where it has a mapping, a Device or a jax Sharding, everything below that name
    lies so.  Names that `like` doesn't have aren't read.  Without `like`, all of it comes to the host, as numpy arrays
    in dicts, lists and tuples.

    The mesh, the layout and the number of processes may differ from those of the save: each device reads just the
    tiles of the files that its own block needs.  Pieces of a Partial tensor stay as they are if the axes of the mesh
    and the axis's op are the same, and are reduced otherwise.  Every process must call it.

    >>> import numpy as np, lamina, tempfile
    >>> run, mesh = tempfile.mkdtemp(), lamina.DeviceMesh.create((2, 4), ("dp", "tp"))
    >>> params = {"w": lamina.shard(np.arange(12.0).reshape(3, 4), mesh, ["dp", "tp"]), "step": 3}
    >>> _ = lamina.save(run, params)
    >>> lamina.load(run, params)["w"].sharding
    NamedMapping('[dp=2,tp=4] dp,tp')
    >>> lamina.load(run, lamina.NamedMapping(lamina.DeviceMesh.create((3,), ("x",)), ["x"]))["w"].shards[2]
    Array([[ 8.,  9., 10., 11.]], dtype=float32)
    >>> lamina.load(run)["step"]
    3
    """
    tensorstore("load")
    step, directory, what = versions.checked_step(step, "load"), Path(path).absolute(), f"load({str(path)!r})"
    meeting = Meeting(what)
    with explained(what):
        folder = Path(meeting.first(lambda: str(versions.chosen(directory, step))))
        return meeting.alike(lambda: _load(folder, like))


def latest(path: str | PathLike[str]) -> int | None:
    """The latest step in a directory of checkpoints; None where there is none yet.

    >>> import lamina, tempfile
    >>> run = tempfile.mkdtemp()
    >>> before, _ = lamina.latest(run), lamina.save(run, {"a": 1}, step=7)
    >>> before, lamina.latest(run)
    (None, 7)
    """
    there = versions.steps(Path(path))
    return there[-1] if there else None


def _load(folder: Path, like: Any) -> Any:
    try:
        manifest = Manifest.read(folder)
    except CheckpointError as error:
        fact, fix = fact_and_fix(error)
        raise CheckpointError(with_fix(fact, fix or _another_step(folder))) from error.__cause__
    wanted, rebuild = matching.as_saved(manifest) if like is None else matching.like(manifest, like)
    values: dict[int, Any] = {}
    pending: deque[int] = deque()
    finishers: dict[int, Finish] = {}
    ahead, problems = 0, Problems()

    def finish(number: int) -> int:
        record = manifest.records[number]
        try:
            values[number] = finishers.pop(number)()
        except CheckpointError as error:
            fact, fix = fact_and_fix(error)
            problems.add(f"{trees.text(record.name)}: {fact}", fix or _another_step(folder))
        return record.nbytes

    total = sum(manifest.records[number].nbytes for number in wanted)
    with progress(f"loading {folder.name}", total) as done:
        for number, target in wanted.items():
            finishers[number] = target.start(folder, manifest.records[number])
            pending.append(number)
            ahead += manifest.records[number].nbytes
            while ahead > IN_FLIGHT_BYTES:
                read = finish(pending.popleft())
                ahead -= read
                done(read)
        while pending:
            done(finish(pending.popleft()))
    listed(problems)
    return rebuild(values)


def _another_step(folder: Path) -> str:
    """What may still help when this step is damaged."""
    others = [step for step in versions.steps(folder.parent) if versions.folder(folder.parent, step) != folder]
    return f"load step {others[-1]}, the latest one beside it" if others else ""
