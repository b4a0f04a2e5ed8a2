"""What `initialize` and `shutdown` do in a process that nobody launched.

python joins.py PORT COUNT RANK [WHAT]
"""

from __future__ import annotations

import sys

import jax
import numpy as np

import lamina


def main() -> None:
    port, count, rank = map(int, sys.argv[1:4])
    what = sys.argv[4] if len(sys.argv) > 4 else ""
    if what == "used":
        jax.devices()
    arguments = (f"127.0.0.1:{port}", count, rank)
    try:
        lamina.initialize(*arguments, devices_per_process=2, timeout=4)
    except lamina.ProcessError as error:
        print(error)
        return
    lamina.initialize(*arguments, devices_per_process=2, timeout=4)  # the same again: nothing happens
    try:
        lamina.initialize(f"127.0.0.1:{port + 1}", count, rank)
    except lamina.ProcessError as error:
        print(error)
    mesh = lamina.DeviceMesh.create((2 * count,), ("x",))
    print(lamina.shard(np.arange(8.0), mesh, ["x"]).sum().item())
    lamina.shutdown()
    lamina.shutdown()
    print("apart")


if __name__ == "__main__":
    main()
