"""What XLA answered before: compiling a pair takes 30 – 100 ms, and the answer only changes with JAX's version.

Answers are kept in build/benchmarks/, one JSON line each; delete the folder (`make clean` does) to ask again.
Lamina's own programs are compiled anew each time, for they are what is being worked on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from benchmarks.compiling import ROOT, Answer, Job, compile_all

FOLDER = ROOT / "build" / "benchmarks"


def answers_to(
    jobs: Sequence[Job], workers: int, done: Callable[[int], None] = lambda n: None, folder: Path = FOLDER
) -> list[Answer]:
    """As `compile_all`, but what was asked of JAX before isn't asked again."""
    path = folder / f"jaxlib-{version('jaxlib')}.jsonl"
    known = _read(path)
    new = [job for job in jobs if job.line() not in known or job.who != "jax"]
    done(len(jobs) - len(new))
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:

        def answered(job: Job, answer: Answer) -> None:
            if job.who == "jax":
                print(json.dumps([job.line(), asdict(answer)]), file=file, flush=True)
            done(1)

        found = dict(zip(map(Job.line, new), compile_all(new, workers, answered), strict=True))
    return [found[job.line()] if job.line() in found else known[job.line()] for job in jobs]


def _read(path: Path) -> dict[str, Answer]:
    """The answers by the jobs' lines; half a line, of a run that was ended, doesn't count."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return {line: Answer(**answer) for line, answer in map(json.loads, lines)}
