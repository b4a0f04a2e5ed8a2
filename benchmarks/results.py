"""Results as files: benchmarks/results/NAME.json, with what one needs to know to believe them."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.settings import Result

RESULTS = Path(__file__).parent / "results"
LOAD = os.getloadavg()[0]  # before anything was measured: times mean little where other programs compute, too


def save(name: str, what: str, result: Result, arguments: Sequence[str], folder: Path = RESULTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    module = "benchmarks.processes" if name.startswith("processes") else "benchmarks"
    header = {
        "suite": name,
        "what": what,
        "command": " ".join(["python -m", module, *arguments]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": versions(),
        "machine": machine(),
    }
    path.write_text(json.dumps(header | result.to_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def load(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Every saved result by the name of its suite."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("lamina", "jax", "jaxlib", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    size = {"cores": str(os.cpu_count()), "memory": f"{memory:.0f} GiB", "load": f"{LOAD:.1f}"}
    return {"cpu": _cpu(), **size, "system": platform.system()}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
