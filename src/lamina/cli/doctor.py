"""`lamina doctor`: which processes, devices and links there are, and whether they work."""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import sys
import time
from typing import Any

SUMMARY = "show the processes, devices and links that there are, and measure them"

ABOUT = ("JAX_", "LAMINA_", "XLA_", "NCCL_", "GLOO_", "CUDA_VISIBLE", "SLURM_", "OMPI_COMM")
WAIT_MS = 60_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from lamina.cli import launch

    launch.add_start_arguments(parser, is_required=False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.processes is not None:
        from lamina.cli import launch

        arguments.is_module, arguments.program, arguments.arguments = True, "lamina.cli", ["doctor"]
        return launch.run(arguments)
    import jax

    import lamina
    from lamina.engine import compat

    lamina.initialize()
    reports = _reports(compat.coordination_client(), jax)
    problems = _problems(reports)
    if jax.process_index() == 0:
        _show_processes(reports, jax)
    good, links = _collective(lamina, jax), _links(lamina, jax)
    if jax.process_index() == 0:
        _show_work(good, links)
        for problem in problems:
            print(f"problem: {problem}")
    return int(bool(problems) or not good[0])


# -- what is there ----------------------------------------------------------------------------------------------------


def _reports(client: Any, jax: Any) -> list[dict[str, Any]]:
    """What each process says of itself, in all processes."""
    name = socket.gethostname()
    own = {
        "host": name,
        "address": _address_of(name),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": [device.device_kind for device in jax.local_devices()],
        "variables": {key: value for key, value in sorted(os.environ.items()) if key.startswith(ABOUT)},
    }
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


def _problems(reports: list[dict[str, Any]]) -> list[str]:
    """What will not work, or works by luck."""
    found = []
    for what in ("python", "jax"):
        if len(versions := {report[what] for report in reports}) > 1:
            found.append(f"the processes have different versions of {what}: {', '.join(sorted(versions))}")
    if len({len(report["devices"]) for report in reports}) > 1:
        found.append("the processes have different numbers of devices")
    if len({report["host"] for report in reports}) > 1:
        local = sorted({report["host"] for report in reports if report["address"].startswith("127.")})
        if local:
            hosts = ", ".join(local)
            found.append(
                f"on {hosts} the host's own name is a loopback address: Gloo can't be reached from other hosts"
            )
    return found


# -- what works -------------------------------------------------------------------------------------------------------


def _collective(lamina: Any, jax: Any) -> tuple[bool, str]:
    """Does a reduction over all devices give the right number, and how long does it take?"""
    import numpy as np

    count = jax.device_count()
    mesh = lamina.DeviceMesh.create((count,), ("all",))
    x = lamina.shard(np.arange(count, dtype="float32"), mesh, ["all"])
    lamina.all_reduce(x).block_until_ready()  # compiles
    start = time.perf_counter()
    found = lamina.all_reduce(x).item()
    seconds = time.perf_counter() - start
    good = found == count * (count - 1) / 2
    return good, f"{'passed' if good else f'gave {found}'} in {1e3 * seconds:.2f} ms"


def _links(lamina: Any, jax: Any) -> list[tuple[str, float, float]]:
    """Per axis of (process, device): its size in words, latency in seconds, bytes per second."""
    processes, each = jax.process_count(), jax.device_count() // jax.process_count()
    if processes * each < 2:
        return []
    mesh = lamina.DeviceMesh.create((processes, each), ("process", "device"))
    found = lamina.calibrate(mesh)
    between = {"process": f"between {processes} processes", "device": f"between {each} devices of a process"}
    return [(between[name], link.latency, link.bandwidth) for name, link in found.axes.items()]


# -- on the screen ----------------------------------------------------------------------------------------------------


def _show_processes(reports: list[dict[str, Any]], jax: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("process", "host", "address", "pid", "devices", title=_title(reports[0], jax), title_justify="left")
    for rank, report in enumerate(reports):
        kinds = report["devices"]
        names = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds))
        table.add_row(str(rank), report["host"], report["address"], str(report["pid"]), names)
    console = Console(highlight=False)
    console.print(table)
    for name, value in reports[0]["variables"].items():
        console.print(f"{name}={value}", markup=False)
    sys.stdout.flush()


def _title(report: dict[str, Any], jax: Any) -> str:
    return f"Python {report['python']}, JAX {report['jax']} on {jax.default_backend()}"


def _show_work(collective: tuple[bool, str], links: list[tuple[str, float, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from lamina.planning.units import bytes_text

    console = Console(highlight=False)
    console.print(f"a reduction over all devices: {collective[1]}")
    if not links:
        console.print("one device: no links to measure")
        return
    table = Table("link", "latency α", "bandwidth 1/β")
    for name, latency, bandwidth in links:
        table.add_row(name, f"{1e6 * latency:.1f} µs", f"{bytes_text(bandwidth)}/s")
    console.print(table)
