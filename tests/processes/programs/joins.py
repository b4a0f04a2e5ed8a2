"""What `initialize` and `shutdown` do in a process that nobody launched.

python joins.py PORT COUNT RANK TIMEOUT [used]
"""

from __future__ import annotations

import sys

import jax
import numpy as np

import lamina


def main() -> None:
    port, count, rank, timeout = map(int, sys.argv[1:5])
    if sys.argv[5:] == ["used"]:
        jax.devices()
    arguments = (f"127.0.0.1:{port}", count, rank)
    try:
        lamina.initialize(*arguments, devices_per_process=2, timeout=timeout)
    except lamina.ProcessError as error:
        print(error)
        return
    lamina.initialize(*arguments, devices_per_process=2, timeout=timeout)  # the same again: nothing happens
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
