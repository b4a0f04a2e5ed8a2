"""The watchdog of one process: it says that it is alive, hears who isn't, and lets no wait last for ever.

`Session` is one process's part in a program of several (see `processes` for the failure model).  Its three threads:
one beats, one listens to the hub, one guards: it ends the process when a failure is known and Lamina has had no chance
to raise it, because the process waits in code that isn't Lamina's.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lamina.engine import leaving
from lamina.engine.hub import PATIENCE, Message, group_of
from lamina.engine.wire import Line
from lamina.errors import ProcessError, with_fix

Ranks = tuple[int, ...]
BEATS = 20  # per timeout
SPINS = 50  # looks at a result without sleeping: most are there within these


class Session:
    """One process's part in a program of several.

    1. `failure` is set once, and then every wait and every next op raises it.
    2. `counts` counts the programs that this process started in each group of processes.
    """

    def __init__(self, line: Line, rank: int, count: int, timeout: float):
        self.line, self.rank, self.count, self.timeout = line, rank, count, timeout
        self.failure: Message | None = None
        self.counts: defaultdict[Ranks, int] = defaultdict(int)
        self.doing: dict[Ranks, Callable[[], str]] = {}
        self.all_left = threading.Event()
        self.answer: Message | None = None
        self._news = threading.Condition()
        self._waiting: tuple[Ranks, float] | None = None
        self._acted = self._heard = time.monotonic()
        self.raised = False
        for name, work in (("beats", self._beat), ("listens", self._listen), ("guards", self._guard)):
            threading.Thread(target=work, name=f"lamina {name}", daemon=True).start()

    # -- what the engine calls ----------------------------------------------------------------------------------------

    def started(self, ranks: Ranks, words: Callable[[], str]) -> None:
        """A program of these processes starts here."""
        self.check()
        self.counts[ranks] += 1
        self.doing[ranks] = words
        self._acted = time.monotonic()

    def check(self) -> None:
        """ProcessError if another process has failed."""
        if self.failure is not None:
            self.raised = True
            raise ProcessError(self.message())

    def learn(self, seconds: float) -> None:
        """Waits for news of a failure that has just been felt."""
        with self._news:
            self._news.wait_for(lambda: self.failure is not None, seconds)

    def wait(self, ranks: Ranks, done: Callable[[], bool]) -> None:
        """Until `done`; ProcessError when another process fails meanwhile."""
        spins = 0
        with self.waiting_for(ranks):
            while not done():
                self.check()
                spins += 1
                time.sleep(0 if spins < SPINS else min(0.002, 1e-5 * spins))

    @contextmanager
    def waiting_for(self, ranks: Ranks) -> Iterator[None]:
        """Others learn that this process waits for these, and since when."""
        self._waiting = ranks, time.monotonic()
        try:
            yield
        finally:
            self._waiting, self._acted = None, time.monotonic()

    def ask(self, ranks: Ranks, question: Message) -> Message:
        """The hub's answer, which takes until all of these processes have asked."""
        with self._news:
            self.answer = None
        self.tell(question)
        with self.waiting_for(ranks), self._news:
            while self.answer is None:
                self.check()
                self._news.wait(1.0)
            return self.answer

    def tell(self, message: Message) -> None:
        try:
            self.line.send(message)
        except OSError:
            self._fail_here("the connection to the coordinator is lost")

    def message(self) -> str:
        assert self.failure is not None
        fixes = {
            "behind": "let it come here sooner, or set a longer lamina.initialize(timeout=...) or LAMINA_TIMEOUT",
            "parted": "run it with LAMINA_CHECK=1, which says where they part",
            "silent": "look at its machine; a longer lamina.initialize(timeout=...) waits longer",
            "died": "look at its last output; the kernel's log says if it ran out of memory",
        }
        return with_fix(self.failure["text"], fixes.get(self.failure["how"], ""))

    def leave(self) -> bool:
        """Says that this process has done its part, and waits for the others; False if one of them failed."""
        self.tell(self._state())  # what it started since the last beat, or the others would seem to wait for more
        self.tell({"kind": "left"})
        while not self.all_left.wait(0.05):
            if self.failure is not None:
                return False
        return True

    # -- the threads --------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        while self.failure is None and not self.all_left.is_set():
            self.tell(self._state())
            if time.monotonic() - self._heard > PATIENCE * self.timeout:
                self._fail_here("the coordinator (the helper process beside process 0) doesn't answer")
            self.all_left.wait(min(1.0, self.timeout / BEATS))

    def _state(self) -> Message:
        now, waiting = time.monotonic(), self._waiting
        groups = {group_of(ranks): (count, self._words(ranks)) for ranks, count in list(self.counts.items())}
        return {
            "kind": "beat",
            "groups": groups,
            "waiting": group_of(waiting[0]) if waiting else "",
            "waited": now - waiting[1] if waiting else 0.0,
            "idle": now - self._acted,
        }

    def _words(self, ranks: Ranks) -> str:
        return self.doing[ranks]() if ranks in self.doing else "a program"

    def _listen(self) -> None:
        for message in self.line.messages():
            self._heard = time.monotonic()
            match message["kind"]:
                case "failed":
                    self._know(message)
                case "all left":
                    self.all_left.set()
                case "agreed" | "differ":
                    with self._news:
                        self.answer = message
                        self._news.notify_all()
        if not self.all_left.is_set():
            self._fail_here("the coordinator (the helper process beside process 0) died")

    def _fail_here(self, text: str) -> None:
        self._know({"kind": "failed", "rank": None, "text": text, "how": "coordinator"})

    def _know(self, failure: Message) -> None:
        """Invariant 1."""
        with self._news:
            self.failure = self.failure or failure
            self._news.notify_all()

    def _guard(self) -> None:
        while self.failure is None:
            if self.all_left.wait(0.1):
                return
        time.sleep((1 - PATIENCE) * self.timeout)
        if not self.raised and not self.all_left.is_set():
            print(f"lamina: process {self.rank} ends: {self.message()}\n{_main_stack()}", file=sys.stderr, flush=True)
            leaving.end_now(leaving.code_after(self.failure or {}, self.rank))


def _main_stack() -> str:
    """Where the main thread is."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "It was here:\n" + "".join(traceback.format_stack(frame))
