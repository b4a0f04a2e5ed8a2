"""What a save does, step by step: agree on the tree, write one's own blocks, and give the whole its name."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

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
from lamina.engine import inventory
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
            "leaves": [_fingerprints(record, leaf) for record, leaf in leaves],
        }

    try:
        said = meeting.together(act)
        records = tuple(record for record, _ in leaves)
        has_own = _check_same(said, records)
    except BaseException:
        for number in begun:
            versions.give_up(path, number)
        raise
    manifest = Manifest(said[0]["step"], trees.describe(tree), records, meeting.count)
    arrays = [(*pair, own) for pair, own in zip(leaves, has_own, strict=True) if pair[0].kind != PYTHON]
    return manifest, [part for record, leaf, own in arrays for part in parts_of(record, leaf, own)]


def _fingerprints(record: Record, leaf: Any) -> tuple[int, int]:
    """Equal where the processes save the same thing, and where each has it for itself; 0: not for itself, or only so.

    The values of Python leaves are process 0's.
    """
    what = json.dumps(record.to_json() | {"value": None})
    if not isinstance(leaf, Tensor) or leaf.mesh.is_simulated:
        return 0, _crc(what)
    is_own = leaf.mesh.is_single and inventory.player(leaf.mesh).process_index == jax.process_index()
    return _crc(what + repr(leaf.mesh.devices)), _crc(what) if is_own else 0


def _crc(text: str) -> int:
    return zlib.crc32(text.encode()) | 1 << 32  # never 0


def _check_same(said: Sequence[Any], records: tuple[Record, ...]) -> list[bool]:
    """For each leaf: has each process its own?  CheckpointError on all where one saves other things than process 0."""
    fix = "save the same leaves with the same layouts on every process; .numpy() of what each has for itself"
    for rank, words in enumerate(said):
        if words["asked"] != said[0]["asked"]:
            fact = f"process {rank} saves step {words['asked']}, and process 0 step {said[0]['asked']}"
            raise CheckpointError(with_fix(fact, "give the same step on every process"))
        if len(words["leaves"]) != len(said[0]["leaves"]):
            counts = f"{len(words['leaves'])} leaves, and process 0 {len(said[0]['leaves'])}"
            raise CheckpointError(with_fix(f"process {rank} saves {counts}", fix))
    has_own = []
    different: dict[str, None] = {}
    for number, record in enumerate(records):
        shared, own = ({words["leaves"][number][which] for words in said} for which in (0, 1))
        has_own.append(len(own) == 1 and 0 not in own and (len(shared) > 1 or 0 in shared))
        if not has_own[-1] and (len(shared) > 1 or 0 in shared):
            different[trees.text(record.name)] = None
    if different:
        raise CheckpointError(with_fix(f"the processes don't save the same {', '.join(different)}", fix))
    return has_own


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
