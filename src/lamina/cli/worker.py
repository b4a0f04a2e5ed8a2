"""One of the processes of `lamina launch`: joins the others, then runs the program.

python -m lamina.cli.worker [-m] PROGRAM ARGUMENTS…

Its stdin is the launcher's sign of life: when it closes, the process ends, and all that it started with it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def main() -> None:
    _follow_the_launcher()
    is_module = sys.argv[1] == "-m"
    program, *arguments = sys.argv[2 if is_module else 1 :]
    sys.argv = [program, *arguments]
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(program))
    from lamina.engine import processes

    processes.initialize()
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ending:
        joined = processes.leaving()
        if joined is not None and ending.code not in (None, 0):
            if not isinstance(ending.code, int):
                print(ending.code, file=sys.stderr)
            joined.exits_with(ending.code if isinstance(ending.code, int) else 1)
        raise


def _follow_the_launcher() -> None:
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def follow() -> None:
        while os.read(lifeline, 1):
            pass
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=follow, name="lamina follows the launcher", daemon=True).start()


if __name__ == "__main__":
    main()
