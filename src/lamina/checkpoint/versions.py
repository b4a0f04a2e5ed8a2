"""The directory of one run's checkpoints: one folder per step, complete or not there.

::

    runs/a/step-00000003/manifest.json          what is in it, with a checksum; written last
    runs/a/step-00000003/arrays/params.w/…      one zarr array per leaf
    runs/a/.saving-00000004/…                   being written, or left behind by a process that died

A step is written under a hidden name, synced, and renamed when all of it is there; it is renamed away before it is
deleted.  So at every moment a folder that is called step-… is a whole checkpoint, whatever dies.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from operator import index
from pathlib import Path
from typing import SupportsIndex

from lamina.checkpoint.durable import sync
from lamina.errors import CheckpointError, with_fix

MANIFEST = "manifest.json"
_STEP = re.compile(r"step-(\d+)")
_SAVING, _DELETED = ".saving-", ".deleted-"

Keep = int | Callable[[Sequence[int]], Iterable[int]] | None


def steps(path: Path) -> list[int]:
    """The steps that are there, in order."""
    if not path.is_dir():
        return []
    found = (_STEP.fullmatch(entry.name) for entry in path.iterdir())
    return sorted(int(match[1]) for match in found if match)


def folder(path: Path, step: int) -> Path:
    return path / f"step-{step:08d}"


def chosen(path: Path, step: int | None) -> Path:
    """The folder of a step, or of the latest one; CheckpointError says which there are."""
    if step is None and (path / MANIFEST).is_file():
        return path  # the folder of a step itself
    there = steps(path)
    if not there:
        what = "there is no such directory" if not path.exists() else "there is no checkpoint in it"
        raise CheckpointError(with_fix(f"{str(path)!r}: {what}", f"lamina.save({str(path)!r}, tree) writes one"))
    if step is None:
        return folder(path, there[-1])
    if step not in there:
        fact = f"{str(path)!r} has no step {step}, only {', '.join(map(str, there))}"
        raise CheckpointError(with_fix(fact, "name one of these, or none for the latest"))
    return folder(path, step)


def checked_step(step: object, op: str = "save") -> int | None:
    if step is None:
        return None
    if isinstance(step, bool) or not isinstance(step, SupportsIndex):
        raise TypeError(f"{op}(step) must be an integer, not {step!r}")
    number = index(step)
    if number < 0:
        raise CheckpointError(with_fix(f"{op}(step={number}): steps count from 0", "give one >= 0"))
    return number


def checked_keep(keep: Keep) -> Keep:
    if keep is None or callable(keep):
        return keep
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        what = "how many steps to keep (>= 1), a function from the steps to those to keep, or None for all"
        raise TypeError(f"save(keep) must be {what}, not {keep!r}")
    return keep


# -- a new step -------------------------------------------------------------------------------------------------------


def begin(path: Path, step: int | None) -> int:
    """Makes the hidden folder of a new step, and clears away what dead processes left; says which step it is."""
    there = steps(path)
    number = step if step is not None else there[-1] + 1 if there else 0
    if number in there:
        fact = f"step {number} is there already: {folder(path, number)}"
        raise CheckpointError(with_fix(fact, "save another step, or delete that folder first"))
    if path.exists() and not path.is_dir():
        raise CheckpointError(with_fix(f"{str(path)!r} is a file", "name a directory; it may be a new one"))
    path.mkdir(parents=True, exist_ok=True)
    sync(path.parent)
    for entry in path.iterdir():
        if entry.name.startswith((_SAVING, _DELETED)):
            shutil.rmtree(entry)
    hidden(path, number).mkdir()
    return number


def hidden(path: Path, step: int) -> Path:
    """Where a step is until all of it is there."""
    return path / f"{_SAVING}{step:08d}"


def publish(path: Path, step: int) -> Path:
    """The step is complete: it gets its name."""
    source, target = hidden(path, step), folder(path, step)
    sync(source)
    os.rename(source, target)
    sync(path)
    return target


def give_up(path: Path, step: int) -> None:
    shutil.rmtree(hidden(path, step), ignore_errors=True)


def prune(path: Path, newest: int, keep: Keep) -> None:
    """Deletes the steps that the policy doesn't keep; never the one just written."""
    if keep is None:
        return
    there = steps(path)
    kept = set(there[-keep:] if isinstance(keep, int) else keep(there)) | {newest}
    for step in there:
        if step not in kept:
            away = path / f"{_DELETED}{step:08d}"
            os.rename(folder(path, step), away)
            shutil.rmtree(away)
