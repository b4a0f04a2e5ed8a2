"""What a save does, step by step: agree on the tree, write one's own blocks, and give the whole its name."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lamina.checkpoint import tree as trees
from lamina.checkpoint import versions
from lamina.checkpoint.blocks import Part, parts_of
from lamina.checkpoint.leaves import recorded
from lamina.checkpoint.manifest import Manifest
from lamina.checkpoint.progress import progress
from lamina.checkpoint.records import PYTHON, Record
from lamina.checkpoint.together import Meeting
from lamina.checkpoint.versions import Keep
from lamina.errors import CheckpointError, with_fix
from lamina.tensors import Tensor

IN_FLIGHT_BYTES = 256 << 20  # what is on its way to the disk at once


def prepared(meeting: Meeting, path: Path, tree: Any, step: int | None) -> tuple[Manifest, list[Part]]:
    """The manifest that all processes agree on, and the parts that this one writes."""
    leaves: list[tuple[Record, Any]] = []

    def act() -> Any:
        leaves.extend(recorded(tree))
        number = versions.begin(path, step) if meeting.leads else None
        return {"asked": step, "step": number, "leaves": [_fingerprint(record, leaf) for record, leaf in leaves]}

    said = meeting.together(act)
    records = tuple(record for record, _ in leaves)
    try:
        _check_same(said, records)
    except CheckpointError:
        abandon(meeting, path, said[0]["step"])
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
    try:
        meeting.together(lambda: _write_parts(meeting, versions.hidden(path, manifest.step), manifest, parts, watched))
        meeting.first(lambda: _publish(path, manifest))
    except BaseException:
        abandon(meeting, path, manifest.step)
        raise
    meeting.first(lambda: versions.prune(path, manifest.step, keep))


def abandon(meeting: Meeting, path: Path, step: int) -> None:
    if meeting.leads:
        versions.give_up(path, step)


def _publish(path: Path, manifest: Manifest) -> None:
    manifest.write(versions.hidden(path, manifest.step))
    versions.publish(path, manifest.step)


def _write_parts(meeting: Meeting, folder: Path, manifest: Manifest, parts: Sequence[Part], watched: bool) -> None:
    total = sum(part.nbytes for part in parts)
    with progress(f"saving step {manifest.step}", total if watched else 0) as done:
        pending: deque[tuple[Any, int, Record]] = deque()
        if meeting.leads:
            arrays = [record for record in manifest.records if record.kind != PYTHON]
            pending.extend((record.array(folder).create(), 0, record) for record in arrays)
        for part in parts:
            pending.append((part.record.array(folder).write(part.where, part.fetch()), part.nbytes, part.record))
            while sum(size for _, size, _ in pending) > IN_FLIGHT_BYTES:
                done(_finished(*pending.popleft()))
        while pending:
            done(_finished(*pending.popleft()))


def _finished(writing: Any, size: int, record: Record) -> int:
    try:
        writing.result()
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{trees.text(record.name)} can't be written: {error}") from error
    return size
