"""Whether somebody watches: the session of a process that has joined others, and the waits that heed it.

Everything here costs one look at a variable in a program of one process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

from lamina.engine import agreement, inventory
from lamina.engine.watchdog import Ranks, Session
from lamina.sharding import DeviceMesh

current: Session | None = None
checked = False


def watch(session: Session | None) -> None:
    global current, checked
    current, checked = session, agreement.is_wanted()


def starting(mesh: DeviceMesh, what: Any, *arrays: Any) -> None:
    """A program over this mesh is about to start: `what` prints alike in every process, and says what it does.

    ProcessError if another process has failed, or (with LAMINA_CHECK=1) is about to start something else.
    """
    if current is None:
        return
    current.check()
    ranks = ranks_of(mesh)
    if len(ranks) < 2 or current.rank not in ranks:
        return
    kinds = tuple((array.dtype.name, array.shape) for array in arrays)
    current.started(ranks, lambda: agreement.words(what, kinds))
    if checked:
        agreement.agree(current, ranks, agreement.words(what, kinds), agreement.secret(what, kinds))


def ready(array: Any) -> Any:
    """The array, computed; ProcessError if a process that it needs fails meanwhile."""
    if current is not None:
        ranks = tuple(sorted({device.process_index for device in array.sharding.device_set}))
        if len(ranks) > 1:
            current.wait(ranks, array.is_ready)
    return array.block_until_ready()


@lru_cache(maxsize=1024)
def ranks_of(mesh: DeviceMesh) -> Ranks:
    """The processes that have devices of this mesh."""
    return tuple(sorted({inventory.resolve(device).process_index for device in set(mesh.devices)}))


def is_whole_here(mesh: DeviceMesh) -> bool:
    """Are all of its devices this process's own?"""
    return jax.process_count() == 1 or ranks_of(mesh) == (jax.process_index(),)


def is_here(mesh: DeviceMesh) -> bool:
    """Are any of its devices this process's own?"""
    return jax.process_count() == 1 or jax.process_index() in ranks_of(mesh)
