"""Process 1 starts a program and ends at once; process 0 comes to it later, and reads what they made together."""

from __future__ import annotations

import time

import jax
import numpy as np

import lamina


def main() -> None:
    mesh = lamina.DeviceMesh.create((jax.device_count(),), ("x",))
    x = lamina.shard(np.ones((64, 64), "float32"), mesh, ["x"])
    lamina.all_gather(x).block_until_ready()
    if jax.process_index() == 0:
        time.sleep(3)
        assert lamina.all_gather(x).numpy().sum() == 64 * 64
    else:
        lamina.all_gather(x)
    print("done")


if __name__ == "__main__":
    main()
