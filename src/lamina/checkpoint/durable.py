"""Written means on the disk: what a crash of the machine leaves, too.

A checkpoint is many files, and `fsync` of each waits for the file system's journal: 5 ms apiece on a busy ext4, for
every directory again.  So files are written without, and one `syncfs` flushes them all.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


def sync_file_system(directory: Path) -> None:
    """Everything that was written to the file system of this directory is on the disk."""
    try:
        syncfs = ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):  # not Linux: all file systems at once
        os.sync()
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        if syncfs(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(handle)


def write_synced(file: Path, text: str) -> None:
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def sync(directory: Path) -> None:
    """The names in this directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
