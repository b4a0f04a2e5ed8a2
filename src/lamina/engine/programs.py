"""Compiled programs: one per (source, target), kept in one bounded cache.

A `Transition` says which array becomes which; `lower` is the function on traced arrays (used inside `jax.jit` too), and
`run` calls the compiled program on a concrete array.  On a real mesh the function is the plan's steps under
`shard_map`; on one device it is `whole.convert`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from lamina.engine import compat, crossing, inventory, transfer, watching, whole
from lamina.engine.collectives import run_step
from lamina.engine.links import default_links
from lamina.engine.storage import Storage
from lamina.planning import Plan, Topology, plan
from lamina.planning.pieces import kept_pieces

CACHED_PROGRAMS = 1024


@dataclass(frozen=True)
class Options:
    """How a route is chosen: the bytes that a device may hold on the way, and the links (None: the mesh's own)."""

    memory_limit: float | None = None
    topology: Topology | None = None


DEFAULT = Options()


@dataclass(frozen=True)
class Transition:
    """The same value in another layout of the same mesh.

    1. Same mesh, same shape.
    2. No Partial axis is both resolved and made anew: `primitive.transition` goes through a middle layout for that.
    """

    source: Storage
    target: Storage
    options: Options = DEFAULT

    def __post_init__(self) -> None:
        # Look-ups in the program cache are on the hot path: hash once.
        object.__setattr__(self, "_hash", hash((self.source, self.target, self.options)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def plan(self, itemsize: float) -> Plan:
        links = self.options.topology or default_links(self.source.mesh)
        limit = self.options.memory_limit
        return plan(self.source.layout, self.target.layout, self.source.shape, itemsize, limit, links)

    @property
    def resolved(self) -> tuple[tuple[str, Any], ...]:
        """The Partial axes that are reduced on the way, with their ops."""
        kept = kept_pieces(self.source.layout, self.target.layout)
        return tuple((axis, op) for axis, op in self.source.layout.partial if axis not in kept)

    @property
    def is_linear(self) -> bool:
        return all(op.is_linear for _, op in self.resolved)

    def __str__(self) -> str:
        return f"{self.source.layout} → {self.target.layout}"


@dataclass(frozen=True)
class ShardPermutation:
    """Every device's block goes to another device (pairs of flat mesh indices); the others hold zeros."""

    held: Storage
    pairs: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"ppermute {list(self.pairs)} in {self.held.layout}"


@dataclass(frozen=True)
class Transfer:
    """The same value on another mesh; no Partial axis on either side."""

    source: Storage
    target: Storage

    def __str__(self) -> str:
        return f"{self.source.mesh!r} {self.source.layout} → {self.target.mesh!r} {self.target.layout}"


Action = Transition | ShardPermutation | Transfer


def source_of(action: Action) -> Storage:
    return action.held if isinstance(action, ShardPermutation) else action.source


def target_of(action: Action) -> Storage:
    return action.held if isinstance(action, ShardPermutation) else action.target


def lower(x: Any, action: Action) -> Any:
    """The action on a traced array."""
    if isinstance(action, Transfer):
        return laid_out(whole.convert(x, action.source, action.target), action.target)
    held = source_of(action)
    if not x.size:  # XLA's collectives refuse empty arrays, and there is nothing to move
        return laid_out(jnp.zeros(target_of(action).array_shape, x.dtype), target_of(action))
    if held.is_local:
        if isinstance(action, Transition):
            return whole.convert(x, action.source, action.target)
        return whole.permute_blocks(x, held, action.pairs)
    body = partial(_on_device, action=action)
    specs = held.spec, target_of(action).spec
    return compat.shard_map(body, inventory.jax_mesh(held.mesh), *specs)(x)


def laid_out(x: Any, held: Storage) -> Any:
    """The same array on the devices as `held` says: in JAX's terms, a sharding constraint."""
    return x if held.is_local else jax.lax.with_sharding_constraint(x, held.sharding)


def _on_device(x: Any, action: Transition | ShardPermutation) -> Any:
    """What one device does: from its part of the source array to its part of the target array."""
    held = source_of(action)
    block = x.reshape(x.shape[len(held.lead) :])  # a device holds one piece of each Partial axis
    if isinstance(action, ShardPermutation):
        block = jax.lax.ppermute(block, held.mesh.axis_names, action.pairs)
    else:
        route = action.plan(x.dtype.itemsize)
        for step, layout in zip(route.steps, route.layouts, strict=False):
            block = run_step(step, block, layout, route.shape)
    return block.reshape((1,) * len(target_of(action).lead) + block.shape)


@lru_cache(maxsize=CACHED_PROGRAMS)
def program(action: Action, donate: bool = False) -> Callable[[Any], Any]:
    """The compiled program of an action; JAX specialises it by dtype."""
    return jax.jit(partial(lower, action=action), donate_argnums=(0,) if donate else ())


def run(x: Any, action: Action, donate: bool = False) -> Any:
    """The action on a concrete array."""
    return called(runner(action, donate), x, source_of(action), action)


def called(program: Callable[[Any], Any], x: Any, held: Storage, what: Any = "a local change of layout") -> Any:
    """The program's result.  XLA refuses an array on other devices than `held` says; it is put there first.

    `what` tells the other processes which program this is.
    """
    if watching.current is not None and not compat.is_tracer(x):
        program = partial(watching.run, _ranks(held, what), what, program)
    try:
        return program(x)
    except ValueError:
        if compat.is_tracer(x) or (there := held.home(x)) is x:
            raise
    return program(there)


def _ranks(held: Storage, what: Any) -> tuple[int, ...]:
    """The processes that must run this together."""
    if not isinstance(what, Transfer):
        return watching.ranks_of(held.mesh)
    if held.is_local or what.target.mesh.is_simulated:
        return () if held.is_local else watching.ranks_of(held.mesh)
    return watching.ranks_of(held.mesh, what.target.mesh)


@lru_cache(maxsize=CACHED_PROGRAMS)
def runner(action: Action, donate: bool = False) -> Callable[[Any], Any]:
    """What runs the action fastest on a concrete array: its program, or copies where one memory holds all shards.

    Virtual CPU devices share the process's memory.  Passing blocks on costs a meeting of threads per collective there
    (0.4 – 6 ms for 4 MB on 8 devices and 2 cores), a copy through the host 0.1 – 0.5 ms, and no collective is queued.
    """
    held, target = source_of(action), target_of(action)
    if isinstance(action, Transfer):
        return _carrier(action)
    if donate:
        same = held.array_shape == target.array_shape  # else XLA can't reuse the memory, and JAX would warn
        return partial(_consume, in_turn(program(action, donate=same), held))
    if held.is_local:
        return program(action)
    if isinstance(action, Transition) and _may_be_copied(action):
        if held.is_plain and target.is_plain:
            return lambda x: jax.device_put(x, target.sharding)
        return partial(transfer.repack, source=held, target=target)
    return in_turn(program(action), held)


def _carrier(action: Transfer) -> Callable[[Any], Any]:
    """What carries a value to another mesh.

    In one memory, copies: 8×8 to 2048² float32 from 8 virtual devices took 0.05 – 4.7 ms, and messages 0.1 – 8.9 ms
    (all of one tensor on one device: 13 times as long where it is small, 4 times where it is large).
    """
    source, target = action.source, action.target
    stays = source.is_local and target.is_local and source.mesh.devices[0] == target.mesh.devices[0]
    if not (stays or (_in_one_memory(source) and _in_one_memory(target))):
        return partial(crossing.move, source=source, target=target)
    if source.is_plain and target.is_plain:
        return lambda x: jax.device_put(x, target.sharding)
    return program(action) if stays else partial(transfer.repack, source=source, target=target)


def _consume(run: Callable[[Any], Any], x: Any) -> Any:
    """The result; x is gone, also where its memory couldn't be reused."""
    result = run(x)
    if result is not x and not x.is_deleted():
        x.delete()
    return result


def in_turn(compiled: Callable[[Any], Any], held: Storage) -> Callable[[Any], Any]:
    """The compiled program, with few of its kind in flight where that matters."""
    return (lambda x: queue_guard(compiled(x))) if _GUARDED and not held.is_local else compiled


def _may_be_copied(action: Transition) -> bool:
    """Is it right, and fastest, to leave the plan aside?  Not for who asked for a memory limit."""
    without_pieces = not action.source.lead and not action.target.lead
    return without_pieces and action.options.memory_limit is None and _in_one_memory(action.source)


def _in_one_memory(held: Storage) -> bool:
    devices = [inventory.resolve(device) for device in held.mesh.devices]
    return jax.process_count() == 1 and all(device.platform == "cpu" for device in devices)


# -- the queue of virtual CPU devices ---------------------------------------------------------------------------------

IN_FLIGHT = 4  # 8 programs at most were safe on jax 0.10.2; half of that also leaves room for the user's own
_queued: deque[Any] = deque()


def queue_guard(result: Any) -> Any:
    """Waits until only a few programs with collectives are in flight, where more would deadlock (see `compat`)."""
    if next(iter(result.devices())).platform == "cpu":
        _queued.append(result)
        while len(_queued) > IN_FLIGHT:
            try:
                oldest = _queued.popleft()
            except IndexError:  # other threads have taken the rest
                break
            if not oldest.is_deleted():
                watching.ready(oldest)
    return result


_GUARDED = compat.queue_is_unsafe()


def guarded(result: Any) -> Any:
    """The result of a program with collectives, after a wait if this JAX needs one."""
    return queue_guard(result) if _GUARDED else result
