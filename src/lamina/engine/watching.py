"""Whether somebody watches: the session of a process that has joined others, and the waits that heed it.

Everything here costs one look at a variable in a program of one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax

from lamina.engine import inventory
from lamina.engine.watchdog import Ranks, Session
from lamina.sharding import DeviceMesh

_session: Session | None = None


def watch(session: Session | None) -> None:
    global _session
    _session = session


def session() -> Session | None:
    return _session


def started(mesh: DeviceMesh, words: Callable[[], str]) -> None:
    """A program over this mesh starts; ProcessError if another process has failed."""
    if _session is not None and len(ranks := ranks_of(mesh)) > 1:
        _session.started(ranks, words)


def ready(array: Any) -> Any:
    """The array, computed; ProcessError if a process that it needs fails meanwhile."""
    if _session is not None:
        ranks = tuple(sorted({device.process_index for device in array.sharding.device_set}))
        if len(ranks) > 1:
            _session.wait(ranks, array.is_ready)
    return array.block_until_ready()


@lru_cache(maxsize=1024)
def ranks_of(mesh: DeviceMesh) -> Ranks:
    """The processes that have devices of this mesh."""
    return tuple(sorted({inventory.resolve(device).process_index for device in set(mesh.devices)}))


def is_here(mesh: DeviceMesh) -> bool:
    """Has this process devices of the mesh?"""
    return _session is None or jax.process_index() in ranks_of(mesh)
