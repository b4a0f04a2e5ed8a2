"""Whether somebody watches: the session of a process that has joined others, and the waits that heed it.

Everything here costs one look at a variable in a program of one process.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax

from lamina.engine import agreement, inventory
from lamina.engine.leaving import SECONDS_TO_LEARN
from lamina.engine.watchdog import Ranks, Session
from lamina.errors import ProcessError
from lamina.sharding import DeviceMesh

current: Session | None = None
checked = False


def watch(session: Session | None) -> None:
    global current, checked
    current, checked = session, agreement.is_wanted()


def starting(ranks: Ranks, what: Any, *arrays: Any) -> None:
    """A program of these processes is about to start: `what` prints alike in each of them, and says what it does.

    ProcessError if another process has failed, or (with LAMINA_CHECK=1) is about to start something else.
    """
    if current is None:
        return
    current.check()
    if len(ranks) < 2 or current.rank not in ranks:
        return
    kinds = tuple((array.dtype.name, array.shape) for array in arrays)
    current.started(ranks, lambda: agreement.words(what, kinds))
    if checked:
        agreement.agree(current, ranks, agreement.words(what, kinds), agreement.secret(what, kinds))


def ready(array: Any) -> Any:
    """The array, computed; ProcessError if a process that it needs fails meanwhile."""
    if current is None:
        return array.block_until_ready()
    ranks = tuple(sorted({device.process_index for device in array.sharding.device_set}))
    if len(ranks) > 1:
        current.wait(ranks, array.is_ready)
    try:
        return array.block_until_ready()
    except jax.errors.JaxRuntimeError as error:  # a connection broke: the hub says whose
        current.learn(SECONDS_TO_LEARN)
        if current.failure is None:
            raise
        current.raised = True
        raise ProcessError(current.message()) from error


@lru_cache(maxsize=1024)
def ranks_of(*meshes: DeviceMesh) -> Ranks:
    """The processes that have devices of these meshes."""
    devices = {device for mesh in meshes for device in mesh.devices}
    return tuple(sorted({inventory.resolve(device).process_index for device in devices}))


def own_positions(mesh: DeviceMesh) -> list[bool]:
    """For each position of the mesh: is its device this process's own?"""
    return [inventory.resolve(device).process_index == jax.process_index() for device in mesh.devices]


def is_whole_here(mesh: DeviceMesh) -> bool:
    """Are all of its devices this process's own?"""
    return jax.process_count() == 1 or ranks_of(mesh) == (jax.process_index(),)


def is_here(mesh: DeviceMesh) -> bool:
    """Are any of its devices this process's own?"""
    return jax.process_count() == 1 or jax.process_index() in ranks_of(mesh)
