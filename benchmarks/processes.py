"""Time over several processes: 4 × 2 virtual CPU devices over Gloo, on loopback and over links shaped to 1 Gbit/s.

make bench-processes
python -m benchmarks.processes --quick
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from benchmarks import namespaces
from benchmarks.cluster import Place, WorkerFailed, on_this_host, run_workers
from benchmarks.layouts import Family, Pair
from benchmarks.process_tables import Case, result_of
from benchmarks.progress import progress
from benchmarks.results import save
from benchmarks.show import show
from lamina.planning import plan

PROCESSES, DEVICES = 4, 2
RESTARTS = 5
STALL_SECONDS = 180
WHAT = {
    False: "reshards over 4 processes × 2 devices, Gloo on loopback",
    True: "the same over links of 1 Gbit/s between network namespaces",
}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    failed = False
    for shaped in _networks(options.network):
        cases, failures = measure(options, shaped)
        result = result_of(cases, shaped)
        result.failures += failures
        name = "processes_shaped" if shaped else "processes"
        show(name, result)
        if not (options.quick or options.no_save):
            save(name, WHAT[shaped], result, sys.argv[1:])
        failed |= bool(result.failures)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three pairs of a small tensor")
    parser.add_argument("--pairs", type=int, default=48, help="how many of the 2352 pairs (default 48)")
    parser.add_argument("--sizes", default="2048,4096", help="sides of the float32 matrices (default 2048,4096)")
    parser.add_argument("--repeats", type=int, default=7, help="repeats of each way (default 7)")
    what = "the links that Lamina plans for: a preset, or calibrated (the default over shaped links)"
    parser.add_argument("--topology", help=what)
    parser.add_argument("--network", choices=("auto", "loopback", "shaped"), default="auto")
    parser.add_argument("--no-save", action="store_true", help="print only; --quick implies it")
    return parser


def _networks(network: str) -> list[bool]:
    """Which networks to measure on: is it shaped?"""
    if network == "loopback":
        return [False]
    reason = namespaces.why_not()
    if reason:
        print(f"No run over shaped links: {reason}.", file=sys.stderr)
        if network == "shaped":
            raise SystemExit(2)
    shaped = [] if reason else [True]
    return shaped if network == "shaped" else [False, *shaped]


@dataclass
class _Work:
    """What is to be measured, in order, and what has been."""

    todo: list[tuple[Pair, tuple[int, ...]]]
    cases: list[Case] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def measure(options: argparse.Namespace, shaped: bool) -> tuple[list[Case], list[str]]:
    """All cases; after a failure the workers start again with the next one."""
    sizes = [512] if options.quick else [int(size) for size in options.sizes.split(",")]
    pairs = Family((2, 2, 2), 2, True, False).pairs(3 if options.quick else options.pairs)
    work = _Work([(pair, (size, size)) for pair in pairs for size in sizes])
    what = "4 processes, 1 Gbit/s" if shaped else "4 processes, loopback"
    with progress(what, len(work.todo)) as done:
        while work.todo and len(work.failures) < RESTARTS:
            with namespaces.hosts(PROCESSES) if shaped else nullcontext(on_this_host(PROCESSES)) as place:
                try:
                    _run(work, options, shaped, place, done)
                except KeyboardInterrupt:
                    return work.cases, [*work.failures, f"interrupted: {len(work.todo)} cases were not measured"]
    work.failures += [f"not measured: {len(work.todo)} cases, after {RESTARTS} failures"] if work.todo else []
    return work.cases, work.failures


def _run(work: _Work, options: argparse.Namespace, shaped: bool, place: Place, done: Any) -> None:
    job = {
        "devices": DEVICES,
        "repeats": 3 if options.quick else options.repeats,
        "topology": options.topology or ("calibrated" if shaped else None),
        "cases": [{"layouts": [str(one) for one in pair], "shape": shape} for pair, shape in work.todo],
    }

    def answered(lines: list[dict[str, Any]]) -> None:
        (source, target), shape = work.todo.pop(0)
        errors = {f"{way}: {why}": None for line in lines for way, why in line["errors"].items()}
        work.cases.append(
            Case(
                source,
                target,
                shape,
                # A repeat has ended when the last process has.
                {
                    way: [max(times) for times in zip(*(line["seconds"][way] for line in lines), strict=True)]
                    for way in lines[0]["seconds"]
                    if all(way in line["seconds"] for line in lines)
                },
                tuple(errors),
                lines[0]["bytes"],
                lines[0]["crossing"],
                lines[0]["kinds"],
                plan(source, target, shape).lower_bound.mean,
            )
        )
        done(1)

    try:
        run_workers("benchmarks.process_worker", job, place, answered, STALL_SECONDS)
    except WorkerFailed as error:
        (source, target), shape = work.todo.pop(0)
        work.failures.append(f"{source} → {target} {list(shape)}: {error}")


if __name__ == "__main__":
    sys.exit(main())
