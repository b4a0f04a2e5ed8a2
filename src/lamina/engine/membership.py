"""Which process of how many this one is: from arguments, from LAMINA_* variables, or as JAX detects a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.engine import compat
from lamina.errors import Problems, ProcessError, with_fix

TIMEOUT = 60.0

VARIABLES = {
    "coordinator": "LAMINA_COORDINATOR",
    "num_processes": "LAMINA_PROCESSES",
    "process_id": "LAMINA_PROCESS",
    "devices_per_process": "LAMINA_DEVICES_PER_PROCESS",
    "local_device_ids": "LAMINA_LOCAL_DEVICES",
    "timeout": "LAMINA_TIMEOUT",
}
NEEDED = ("coordinator", "num_processes", "process_id")


@dataclass(frozen=True)
class Membership:
    """1. 0 ≤ rank < count.  2. The coordinator is host:port.  3. The timeout is above 0."""

    coordinator: str
    count: int
    rank: int
    devices_per_process: int | None = None
    local_device_ids: tuple[int, ...] | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        problems = Problems()
        if not 0 <= self.rank < self.count:
            problems.add(f"process_id={self.rank} of num_processes={self.count}", "number them from 0 on")
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdecimal():
            problems.add(f"coordinator={self.coordinator!r}", "say host:port, the host where process 0 runs")
        if not self.timeout > 0:
            problems.add(f"timeout={self.timeout}", "give seconds, above 0")
        problems.check(ProcessError)

    @property
    def host(self) -> str:
        return self.coordinator.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.coordinator.rpartition(":")[2])


def membership(given: dict[str, Any]) -> Membership | None:
    """What `given` says, then the environment, then JAX's detection; None if nothing says more than one process."""
    known: dict[str, Any] = {name: given.get(name) for name in VARIABLES}
    for name, variable in VARIABLES.items():
        if known[name] is None and variable in os.environ:
            known[name] = _read(variable, READERS[name])
    if None in (known[name] for name in NEEDED):
        known |= {name: value for name, value in compat.detect_cluster().items() if known.get(name) is None}
    missing = [name for name in NEEDED if known[name] is None]
    if len(missing) == len(NEEDED):
        return None
    if missing:
        fact = f"not given and not found: {', '.join(missing)}"
        variables = ", ".join(VARIABLES[name] for name in missing)
        raise ProcessError(with_fix(fact, f"give them as arguments, or set {variables}"))
    ids = known["local_device_ids"]
    return Membership(
        known["coordinator"],
        int(known["num_processes"]),
        int(known["process_id"]),
        known["devices_per_process"],
        None if ids is None else tuple(_ids(ids)),
        TIMEOUT if known["timeout"] is None else float(known["timeout"]),
    )


def _ids(given: int | Sequence[int]) -> Sequence[int]:
    return [given] if isinstance(given, int) else given


READERS: dict[str, Callable[[str], Any]] = {
    "coordinator": str,
    "num_processes": int,
    "process_id": int,
    "devices_per_process": int,
    "local_device_ids": lambda text: tuple(map(int, text.split(","))),
    "timeout": float,
}


def _read(variable: str, reader: Callable[[str], Any]) -> Any:
    text = os.environ[variable]
    try:
        return reader(text)
    except ValueError:
        raise ProcessError(with_fix(f"{variable}={text!r} can't be read", "it must be a number")) from None
