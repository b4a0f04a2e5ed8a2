"""How a process ends: all together when all went well, at once when one failed.

JAX's own teardown waits for programs and processes.  When one of them has failed it would wait for ever, so then none
of it runs: what is written is flushed, and the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import traceback
from types import TracebackType
from typing import Any, NoReturn

import jax

from lamina.errors import ProcessError

PEER_FAILED = 86  # the exit code of a process that ends because another one failed
TOLD_AT_MOST = 8000  # characters of a traceback
SECONDS_TO_LEARN = 2.0  # a connection that breaks is often seen before the hub has said whose
RUNNER = ("<frozen runpy>", "lamina/cli/worker.py")


class Exit:
    """What happens when this process ends, and who is told."""

    def __init__(self, session: Any):
        self.session = session
        self.code: int | None = None  # of an uncaught error
        self._hook = sys.excepthook
        sys.excepthook = self.uncaught
        atexit.register(self.at_exit)

    def uncaught(self, kind: type[BaseException], error: BaseException, where: Any) -> None:
        """The others learn of an uncaught error before anything else happens."""
        if isinstance(error, jax.errors.JaxRuntimeError):  # a connection to a process that died, perhaps
            self.session.learn(SECONDS_TO_LEARN)
        is_ours = self.session.failure is None or not isinstance(error, (ProcessError, jax.errors.JaxRuntimeError))
        self.code = 1 if is_ours else code_after(self.session.failure, self.session.rank)
        if is_ours:
            self.tell_error("raised " + traceback.format_exception_only(error)[-1].strip(), error)
        where = without_runner(where)
        self._hook(kind, error.with_traceback(where), where)

    def tell_error(self, what: str, error: BaseException | None = None) -> None:
        where = None if error is None else without_runner(error.__traceback__)
        trace = "" if error is None else "".join(traceback.format_exception(type(error), error, where))[-TOLD_AT_MOST:]
        text = f"process {self.session.rank} {what}"
        if trace:
            text += "\n" + "\n".join(f"  | {line}" for line in trace.rstrip().splitlines())
        self.session.tell({"kind": "failed", "text": text})

    def exits_with(self, code: int) -> None:
        """The program called sys.exit with something else than 0."""
        self.code = code
        self.tell_error(f"ended with exit code {code}")

    def at_exit(self) -> None:
        if self.code is None and self.session.failure is None and self.session.leave():
            return  # JAX shuts down as always: all are here
        if self.code is None:
            if not self.session.raised:
                print(f"lamina: process {self.session.rank} ends: {self.session.message()}", file=sys.stderr)
            self.code = code_after(self.session.failure, self.session.rank)
        end_now(self.code)

    def forget(self) -> None:
        """The session ended in good order."""
        if sys.excepthook == self.uncaught:
            sys.excepthook = self._hook
        atexit.unregister(self.at_exit)


def code_after(failure: dict[str, Any], rank: int) -> int:
    """The exit code of a process that ends because one failed: another one, or itself."""
    return 1 if failure["rank"] == rank else PEER_FAILED


def without_runner(where: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of `lamina launch` that ran the program."""
    while where is not None and where.tb_frame.f_code.co_filename.endswith(RUNNER):
        where = where.tb_next
    return where


def end_now(code: int) -> NoReturn:
    """Ends this process, with what it has written, and without waiting for anything."""
    with contextlib.suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
