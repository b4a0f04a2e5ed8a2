"""`lamina doctor`: which processes, devices and links there are, and whether they work."""

from __future__ import annotations

import argparse
import sys
from typing import Any

SUMMARY = "show the processes, devices and links that there are, and measure them"

ABOUT = ("JAX_", "LAMINA_", "XLA_", "NCCL_", "GLOO_", "CUDA_VISIBLE", "SLURM_", "OMPI_COMM")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from lamina.cli import launch

    launch.add_start_arguments(parser, is_required=False)


def run(arguments: argparse.Namespace) -> int:
    if arguments.processes is not None:
        from lamina.cli import launch

        arguments.is_module, arguments.program, arguments.arguments = True, "lamina.cli", ["doctor"]
        return launch.run(arguments)
    import lamina
    from lamina.ops import examining

    lamina.initialize()
    reports = examining.reports(ABOUT)
    problems = _problems(reports)
    if examining.is_first():
        _show_processes(reports)
    collective, links = examining.collective(), examining.links()
    if examining.is_first():
        _show_work(collective, links)
        for problem in problems:
            print(f"problem: {problem}")
    return int(bool(problems) or not collective[0])


# -- what is wrong ----------------------------------------------------------------------------------------------------


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


# -- on the screen ----------------------------------------------------------------------------------------------------


def _show_processes(reports: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("process", "host", "address", "pid", "devices", title=_title(reports[0]), title_justify="left")
    for rank, report in enumerate(reports):
        kinds = report["devices"]
        names = ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds))
        table.add_row(str(rank), report["host"], report["address"], str(report["pid"]), names)
    console = Console(highlight=False)
    console.print(table)
    for name, value in reports[0]["variables"].items():
        console.print(f"{name}={value}", markup=False)
    sys.stdout.flush()


def _title(report: dict[str, Any]) -> str:
    return f"Python {report['python']}, JAX {report['jax']} on {report['backend']}"


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
