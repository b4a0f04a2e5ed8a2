"""Compiles reshards in worker processes that may die: a death is an answer too, and the next job gets a new process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamina.sharding import Layout

ROOT = Path(__file__).parent.parent
SECONDS_FOR_ONE = 120
WARNING = "Involuntary full rematerialization"


@dataclass(frozen=True)
class Job:
    """One reshard to compile, by `jax` or by `lamina`, for so many devices as the layouts' mesh has."""

    who: str
    source: Layout
    target: Layout
    shape: tuple[int, ...]
    topology: str = "bytes"

    def line(self) -> str:
        layouts = [str(self.source), str(self.target)]
        return json.dumps({"who": self.who, "layouts": layouts, "shape": self.shape, "topology": self.topology})


@dataclass(frozen=True)
class Answer:
    """What the program makes a device receive, or, if the process died of it, its last words."""

    mean: float = 0.0
    max: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    memory: int = 0
    rematerialised: bool = False
    crash: str | None = None


class Compiler:
    """One worker process, started when needed and again after a death; close it in the end."""

    def __init__(self, devices: int):
        self.devices = devices
        self._process: subprocess.Popen | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it lives as long as the worker)
        self._read = 0

    def ask(self, job: Job) -> Answer:
        process = self._process or self._start()
        try:
            process.stdin.write(job.line() + "\n")
            process.stdin.flush()
            answer = self._answer(process)
        except (BrokenPipeError, EOFError, TimeoutError) as error:
            self._stop()
            return Answer(crash=_last_words(self._new_log()) or str(error), rematerialised=False)
        return Answer(**answer, rematerialised=WARNING in self._new_log())

    def _start(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "benchmarks.compile_worker", str(self.devices)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        return self._process

    def _answer(self, process: subprocess.Popen) -> dict[str, Any]:
        ready, _, _ = select.select([process.stdout], [], [], SECONDS_FOR_ONE)
        if not ready:
            raise TimeoutError(f"no answer in {SECONDS_FOR_ONE} s")
        line = process.stdout.readline()
        if not line:
            raise EOFError("the process ended without a word")
        return json.loads(line)

    def _new_log(self) -> str:
        """What the worker has written to its stderr since the last look."""
        size = os.fstat(self._log.fileno()).st_size
        new = os.pread(self._log.fileno(), size - self._read, self._read)
        self._read = size
        return new.decode(errors="replace")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        self._stop()
        self._log.close()


def compile_all(jobs: Sequence[Job], workers: int, answered: Callable[[Job, Answer], None]) -> list[Answer]:
    """The answers to all jobs, in their order; `answered` is called after each."""
    answers: list[Answer | None] = [None] * len(jobs)

    def work(first: int) -> None:
        compiler = Compiler(jobs[first].source.num_devices)
        try:
            for number in range(first, len(jobs), workers):
                answer = answers[number] = compiler.ask(jobs[number])
                answered(jobs[number], answer)
        finally:
            compiler.close()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(min(workers, len(jobs)))))
    return answers  # type: ignore[return-value]


def environment() -> dict[str, str]:
    """For a child that has to import what this process imports."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _last_words(log: str) -> str:
    """The line that says why: XLA's check failure, or Python's exception, if there is one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for telling in ("Check failed", "F0", "Error: ", "rror"):
        if found := [line for line in lines if telling in line]:
            return found[-1][:300]
    return lines[-1][:300] if lines else ""
