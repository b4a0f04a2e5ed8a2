"""Whether somebody watches: the session of a process that has joined others, and the waits that heed it.

Everything here costs one look at a variable in a program of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import jax

from lamina.engine import agreement, compat, inventory
from lamina.engine.leaving import SECONDS_TO_LEARN
from lamina.engine.watchdog import Ranks, Session
from lamina.errors import ProcessError
from lamina.sharding import DeviceMesh

current: Session | None = None
checked = False


def watch(session: Session | None) -> None:
    global current, checked
    current, checked = session, agreement.is_wanted()


def run(ranks: Ranks, what: Any, program: Callable[..., Any], *arrays: Any) -> Any:
    """The result of a program of these processes: `what` prints alike in each of them, and says what it does.

    ProcessError if another process has failed, or fails meanwhile; and with LAMINA_CHECK=1, before the program starts,
    if another process is about to start something else.
    """
    if current is None or not starting(ranks, what, *arrays):
        return program(*arrays)
    with _waits(current, ranks):
        return program(*arrays)


def on(mesh: DeviceMesh, what: Any, program: Callable[..., Any], *arrays: Any) -> Any:
    """The result of a program over a mesh, watched; a traced one isn't run here."""
    if current is None or any(map(compat.is_tracer, arrays)):
        return program(*arrays)
    return run(ranks_of(mesh), what, program, *arrays)


def starting(ranks: Ranks, what: Any, *arrays: Any) -> bool:
    """Says that a program starts; False where it is none of several processes, or none of this one's."""
    if current is None:
        return False
    current.check()
    if len(ranks) < 2 or current.rank not in ranks:
        return False
    kinds = tuple(map(_kind, arrays))
    current.started(ranks, lambda: agreement.words(what, kinds))
    if checked:
        agreement.agree(current, ranks, agreement.words(what, kinds), agreement.secret(what, kinds))
    return True


def _kind(x: Any) -> tuple[str, tuple[int, ...]]:
    """Dtype and shape, of a Python number, too."""
    return (x.dtype.name, x.shape) if isinstance(x, jax.Array) else (type(x).__name__, ())


def ready(array: Any) -> Any:
    """The array, computed; ProcessError if a process that it needs fails meanwhile."""
    if current is None:
        return array.block_until_ready()
    ranks = tuple(sorted({device.process_index for device in array.sharding.device_set}))
    if len(ranks) < 2:
        return array.block_until_ready()
    current.wait(ranks, array.is_ready)
    with _waits(current, ranks):
        return array.block_until_ready()


@contextmanager
def _waits(session: Session, ranks: Ranks) -> Iterator[None]:
    """JAX waits for these processes, perhaps.  A connection that breaks becomes the error of the process behind it."""
    try:
        with session.waiting_for(ranks):
            yield
    except jax.errors.JaxRuntimeError as error:
        session.learn(SECONDS_TO_LEARN)
        if session.failure is None:
            raise
        session.raised = True
        raise ProcessError(session.message()) from error


@lru_cache(maxsize=1024)
def ranks_of(*meshes: DeviceMesh) -> Ranks:
    """The processes that have devices of these meshes; a simulated one is this process's own."""
    return tuple(sorted({device.process_index for mesh in meshes for device in _devices(mesh)}))


def _devices(mesh: DeviceMesh) -> list[Any]:
    if mesh.is_simulated:
        return [inventory.player(mesh)] * mesh.num_devices
    return [inventory.resolve(device) for device in mesh.devices]


def own_positions(mesh: DeviceMesh) -> list[bool]:
    """For each position of the mesh: is its device this process's own?"""
    return [device.process_index == jax.process_index() for device in _devices(mesh)]


def is_whole_here(mesh: DeviceMesh) -> bool:
    """Are all of its devices this process's own?"""
    return jax.process_count() == 1 or ranks_of(mesh) == (jax.process_index(),)


def is_here(mesh: DeviceMesh) -> bool:
    """Are any of its devices this process's own?"""
    return jax.process_count() == 1 or jax.process_index() in ranks_of(mesh)
