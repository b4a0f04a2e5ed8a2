"""What the times over several processes say: ratios to the better of JAX's two ways, the worst ten, the limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import geomean, number, percentile, ratio, seconds_text, thinned
from benchmarks.settings import Curve, Result, Table
from lamina.sharding import Layout

OURS = ("lamina", "lamina jitted")
THEIRS = ("jax.jit", "jax.device_put")
SLOW = 1.1  # times the better of JAX's two ways


@dataclass(frozen=True)
class Case:
    """One pair at one shape: the seconds of every repeat by way, and what went wrong.

    `bytes` is what a device receives on the mean, `crossing` what the busiest process receives from the others, both
    counted in the compiled programs of `lamina` and `jax`; `kinds` are their collectives.
    """

    source: Layout
    target: Layout
    shape: tuple[int, ...]
    seconds: dict[str, list[float]]
    errors: tuple[str, ...]
    bytes: dict[str, float]
    crossing: dict[str, float]
    kinds: dict[str, dict[str, int]]
    bound: float

    @property
    def name(self) -> str:
        return f"{self.source} → {str(self.target).partition('] ')[2]} {'×'.join(map(str, self.shape))}"

    def best(self, ways: tuple[str, ...]) -> float | None:
        """The median seconds of the fastest of these ways."""
        times = [median(self.seconds[way]) for way in ways if way in self.seconds]
        return min(times) if times else None

    def speedup(self, way: str) -> float | None:
        """How many times faster than the better of JAX's two ways."""
        mine, theirs = self.best((way,)), self.best(THEIRS)
        return theirs / mine if mine and theirs else None

    @property
    def jax_misses(self) -> bool:
        """Does XLA move more than the bound?"""
        return self.bytes["jax"] > self.bound * (1 + 1e-9)


def result_of(cases: list[Case], shaped: bool) -> Result:
    result = Result(axis="time of the better of JAX's two ways over Lamina's: how many times faster")
    network = "links shaped to 1 Gbit/s" if shaped else "loopback"
    measured = [case for case in cases if all(case.speedup(way) for way in OURS)]
    result.tables = [_table(measured, network), _worst(measured, network)]
    for way in OURS:
        result.curves.append(Curve(f"{way}, {network}", thinned(case.speedup(way) for case in measured)))
    result.failures += [f"{case.name}: {why}" for case in cases for why in case.errors if why.startswith("lamina")]
    refused = {why.partition(":")[0] for case in cases for why in case.errors if not why.startswith("lamina")}
    result.tables += [Table("JAX can't", ("way",), tuple((way,) for way in sorted(refused)))] if refused else []
    if measured:
        _limits(result, measured, shaped)
        result.notes = list(_notes(measured))
    return result


def _notes(measured: list[Case]) -> Iterator[str]:
    """Which cases are slower than they may be, and whether the plan can be the reason."""
    slow = [case for case in measured if min(case.speedup(way) for way in OURS) < 1 / SLOW]
    if not slow:
        return
    same = [case for case in slow if case.kinds["lamina"] == case.kinds["jax"]]
    yield (
        f"{len(slow)} cases are slower than {SLOW} × JAX's best, eager or jitted. {len(same)} of them run the very "
        "collectives that JAX's program runs, so that the plan is not the reason: the copies around the collectives "
        "are, or the machine's noise."
    )
    for case in slow:
        if case not in same:
            ran = [_kinds(case.kinds[whose]) for whose in ("lamina", "jax")]
            factors = " and ".join(number(case.speedup(way)) for way in OURS)
            yield f"- `{case.name}`: {factors} × as fast; Lamina runs {ran[0]}, JAX {ran[1]}."


def _limits(result: Result, measured: list[Case], shaped: bool) -> None:
    missed = [case for case in measured if case.jax_misses]
    for way in OURS:
        found = geomean(case.speedup(way) for case in missed)
        if missed and shaped:
            most = geomean(ratio(case.crossing["jax"], case.crossing["lamina"]) for case in missed)
            what = f"{way}: speed-up over the ratio of the bytes on the links, {len(missed)} pairs that XLA misses"
            result.limit(
                what, "≥ 0.9", f"{number(found / most)} = {number(found)} / {number(most)}", found >= 0.9 * most
            )
        elif missed:
            what = f"{way}: speed-up, geomean of {len(missed)} cases where XLA moves more than the bound"
            result.limit(what, "≥ 2", number(found), found >= 2)
        slower = [case for case in measured if case.speedup(way) < 1 / SLOW]
        result.limit(
            f"{way}: slower than {SLOW} × JAX's best", "nowhere", f"{len(slower)} of {len(measured)}", not slower
        )


def _table(measured: list[Case], network: str) -> Table:
    rows = []
    for shape in dict.fromkeys(case.shape for case in measured):
        members = [case for case in measured if case.shape == shape]
        for which, some in (("all", members), ("XLA above the bound", [case for case in members if case.jax_misses])):
            if not some:
                continue
            for way in OURS:
                speedups = [case.speedup(way) for case in some]
                spread = geomean(speedups), min(speedups), percentile(speedups, 0.1), max(speedups)
                times = seconds_text(median(case.best((way,)) for case in some))
                theirs = seconds_text(median(case.best(THEIRS) for case in some))
                rows.append(("×".join(map(str, shape)), which, len(some), way, *map(number, spread), times, theirs))
    columns = ("shape", "pairs", "number", "way", "speed-up", "least", "p10", "most", "median time", "JAX's")
    note = (
        "Speed-up: the better of `jax.jit` identity and `jax.device_put` over Lamina; medians of interleaved repeats."
    )
    return Table(f"4 processes × 2 devices over Gloo, {network}", columns, tuple(rows), note)


def _worst(measured: list[Case], network: str) -> Table:
    worst = sorted(measured, key=lambda case: min(case.speedup(way) for way in OURS))[:10]
    rows = []
    for case in worst:
        times = [seconds_text(best) if (best := case.best((way,))) else "—" for way in (*OURS, *THEIRS)]
        moved = [number(ratio(found["jax"], found["lamina"])) for found in (case.bytes, case.crossing)]
        ran = [_kinds(case.kinds[whose]) for whose in ("lamina", "jax")]
        rows.append((case.name, *(number(case.speedup(way)) for way in OURS), *times, *moved, *ran))
    columns = ("pair", "speed-up", "jitted", *OURS, *THEIRS, "JAX's bytes", "that cross", "Lamina runs", "JAX runs")
    note = "JAX's bytes over Lamina's: all, and those between processes."
    return Table(f"The worst ten, {network}", columns, tuple(rows), note)


def _kinds(kinds: dict[str, int]) -> str:
    """
    >>> _kinds({"all-gather": 1, "collective-permute": 3})
    'all-gather, 3 collective-permute'
    """
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items()) or "nothing"
