"""One process fails as it is told to; the others say what they learn of it, and when.

python faults.py WHAT VICTIM [WHEN]
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import jax
import numpy as np

import lamina

LARGE = (1 << 11, 1 << 11)  # 16 MB: an all-gather of it over loopback takes long enough to die in


def main() -> None:
    what, victim, when = sys.argv[1], int(sys.argv[2]), (sys.argv[3:] or ["before"])[0]
    is_victim = jax.process_index() == victim
    mesh = lamina.DeviceMesh.create((jax.device_count(),), ("x",))
    x = lamina.shard(np.zeros(LARGE if when == "during" else (64, 64), "float32"), mesh, ["x"])
    lamina.shard(x, mesh, [None, "x"]).block_until_ready()  # all are connected
    print("ready", flush=True)
    started = time.monotonic()
    try:
        if when == "during":
            if is_victim:
                threading.Timer(0.3, fail, [what]).start()
            while True:
                lamina.all_gather(x).block_until_ready()
        if when == "after":
            lamina.all_gather(x).block_until_ready()
        if is_victim:
            fail(what)
        if when == "in jax":  # a wait that isn't Lamina's
            jax.block_until_ready(lamina.all_gather(x).jax())
        while True:
            lamina.all_gather(x).block_until_ready()
    except lamina.ProcessError as error:
        seconds = time.monotonic() - started
        print(f"learnt after {seconds:.1f} s: {' '.join(str(error).split())}", flush=True)
        raise


def fail(what: str) -> None:
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise ValueError("the victim's own error")
        case "exit":
            sys.exit(7)
        case "return":
            sys.exit(0)
        case "loop":
            time.sleep(1000)


if __name__ == "__main__":
    main()
