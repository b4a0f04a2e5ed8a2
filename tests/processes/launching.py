"""Starts programs under `lamina launch`, and takes what they say apart by process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 120  # seconds after which a launch counts as hanging


@dataclass(frozen=True)
class Launched:
    """How a launch ended."""

    code: int
    out: str
    errors: str
    seconds: float

    def said(self, rank: int, what: str = "out") -> list[str]:
        """The lines of one process."""
        start = f"[{rank}] "
        text = self.out if what == "out" else self.errors
        return without_gloo([line.removeprefix(start) for line in text.splitlines() if line.startswith(start)])

    @property
    def verdict(self) -> str:
        """What the launcher itself said last."""
        lines = [line for line in self.errors.splitlines() if line.startswith("lamina launch:")]
        return lines[-1] if lines else ""


def without_gloo(lines: list[str]) -> list[str]:
    """Without what Gloo itself prints when it connects."""
    return [line for line in lines if "Gloo" not in line and "peer ranks" not in line]


def environment(**settings: str) -> dict[str, str]:
    """The environment of the tests without what pytest's own JAX was told, with the source tree first."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("LAMINA_", "SLURM_"))}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**ours, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "LAMINA_CHECK": "1", **settings}


def launch_command(program: str | Path, *arguments: str, processes: int, options: Sequence[str] = ()) -> list[str]:
    where = program if isinstance(program, Path) else PROGRAMS / f"{program}.py"
    starts = [sys.executable, "-m", "lamina.cli", "launch", "-n", str(processes), *options]
    return [*starts, str(where), *arguments]


def launched(
    program: str | Path,
    *arguments: str,
    processes: int = 2,
    options: Sequence[str] = (),
    limit: float = LIMIT,
    **settings: str,
) -> Launched:
    """Runs a program of tests/processes/programs, or any file, to its end; fails if it hangs."""
    start = time.monotonic()
    done = subprocess.run(
        launch_command(program, *arguments, processes=processes, options=options),
        env=environment(**settings),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit,
    )
    return Launched(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def launched_well(*arguments: str, **options) -> Launched:
    """The same, and it must end with 0."""
    done = launched(*arguments, **options)
    assert done.code == 0, f"exit code {done.code}\n{done.out}\n{done.errors}"
    return done


def of_this_suite(text: str) -> list[str]:
    """The processes that still run with this text on their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(folder.name) != os.getpid():
            found.append(f"{folder.name}: {line}")
    return found
