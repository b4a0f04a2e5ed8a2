"""The arrays of a checkpoint on the disk: zarr 3 through tensorstore, the only file that imports it.

Each tile is one file with its CRC-32C behind it, which tensorstore compares whenever it reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lamina.checkpoint.tiles import Tiling
from lamina.errors import CheckpointError, with_fix

# What zarr (as tensorstore writes it) has no name for is stored as the bytes that numpy has of it, one per element.
_BY_BYTE = ("uint2", "uint4", "float8_e4m3", "float4_e2m1fn")


def tensorstore(op: str = "lamina.checkpoint") -> Any:
    """The module; a CheckpointError that says how to install it."""
    try:
        import tensorstore as module
    except ImportError as error:
        fact = f"{op}: checkpoints are written and read by tensorstore, which isn't installed"
        raise CheckpointError(with_fix(fact, "pip install 'lamina[checkpoint]'")) from error
    return module


@dataclass(frozen=True)
class Stored:
    """One leaf's array: the folder that it is in, what its elements are, and how they lie."""

    folder: Path
    dtype: np.dtype
    tiles: Tiling

    @property
    def metadata(self) -> dict[str, Any]:
        """What zarr.json says."""
        byte_order = {"name": "bytes", "configuration": {"endian": "little"}}
        return {
            "shape": self.tiles.array_shape,
            "data_type": _kept_as(self.dtype).name,
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},  # one directory per leaf
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.tiles.chunk_shape}},
            "codecs": [byte_order, {"name": "crc32c"}],
        }

    def create(self) -> Any:
        """Writes zarr.json, a future.  Only other readers of zarr need it: we know what is in it."""
        return self._open(create=True)

    def write(self, where: tuple[slice, ...], block: np.ndarray) -> Any:
        """Writes a block; the future is done when its files are written.  Until then, nobody may change it."""
        block = block.view(_kept_as(self.dtype)) if block.dtype != _kept_as(self.dtype) else block
        array = self._open(open=True, assume_metadata=True, store_data_equal_to_fill_value=True).result()
        return array[where].write(block, can_reference_source_data_indefinitely=True).commit

    def read(self, where: tuple[slice, ...]) -> Any:
        """Starts to read; `finished` waits for it."""
        return self._open(open=True, assume_metadata=True, fill_missing_data_reads=False).result()[where].read()

    def finished(self, reading: Any) -> np.ndarray:
        """What was read; CheckpointError names the file that is damaged."""
        try:
            return reading.result().view(self.dtype)
        except ValueError as error:
            raise CheckpointError(_damage(str(error), self.folder)) from error

    def _open(self, **options: Any) -> Any:
        module = tensorstore()
        kvstore = {"driver": "file", "path": f"{self.folder}/"}
        spec = {"driver": "zarr3", "kvstore": kvstore, "metadata": self.metadata, **options}
        return module.open(spec, context=_context())


@lru_cache(maxsize=1)
def _context() -> Any:
    """No cache, no locks, no syncs: each tile is written once, by one process, and synced with the others."""
    settings = {"cache_pool": {"total_bytes_limit": 0}, "file_io_locking": {"mode": "none"}, "file_io_sync": False}
    return tensorstore().Context(settings)


def _kept_as(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.uint8) if dtype.name in _BY_BYTE else dtype


def _damage(message: str, folder: Path) -> str:
    """tensorstore's message in our words."""
    named = re.search(r'local file "([^"]+)"', message)
    file = named[1] if named else str(folder)
    if "is missing" in message:
        return f"the file {file} is missing"
    if "Digest mismatch" in message:
        return f"the file {file} is corrupted: its checksum doesn't match its bytes"
    if "Not enough data" in message or "Unexpected end" in message:
        return f"the file {file} is truncated"
    return f"the file {file} can't be read: {message.partition(' [')[0]}"
