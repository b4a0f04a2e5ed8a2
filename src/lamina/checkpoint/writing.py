"""What a save does, step by step: agree on the tree, write one's own blocks, and give the whole its name."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lamina.checkpoint import tree as trees
from lamina.checkpoint import versions
from lamina.checkpoint.blocks import Part, parts_of
from lamina.checkpoint.durable import sync_file_system
from lamina.checkpoint.leaves import recorded
from lamina.checkpoint.manifest import Manifest
from lamina.checkpoint.progress import progress
from lamina.checkpoint.records import ARRAYS, PYTHON, Record
from lamina.checkpoint.together import Meeting
from lamina.checkpoint.versions import Keep
from lamina.errors import CheckpointError, with_fix
from lamina.tensors import Tensor

IN_FLIGHT_BYTES = 256 << 20  # what is on its way to the disk at once


def prepared(meeting: Meeting, path: Path, tree: Any, step: int | None) -> tuple[Manifest, list[Part]]:
    """The manifest that all processes agree on, and the parts that this one writes."""
    leaves: list[tuple[Record, Any]] = []
    begun: list[int] = []

    def act() -> Any:
        leaves.extend(recorded(tree))
        if meeting.leads:
            begun.append(versions.begin(path, step))
        return {
            "asked": step,
            "step": begun[0] if begun else None,
            "leaves": [_fingerprint(record, leaf) for record, leaf in leaves],
        }

    try:
        said = meeting.together(act)
        records = tuple(record for record, _ in leaves)
        _check_same(said, records)
    except BaseException:
        for number in begun:
            versions.give_up(path, number)
        raise
    manifest = Manifest(said[0]["step"], trees.describe(tree), records, meeting.count)
    return manifest, [part for record, leaf in leaves if record.kind != PYTHON for part in parts_of(record, leaf)]


def _fingerprint(record: Record, leaf: Any) -> int:
    """Equal where the processes save the same; the values of Python leaves are process 0's."""
    entry = record.to_json() | {"value": None}
    devices = [repr(device) for device in leaf.mesh.devices] if isinstance(leaf, Tensor) else None
    return zlib.crc32(json.dumps([entry, devices]).encode())


def _check_same(said: Sequence[Any], records: tuple[Record, ...]) -> None:
    """CheckpointError on all processes where one saves something else than process 0."""
    for rank, words in enumerate(said):
        if words["asked"] != said[0]["asked"]:
            fact = f"process {rank} saves step {words['asked']}, and process 0 step {said[0]['asked']}"
            raise CheckpointError(with_fix(fact, "give the same step on every process"))
        if words["leaves"] == said[0]["leaves"]:
            continue
        fix = "save the same leaves with the same layouts on every process; .numpy() of what each has for itself"
        if len(words["leaves"]) != len(said[0]["leaves"]):
            counts = f"{len(words['leaves'])} leaves, and process 0 {len(said[0]['leaves'])}"
            raise CheckpointError(with_fix(f"process {rank} saves {counts}", fix))
        pairs = zip(words["leaves"], said[0]["leaves"], records, strict=True)
        names = [trees.text(record.name) for mine, theirs, record in pairs if mine != theirs]
        raise CheckpointError(with_fix(f"process {rank} and process 0 don't save the same {', '.join(names)}", fix))


def write(meeting: Meeting, path: Path, manifest: Manifest, parts: Sequence[Part], keep: Keep, watched: bool) -> None:
    """All of the step; afterwards it is on the disk under its name, or nothing of it is."""
    folder = versions.hidden(path, manifest.step)
    try:
        counts = meeting.together(lambda: _write_parts(meeting, folder, manifest, parts, watched))
        meeting.first(lambda: _publish(path, manifest, sum(counts)))
    except BaseException:
        if meeting.leads:
            versions.give_up(path, manifest.step)
        raise
    meeting.first(lambda: versions.prune(path, manifest.step, keep))


def _publish(path: Path, manifest: Manifest, files: int) -> None:
    folder = versions.hidden(path, manifest.step)
    there = sum(file.is_file() and file.name != "zarr.json" for file in (folder / ARRAYS).rglob("*"))
    if there != files:
        fact = f"the processes wrote {files} files, but process 0 sees {there} of them in {folder}"
        raise CheckpointError(with_fix(fact, "save to a file system that all processes share"))
    manifest.write(folder)
    versions.publish(path, manifest.step)


def _write_parts(meeting: Meeting, folder: Path, manifest: Manifest, parts: Sequence[Part], watched: bool) -> int:
    """Writes these, a bounded number of bytes at once, and says how many files they are."""
    pending: deque[tuple[Any, int, Record]] = deque()
    try:
        with progress(f"saving step {manifest.step}", sum(part.nbytes for part in parts) if watched else 0) as done:
            _start_and_finish(meeting, folder, manifest, parts, pending, done)
    finally:  # after a failure nothing may still be written to a folder that will be deleted
        for writing, _, _ in pending:
            with suppress(ValueError, OSError):
                writing.result()
    sync_file_system(folder)
    return sum(part.files for part in parts)


def _start_and_finish(
    meeting: Meeting,
    folder: Path,
    manifest: Manifest,
    parts: Sequence[Part],
    pending: deque,
    done: Callable[[int], None],
) -> None:
    under_way = 0
    if meeting.leads:
        arrays = [record for record in manifest.records if record.kind != PYTHON]
        pending.extend((record.array(folder).create(), 0, record) for record in arrays)
    for part in parts:
        pending.append((part.record.array(folder).write(part.where, part.fetch()), part.nbytes, part.record))
        under_way += part.nbytes
        while under_way > IN_FLIGHT_BYTES:
            size = _finished(*pending.popleft())
            under_way -= size
            done(size)
    while pending:
        done(_finished(*pending.popleft()))


def _finished(writing: Any, size: int, record: Record) -> int:
    try:
        writing.result()
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{trees.text(record.name)} can't be written: {error}") from error
    return size
