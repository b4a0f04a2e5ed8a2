"""python -m tests.checkpoint.crashing PATH: saves trees until it is killed, from a process that is quick to start.

It reads one line per child: the number of the file operation at which the child shall end itself as SIGKILL would (0:
never), and of the step that it shall begin with.  The child is a fork of this process, made before JAX and tensorstore
have any threads, and prints every step that `save` has returned from.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import numpy as np

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.fsync", "shutil.rmtree", "lamina.write"}


def tree_of(step: int) -> dict[str, Any]:
    """Every number in it says which step it is."""
    import lamina

    mesh = lamina.DeviceMesh.create((2, 2), ("x", "y"))
    blocks = lamina.shard(np.arange(35.0, dtype="float32").reshape(7, 5) + 100 * step, mesh, ["x", "y"])
    return {"step": step, "host": np.full(50, step), "nested": [{"blocks": blocks}]}


def is_tree_of(step: int, found: dict[str, Any]) -> bool:
    """Is it that tree, on the host, all of it?"""
    blocks = np.arange(35.0, dtype="float32").reshape(7, 5) + 100 * step
    same = np.array_equal(found["host"], np.full(50, step)) and np.array_equal(found["nested"][0]["blocks"], blocks)
    return same and found["step"] == step


def save_until_killed(path: str, operation: int, first: int) -> None:
    import jax

    import lamina
    from lamina.checkpoint.arrays import Stored

    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_platforms", "cpu")
    tree_of(0)  # JAX opens files, too, when it starts
    if operation:
        die_at(operation, path)
        plain = Stored.write
        Stored.write = lambda self, *given: sys.audit("lamina.write", path) or plain(self, *given)  # type: ignore
    for step in itertools.count(first):
        lamina.save(path, tree_of(step), step=step, keep=2)
        os.write(1, f"{step}\n".encode())  # at once, or the end may come in the middle of a line


def die_at(operation: int, path: str) -> None:
    """Ends the process without any farewell at that of its file operations below the path."""
    left = itertools.count(operation - 1, -1)

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event in OPERATIONS and given and str(given[0]).startswith(path) and next(left) == 0:
            os.kill(os.getpid(), 9)

    sys.addaudithook(watch)


def main() -> None:
    import optax  # noqa: F401  # the imports take a second; a fork has them at once

    import lamina
    import lamina.checkpoint.arrays

    lamina.checkpoint.arrays.tensorstore()
    print("ready", flush=True)
    for line in sys.stdin:
        operation, first = map(int, line.split())
        if (child := os.fork()) == 0:
            save_until_killed(sys.argv[1], operation, first)
        print(f"pid {child}", flush=True)
        os.waitpid(child, 0)
        print("dead", flush=True)


if __name__ == "__main__":
    main()
