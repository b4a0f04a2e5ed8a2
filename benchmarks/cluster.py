"""Starts worker processes, watches them, and ends them by pid, whatever happens: an error, a stall, or Ctrl-C."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compiling import ROOT, environment


class WorkerFailed(Exception):
    """A worker died, or none of them made progress in time."""


@dataclass(frozen=True)
class Place:
    """Where the workers run: what stands before each one's command, and the address that they all meet at."""

    prefixes: tuple[tuple[str, ...], ...]
    address: str


def on_this_host(count: int) -> Place:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return Place(((),) * count, f"127.0.0.1:{port}")


def run_workers(
    module: str,
    job: dict[str, Any],
    place: Place,
    answered: Callable[[list[dict[str, Any]]], None],
    stall_seconds: float,
) -> None:
    """Runs `module` once per prefix on the same job until all have ended.

    Each worker writes one JSON line per case; once all have written the line of a case, `answered` gets these lines.
    WorkerFailed, with the last words of a worker, if one dies or all are silent for `stall_seconds`.
    """
    count = len(place.prefixes)
    with tempfile.TemporaryDirectory(prefix="lamina-bench-") as name, _interruptible():
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job))
        logs = [(folder / f"{number}.log").open("w") for number in range(count)]
        workers: list[subprocess.Popen] = []
        try:
            for number, prefix in enumerate(place.prefixes):
                command = [*prefix, sys.executable, "-m", module, str(number), str(count), place.address, name]
                # An open stdin is the workers' sign that we are alive: they leave when it closes.
                workers.append(
                    subprocess.Popen(
                        command,
                        cwd=ROOT,
                        env=environment(),
                        stdin=subprocess.PIPE,
                        stdout=logs[number],
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
            _watch(workers, folder, answered, stall_seconds)
        finally:
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.wait()
                worker.stdin.close()
            for log in logs:
                log.close()


def _watch(workers: Sequence[subprocess.Popen], folder: Path, answered: Callable, stall_seconds: float) -> None:
    done, last = 0, time.monotonic()
    while True:
        lines = [_complete_lines(folder / f"{number}.jsonl") for number in range(len(workers))]
        for case in range(done, min(map(len, lines))):
            answered([json.loads(own[case]) for own in lines])
            done, last = case + 1, time.monotonic()
        states = [worker.poll() for worker in workers]
        if any(state for state in states):
            number = next(number for number, state in enumerate(states) if state)
            raise WorkerFailed(f"process {number} ended with {states[number]}: {_last_words(folder, number)}")
        if all(state == 0 for state in states) and done == min(map(len, lines)):
            return
        if time.monotonic() - last > stall_seconds:
            behind = min(range(len(workers)), key=lambda number: len(lines[number]))
            words = _last_words(folder, behind)
            raise WorkerFailed(f"no progress for {stall_seconds:.0f} s; process {behind} is behind: {words}")
        time.sleep(0.1)


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_text().split("\n")[:-1]  # what follows the last newline is still being written


def _last_words(folder: Path, number: int) -> str:
    """The error in a worker's log: the last line that looks like one."""
    lines = [line.strip() for line in (folder / f"{number}.log").read_text(errors="replace").splitlines()]
    telling = [line for line in lines if "Error" in line or "F0" in line[:3] or "Check failed" in line]
    return (telling or [line for line in lines if line] or ["it said nothing"])[-1][:500]


class _interruptible:
    """SIGTERM interrupts as Ctrl-C does, so that `finally` clauses run."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGTERM, self._interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self._before)

    @staticmethod
    def _interrupt(*_: object) -> None:
        raise KeyboardInterrupt
