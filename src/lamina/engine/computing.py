"""An op as one program: each operand brought to where the op requires it, then the body on every device.

A `Computation` says everything that the program depends on, and is the key of the bounded program cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax

from lamina.engine import compat, watching
from lamina.engine.local import Body, Fill, copied, differing, on_each_device
from lamina.engine.primitive import transition
from lamina.engine.programs import CACHED_PROGRAMS, queue_guard
from lamina.engine.storage import Storage
from lamina.sharding.placements import ReduceOp


@dataclass(frozen=True)
class Computation:
    """1. `sources`, `required` and the body's operands correspond; None stands for a Python number in both.
    2. All storages are on one mesh.
    """

    name: str
    body: Body
    sources: tuple[Storage | None, ...]
    required: tuple[Storage | None, ...]
    results: tuple[Storage, ...]
    fill: Fill | None = None
    received: float = 0.0  # elements that the body's own collectives make a device receive, on the mean

    def __repr__(self) -> str:
        """The same in every process; the body is told by the op's name."""
        return f"{self.name}: {self.sources} as {self.required} → {self.results}"

    def __str__(self) -> str:
        def layouts(storages: tuple[Storage | None, ...]) -> str:
            return ", ".join("number" if held is None else str(held.layout) for held in storages)

        return f"{self.name}: {layouts(self.sources)} → {layouts(self.results)}"

    @property
    def is_silent(self) -> bool:
        """Does nothing move between devices?"""
        return not self.received and all(
            source is required for source, required in zip(self.sources, self.required, strict=True)
        )


def lower(computation: Computation) -> Callable[..., tuple]:
    """The computation as a function of stored arrays, for JAX to trace."""
    axes = differing((*computation.required, *computation.results))
    spread = tuple(held if held is None or held.is_local else copied(held, axes) for held in computation.required)
    body = on_each_device(computation.body, spread, computation.results, computation.fill)

    def run(*arrays: Any) -> tuple:
        moved = [
            x if source is None or required is None or copies is None else _brought(x, source, required, copies)
            for x, source, required, copies in zip(
                arrays, computation.sources, computation.required, spread, strict=True
            )
        ]
        with jax.named_scope(computation.name):
            return body(*moved)

    return run


def _brought(x: Any, source: Storage, required: Storage, copies: Storage) -> Any:
    """The operand as the body takes it, in one transition: cotangents then need one reduce-scatter on the way back.

    Where it arrives as pieces of an average, though, these must be reduced before the copies are made, which are
    stored like such pieces.
    """
    fresh = set(copies.lead) - set(required.lead)
    if any(source.layout.reduce_op(axis) is ReduceOp.AVG for axis in fresh):
        x, source = transition(x, source, required), required
    return transition(x, source, copies)


@lru_cache(maxsize=CACHED_PROGRAMS)
def computed(computation: Computation) -> Callable[..., tuple]:
    """The compiled program, to be called with concrete arrays or traced ones."""
    compiled = jax.jit(lower(computation))
    mesh = computation.results[0].mesh
    alone = watching.current is None or watching.is_whole_here(mesh)
    unguarded = computation.is_silent or computation.results[0].is_local or not compat.queue_is_unsafe()
    if alone and unguarded:
        return compiled

    def guarded(*arrays: Any) -> tuple:
        found = compiled(*arrays) if alone else watching.on(mesh, computation, compiled, *arrays)
        if not unguarded and not compat.is_tracer(found[0]):
            queue_guard(found[0])
        return found

    return guarded
