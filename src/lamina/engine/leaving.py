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
from typing import Any, NoReturn

from lamina.errors import ProcessError

PEER_FAILED = 86  # the exit code of a process that ends because another one failed
TOLD_AT_MOST = 8000  # characters of a traceback


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
        self.code = PEER_FAILED if isinstance(error, ProcessError) and self.session.failure is not None else 1
        if self.code == 1:
            self.tell_error("raised " + traceback.format_exception_only(error)[-1].strip(), error)
        self._hook(kind, error, where)

    def tell_error(self, what: str, error: BaseException | None = None) -> None:
        trace = "" if error is None else "".join(traceback.format_exception(error))[-TOLD_AT_MOST:]
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
            self.code = PEER_FAILED
        end_now(self.code)

    def forget(self) -> None:
        """The session ended in good order."""
        if sys.excepthook == self.uncaught:
            sys.excepthook = self._hook
        atexit.unregister(self.at_exit)


def end_now(code: int) -> NoReturn:
    """Ends this process, with what it has written, and without waiting for anything."""
    with contextlib.suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
