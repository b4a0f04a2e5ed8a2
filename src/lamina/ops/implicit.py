"""Implicit communication under control: what an op does when its operands must move before it can run.

`with lamina.on_reshard("warn"):` or `"raise"` says so for the code inside; the default allows it.  Only bytes count: an
operand that is just sliced where it lies moves nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lamina.engine.computing import Computation
from lamina.engine.primitive import route
from lamina.engine.storage import Storage
from lamina.errors import ImplicitReshard, ReshardError, with_fix
from lamina.ops.arguments import described
from lamina.planning import Plan

_POLICIES = ("allow", "warn", "raise")
_policy: ContextVar[str] = ContextVar("lamina_on_reshard", default="allow")


@contextmanager
def on_reshard(policy: str) -> Iterator[None]:
    """What implicit communication does in this block: "allow", "warn" or "raise".

    >>> import numpy as np, lamina
    >>> mesh = lamina.DeviceMesh.simulated((2,), ("x",))
    >>> a, b = lamina.shard(np.ones((4, 4)), mesh, ["x"]), lamina.shard(np.ones((4, 4)), mesh, [None, "x"])
    >>> with lamina.on_reshard("raise"):
    ...     a + b
    Traceback (most recent call last):
    lamina.errors.ReshardError: add moves operand 1, [4, 4] lying as [x=2] -,x: all-to-all ..., 16 B per device
      fix: say it yourself, lamina.shard(operand, mesh, ['x', None]), or allow it: lamina.on_reshard('allow')
    """
    if policy not in _POLICIES:
        raise ValueError(f"on_reshard(policy={policy!r}): it must be one of {', '.join(map(repr, _POLICIES))}")
    token = _policy.set(policy)
    try:
        yield
    finally:
        _policy.reset(token)


def watched() -> bool:
    return _policy.get() != "allow"


def report(computation: Computation, itemsizes: tuple[float, ...]) -> None:
    """Warns of what the computation moves, or refuses it: all operands at once."""
    facts, fixes = [], []
    for i, plans in moving_plans(computation, itemsizes):
        source, required = computation.sources[i], computation.required[i]
        assert source is not None and required is not None
        steps = ", then ".join(str(step) for plan in plans for step in plan.steps)
        total = sum(plan.bytes_received.mean for plan in plans)
        facts.append(f"{computation.name} moves operand {i}, {described(source)}: {steps}, {total:.0f} B per device")
        fixes.append(explicit_call(required))
    if computation.received:
        total = computation.received * max(itemsizes)
        given = [f"operand {i}, {described(held)}" for i, held in enumerate(computation.sources) if held]
        facts.append(
            f"{computation.name} passes entries of a split dim between devices, {total:.0f} B per device: "
            f"{' and '.join(given)}"
        )
        fixes.append("lamina.all_gather(operand, dim)")
    if not facts:
        return
    calls = " and ".join(dict.fromkeys(fixes))
    message = with_fix("\n".join(facts), f"say it yourself, {calls}, or allow it: lamina.on_reshard('allow')")
    if _policy.get() == "raise":
        raise ReshardError(message)
    warnings.warn(message, ImplicitReshard, stacklevel=4)


def moving_plans(computation: Computation, itemsizes: tuple[float, ...]) -> Iterator[tuple[int, list[Plan]]]:
    """For each operand that communicates: its number, and the plans that bring it where it is needed."""
    for i, (source, required) in enumerate(zip(computation.sources, computation.required, strict=True)):
        if source is not None and required is not None and source is not required:
            plans = [step.plan(itemsizes[i]) for step in route(source, required)]
            if any(plan.bytes_received.max for plan in plans):
                yield i, plans


def explicit_call(held: Storage) -> str:
    """The call that brings an operand there."""
    entries = [entry[0] if len(entry) == 1 else entry or None for entry in held.layout.dims]
    partial = {axis: op.value for axis, op in held.layout.partial}
    return f"lamina.shard(operand, mesh, {entries}{f', partial={partial}' if partial else ''})"
