"""The helper process beside process 0: the hub, and JAX's coordination service.

python -m lamina.engine.coordinator PORT COUNT TIMEOUT START_TIMEOUT

JAX runs its service inside of process 0 and aborts every process the moment that the service goes.  In a process of its
own it outlives process 0, so that the death of any process is an error that the others can catch.  It says `ready` on
its stdout when it listens, or why it can't, and ends by itself when all processes have gone.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lamina.engine.hub import Hub
from lamina.engine.wire import Server, listen

HEARTBEATS = 10  # JAX aborts processes that its own heartbeats miss after so many timeouts: ours are long known then


def main() -> None:
    port, count, timeout, start_timeout = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the ranks; it follows when they go
        signal.signal(ignored, signal.SIG_IGN)
    try:
        listener = listen(port, is_reserved=os.environ.get("LAMINA_RESERVED") == str(port))
    except OSError as error:
        print(error.strerror or error, flush=True)
        return
    print("ready", flush=True)
    _leave_the_terminal()
    service: list[Any] = []

    def complete() -> None:
        from lamina.engine.compat_service import coordination_service

        service.append(coordination_service(port, count, HEARTBEATS * timeout))

    try:
        Server(Hub(count, timeout), listener, complete).run(start_timeout)
    finally:
        os._exit(0)  # the service's own shutdown waits for its clients, and there are none


def _leave_the_terminal() -> None:
    """Nobody waits for what a helper still has to say."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


if __name__ == "__main__":
    main()
