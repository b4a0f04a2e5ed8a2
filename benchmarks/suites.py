"""The table of suites: `python -m benchmarks NAME` runs the one of that name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from benchmarks.settings import Result, Settings


@dataclass(frozen=True)
class Suite:
    """A module of this package with `run(settings) -> Result`; `devices` is how many virtual CPU devices it wants.

    0 devices: the suite itself does without JAX (it may start processes that don't).
    """

    what: str
    devices: int = 8
    module: str = ""


SUITES: dict[str, Suite] = {
    "pairs": Suite("bytes of every pair of layouts: plan, XLA, bound", devices=0),
    "planning": Suite("time to plan, cold and cached; time to import", devices=0),
    "rules": Suite("time to choose the way of an op, cold; Python's share of an eager op"),
    "ops": Suite("each op beside the raw JAX program; Python's share"),
    "checkpoint": Suite("save and load beside numpy's files and orbax"),
    "eager": Suite("every reshard of one process beside jax.device_put and jax.jit"),
    "train": Suite("a jitted train step beside the same model in plain jax.jit"),
    "graph": Suite("executing graphs beside the same programs in JAX"),
    "host": Suite("host memory to devices beside one jax.device_put", devices=0, module="benchmarks.host_transfer"),
}


def runner(name: str) -> Callable[[Settings], Result]:
    return import_module(SUITES[name].module or f"benchmarks.{name}").run
