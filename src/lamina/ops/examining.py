"""What `lamina doctor` finds out: what each process is, whether a reduction goes through, what a message costs."""

from __future__ import annotations

import json
import os
import platform
import socket
import time
from typing import Any

import jax
import numpy as np

from lamina.engine import compat
from lamina.engine.calibration import calibrate
from lamina.ops.reduce import all_reduce
from lamina.ops.shard import shard
from lamina.sharding import DeviceMesh

WAIT_MS = 60_000


def is_first() -> bool:
    """Is this the process that prints?"""
    return jax.process_index() == 0


def reports(about: tuple[str, ...]) -> list[dict[str, Any]]:
    """What each process says of itself, in all processes; `about` is what the variables of interest begin with."""
    name = socket.gethostname()
    own = {
        "host": name,
        "address": _address_of(name),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "variables": {key: value for key, value in sorted(os.environ.items()) if key.startswith(about)},
    }
    client = compat.coordination_client()
    if client is None:
        return [own]
    client.key_value_set(f"lamina/doctor/{jax.process_index()}", json.dumps(own))
    keys = [f"lamina/doctor/{rank}" for rank in range(jax.process_count())]
    return [json.loads(client.blocking_key_value_get(key, WAIT_MS)) for key in keys]


def _address_of(name: str) -> str:
    try:
        return socket.gethostbyname(name)
    except OSError:
        return "unknown"


def collective() -> tuple[bool, str]:
    """Does a reduction over all devices give the right number, and how long does it take?"""
    count = jax.device_count()
    mesh = DeviceMesh.create((count,), ("all",))
    x = shard(np.arange(count, dtype="float32"), mesh, ["all"])
    all_reduce(x).block_until_ready()  # compiles
    start = time.perf_counter()
    found = all_reduce(x).item()
    seconds = time.perf_counter() - start
    good = found == count * (count - 1) / 2
    return good, f"{'passed' if good else f'gave {found}'} in {1e3 * seconds:.2f} ms"


def links() -> list[tuple[str, float, float]]:
    """What lies between: in words, the latency in seconds, bytes per second."""
    processes, each = jax.process_count(), jax.device_count() // jax.process_count()
    if processes * each < 2:
        return []
    found = calibrate(DeviceMesh.create((processes, each), ("process", "device")))
    between = {"process": f"between {processes} processes", "device": f"between {each} devices of a process"}
    return [(between[name], link.latency, link.bandwidth) for name, link in found.axes.items()]
