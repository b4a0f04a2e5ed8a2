"""Processes that live and die together: their output with their rank, their signals, their end.

1. A line that process r writes is printed as `[r] line`, whole, to the stream that it was written to.
2. When one fails, the others get a moment to say what they think of it, then SIGTERM, then SIGKILL.
3. A signal that the launcher gets goes to all; the second SIGINT or SIGTERM ends all at once.  (JAX takes SIGTERM for
   the notice of a preemption, see `multihost_utils.reached_preemption_sync_point`; who doesn't heed it gets SIGKILL.)
4. Nothing is left: each process leads a session, and what is still in it in the end is killed.
5. The exit code is that of the process that failed first, as a shell has it (128 + n for signal n).  A process that
   ended with 86 ended because another one failed, so it is only first when no other failed by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any

PEER_FAILED = 86  # of lamina.engine.leaving
LAST_WORDS = 60  # lines
GRACE = 5.0  # seconds until SIGTERM, and from there to SIGKILL
POLL = 0.02
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SIGTERM, SIGKILL = signal.SIGTERM, signal.SIGKILL
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Task:
    """What one process runs."""

    rank: int
    command: list[str]
    environment: dict[str, str]


@dataclass
class Running:
    """One process and what it said last."""

    task: Task
    process: subprocess.Popen
    told: set[int] = field(default_factory=set)  # the signals that we sent to end it
    words: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_WORDS))
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def was_ended(self) -> bool:
        """Did it end by a signal of ours?"""
        return self.process.returncode is not None and -self.process.returncode in self.told & {SIGTERM, SIGKILL}

    @property
    def code(self) -> int | None:
        """The exit code as a shell has it."""
        code = self.process.returncode
        return code if code is None or code >= 0 else 128 - code


class Supervisor:
    """Starts the tasks, stays until all have ended, and says how it went."""

    def __init__(self, tasks: list[Task], grace: float = GRACE):
        self.tasks, self.grace = tasks, grace
        self.running: list[Running] = []
        self.failed: list[Running] = []  # in the order in which they were seen
        self.told: signal.Signals | None = None  # the signal that ends us
        self._ending_since: float | None = None
        self._output = threading.Lock()

    def run(self) -> int:
        with self._signals():
            try:
                for task in self.tasks:
                    self._start(task)
                self._watch()
            finally:
                self._end_all()
        return self._verdict()

    def _start(self, task: Task) -> None:
        process = subprocess.Popen(
            task.command,
            env=task.environment,
            stdin=subprocess.PIPE,  # kept open: that it closes tells the process that we are gone
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        running = Running(task, process)
        self.running.append(running)
        for stream, to in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            reader = threading.Thread(target=self._copy, args=(running, stream, to), daemon=True)
            running.readers.append(reader)
            reader.start()

    def _copy(self, running: Running, stream: IO[bytes], to: Any) -> None:
        """Invariant 1."""
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            if to is sys.stderr:
                running.words.append(line)
            with self._output:
                print(f"[{running.task.rank}] {line}", file=to, flush=True)

    # -- until the end ------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        ended: set[int] = set()
        while len(ended) < len(self.running):
            for running in self.running:
                if running.task.rank not in ended and running.process.poll() is not None:
                    ended.add(running.task.rank)
                    if running.code:
                        self.failed.append(running)
            if self.failed or self.told is not None:
                self._press()
            time.sleep(POLL)

    def _press(self) -> None:
        """Invariant 2: first nothing, then SIGTERM, then SIGKILL."""
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
        late = now - self._ending_since
        moment = 0.0 if self.told is not None else self.grace
        if late > moment + self.grace:
            self._send(SIGKILL)
        elif late > moment and self.told is None:
            self._send(SIGTERM)

    def _send(self, number: int) -> None:
        for running in self.running:
            if running.process.returncode is None:
                running.told.add(number)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running.process.pid, number)

    def _end_all(self) -> None:
        """Invariant 4."""
        for running in self.running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
            assert running.process.stdin is not None
            running.process.stdin.close()
        for running in self.running:
            for reader in running.readers:
                reader.join(1.0)

    # -- signals ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets only the main thread set handlers
            return
        before = {number: signal.signal(number, self._forward) for number in FORWARDED}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _forward(self, number: int, _: FrameType | None) -> None:
        """Invariant 3."""
        if number in ENDING and self.told is not None:
            self._send(signal.SIGKILL)
            return
        self._send(number)
        if number in ENDING:
            self.told = signal.Signals(number)

    # -- how it went --------------------------------------------------------------------------------------------------

    def _verdict(self) -> int:
        """Invariant 5."""
        if self.told is not None:
            own = (one.code for one in self.failed if one.code != PEER_FAILED and not one.was_ended)
            return next(own, None) or 128 + self.told
        if not self.failed:
            return 0
        by_themselves = [one for one in self.failed if not one.was_ended]
        first = next((one for one in by_themselves if one.code != PEER_FAILED), self.failed[0])
        words = "\n".join(f"[{first.task.rank}] {line}" for line in _traceback(list(first.words)))
        ended = [str(one.task.rank) for one in self.failed if one.was_ended]
        others = f"; process {', '.join(ended)} had to be ended" if ended else ""
        verdict = f"lamina launch: process {first.task.rank} failed first, {_how(first)}{others}"
        print(f"{words}\n{verdict}", file=sys.stderr, flush=True)
        assert first.code is not None
        return first.code


def _how(running: Running) -> str:
    code = running.process.returncode
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"


def _traceback(lines: list[str]) -> list[str]:
    """The last traceback in a process's last words; all of them, if there is none."""
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    return lines[starts[-1] :] if starts else lines[-20:]
