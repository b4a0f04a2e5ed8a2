"""The manifest of one step: what is in it, as JSON with a checksum over its canonical text."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina.checkpoint.durable import write_synced
from lamina.checkpoint.records import Record
from lamina.checkpoint.versions import MANIFEST
from lamina.errors import CheckpointError, with_fix

FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The step, the containers of the tree (see `tree.describe`), and every leaf."""

    step: int
    containers: Any
    records: tuple[Record, ...]
    processes: int = 1

    def write(self, folder: Path) -> None:
        body = {
            "step": self.step,
            "processes": self.processes,
            "containers": self.containers,
            "leaves": [record.to_json() for record in self.records],
        }
        document = {"lamina checkpoint": FORMAT, "crc32": _checksum(body), "body": body}
        write_synced(folder / MANIFEST, json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def read(folder: Path) -> Manifest:
        file = folder / MANIFEST
        document = _document(file)
        version = document.get("lamina checkpoint")
        if version != FORMAT:
            fact = f"{file} is in format {version}, and this version of Lamina reads format {FORMAT}"
            raise CheckpointError(with_fix(fact, "use the version of Lamina that wrote it, or a newer one"))
        body = document.get("body")
        if not isinstance(body, dict) or document.get("crc32") != _checksum(body):
            raise CheckpointError(f"the file {file} is corrupted: its checksum doesn't match its text")
        records = tuple(Record.from_json(entry) for entry in body["leaves"])
        return Manifest(body["step"], body["containers"], records, body["processes"])


def _checksum(body: Any) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(canonical.encode()):08x}"


def _document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"the file {file} is missing") from error
    except ValueError as error:  # no JSON, no UTF-8
        raise CheckpointError(f"the file {file} is corrupted or truncated: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"the file {file} is corrupted: it holds no manifest")
    return document
