"""Processes that don't run the same, one mistake after the other: each is an error on all, and all go on after it.

Run with LAMINA_CHECK=1, 3 processes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

import lamina


def main() -> None:
    mesh, odd = lamina.DeviceMesh.create((3,), ("x",)), jax.process_index() == 1
    x = lamina.shard(np.zeros((6, 6), "float32"), mesh, ["x"])
    y = lamina.shard(np.zeros((6, 6), "int32"), mesh, ["x"])
    wide = lamina.shard(np.zeros((6, 9), "float32"), mesh, ["x"])
    differ("another target", lambda: lamina.shard(x, mesh, [None, "x"] if odd else []))
    differ("another dtype", lambda: lamina.all_gather(y if odd else x))
    differ("another shape", lambda: lamina.all_gather(wide if odd else x))
    differ("another op", lambda: lamina.ppermute(x, [(0, 1)]) if odd else lamina.all_gather(x))
    differ("another permutation", lambda: lamina.ppermute(x, [(0, 1)] if odd else [(1, 0)]))
    differ("another computation", lambda: x + x if odd else x * x)
    differ("another reduction", lambda: x.max() if odd else x.min())
    lamina.all_gather(x).block_until_ready()
    np.testing.assert_array_equal((x + 1).numpy(), np.ones((6, 6)))
    print("all agree again", flush=True)
    fewer = lamina.DeviceMesh([lamina.CPU(0), lamina.CPU(1)], (2,), ("x",))
    part = lamina.shard(np.zeros(4, "float32"), fewer, ["x"])
    differ("another mesh", lambda: lamina.all_gather(part) if odd else lamina.all_gather(x))


def differ(what: str, call: Callable[[], lamina.Tensor]) -> None:
    try:
        call()
    except lamina.ProcessError as error:
        print(f"{what}: {' | '.join(line.strip() for line in str(error).splitlines())}", flush=True)
    else:
        raise AssertionError(f"{what}: no error")


if __name__ == "__main__":
    main()
