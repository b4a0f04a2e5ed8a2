"""Says who it is; for the tests of the launcher.  It needs no JAX devices of others.

python says.py [wait|child|slow]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import jax

import lamina  # noqa: F401  (joined by the launcher)


def main() -> None:
    what = sys.argv[1:2]
    print(f"process {jax.process_index()} of {jax.process_count()}, {jax.local_device_count()} devices", flush=True)
    print("a word on stderr", file=sys.stderr, flush=True)
    print(f"stdin is empty: {sys.stdin.read() == ''}, arguments: {sys.argv[1:]}", flush=True)
    if what == ["child"]:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[2:]])
    if what in (["wait"], ["child"]):
        signal.signal(signal.SIGUSR1, lambda *_: print("heard SIGUSR1", flush=True))
        print("waiting", flush=True)
        while True:
            time.sleep(0.1)
    if what == ["partial"]:
        os.write(1, b"no newline at the end")


if __name__ == "__main__":
    main()
