"""Time to plan: cold on a small and on a huge mesh, from the cache, and to import what plans need.  No JAX in here.

It is the processor's time that is taken: a plan waits for nobody, so on an idle machine that is all of it.
"""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from time import process_time

from benchmarks.compiling import ROOT, environment
from benchmarks.figures import percentile, seconds_text
from benchmarks.layouts import Family, axes_of
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved
from lamina.planning import plan
from lamina.sharding import Layout, ReduceOp
from lamina.sharding.text import parse_layout

POD = (16, 16, 16, 4, 4)

# Pairs on the pod that a search could get lost in: every axis moves, reductions, and dims that nothing divides.
HARD = (
    ("(x,y,z,w,v),-", "(v,w,z,y,x),-", (65536, 64)),
    ("(x,y,z,w,v),-", "-,(v,w,z,y,x)", (65536, 65536)),
    ("(x,y),(z,w,v)", "(v,z),(y,x,w)", (65536, 65536)),
    ("(x,y,z),(w,v)", "(w,v),(x,y,z)", (65536, 65536)),
    ("x,y,(z,w,v)", "(v,z),(w,x),y", (4096, 4096, 4096)),
    ("-,(x,y) +sum(z,w,v)", "(v,w,z),(y,x)", (65536, 65536)),
    ("-,- +sum(x,y,z,w,v)", "-,-", (65536, 65536)),
    ("x,- +sum(y,z,w)", "v,(y,x) +sum(w)", (65536, 65536)),
    ("(x,y,z,w,v),-", "-,-", (65536, 64)),
    ("(x,y,z,w,v),-", "-,(v,w,z,y,x)", (65537, 65539)),
    ("(x,y),(z,w)", "(v,z),(x,y)", (10007, 10009)),
    ("x,y +sum(z,w,v)", "(z,y),(x,v)", (10007, 10009)),
)

IMPORT = """
import sys, time
start = time.process_time()
import lamina.sharding, lamina.planning
print(time.process_time() - start, *sorted({"jax", "numpy"} & set(sys.modules)))
"""
FIRST = """
import json, sys, time
from lamina.planning import plan
from lamina.sharding.text import parse_layout
source, target, shape = json.loads(sys.argv[1])
source, target = parse_layout(source), parse_layout(target)
start = time.process_time()
plan(source, target, tuple(shape))
print(time.process_time() - start)
"""


def run(settings: Settings) -> Result:
    result = Result()
    small = _small(settings)
    pod = _pod(settings)
    rows = (("(2,2,2), all pairs of a 64×64 tensor", small), (f"{POD}, hard and random pairs", pod))
    result.tables = [_table("Cold plans", rows)]
    slow = [item for times in (pod, small) for item in sorted(times.items(), key=lambda item: -item[1])[:5]]
    rows = tuple((name, seconds_text(seconds)) for name, seconds in slow)
    result.tables.append(Table("The slowest to plan", ("pair", "time"), rows))
    for what, target, times in (("(2,2,2)", 2e-3, small), ("five axes, 65,536 devices", 20e-3, pod)):
        found = median(times.values())
        held = f"≤ {seconds_text(target)}"
        result.limit(f"cold plan on {what}, median", held, seconds_text(found), found <= target)
        p90 = percentile(list(times.values()), 0.9)
        result.limit(f"cold plan on {what}, p90", held, seconds_text(p90), p90 <= target)
        worst = max(times.values())
        result.limit(f"cold plan on {what}, worst", held, seconds_text(worst), worst <= target)
    if slow := [name for name, seconds in pod.items() if seconds > 20e-3]:
        result.notes = [
            f"{len(slow)} of the {len(pod)} pairs on five axes take longer than 20 ms. All of them have Partial axes "
            "to reduce: the search then goes through forms of source and target that are split over further axes, in "
            "several orders and dims, and few of these ways are dearer than the others by much."
        ]
        assert all("+" in name for name in slow), slow
    first = _first_in_a_process(settings)
    result.limit("the first plan of a process, (2,2,2)", "≤ 2.00 ms", seconds_text(first), first <= 2e-3)
    cached = _cached(settings)
    result.limit("cached plan", "≤ 5.00 µs", seconds_text(cached), cached <= 5e-6)
    seconds, loaded = _import(settings)
    result.limit("import lamina.sharding, lamina.planning", "≤ 60.0 ms", seconds_text(seconds), seconds <= 60e-3)
    result.limit("of jax and numpy, that import loads", "neither", ", ".join(loaded) or "neither", not loaded)
    return result


def forget() -> None:
    """Empties every cache of the planner and of the vocabulary, whatever their names."""
    kind = type(functools.lru_cache(lambda: None))
    for name, module in list(sys.modules.items()):
        if name.startswith(("lamina.planning", "lamina.sharding")):
            for value in vars(module).values():
                if isinstance(value, kind):
                    value.cache_clear()


def _cold(source: Layout, target: Layout, shape: tuple[int, ...], repeats: int) -> float:
    """The median over a few tries, each of which starts with empty caches."""
    times = []
    for _ in range(repeats):
        forget()
        start = process_time()
        plan(source, target, shape)
        times.append(process_time() - start)
    return median(times)


def _small(settings: Settings) -> dict[str, float]:
    family = Family((2, 2, 2), 2, True, False)
    pairs = family.pairs(settings.choose(40, None, None))
    times = {}
    with progress("cold plans on (2,2,2)", len(pairs)) as done:
        for source, target in pairs:
            times[_name(source, target, family.shape)] = _cold(source, target, family.shape, 3)
            done(1)
    return times


def _pod(settings: Settings) -> dict[str, float]:
    mesh = ",".join(f"{name}={size}" for name, size in axes_of(POD).items())
    hard = [(parse_layout(f"[{mesh}] {left}"), parse_layout(f"[{mesh}] {right}"), shape) for left, right, shape in HARD]
    pairs = (hard + _random_pairs(settings.choose(0, 200, 1000)))[: settings.choose(4, None, None)]
    times = {}
    with progress(f"cold plans on {POD}", len(pairs)) as done:
        for source, target, shape in pairs:
            times[_name(source, target, shape)] = _cold(source, target, shape, settings.choose(1, 3, 5))
            done(1)
    return times


def _random_pairs(count: int) -> list[tuple[Layout, Layout, tuple[int, ...]]]:
    """Any two layouts on the pod, of an even or an uneven tensor of one to three dims; the same in every run."""
    rng = random.Random("pod")

    def layout(rank: int) -> Layout:
        users: dict[int | str | None, list[str]] = {}
        for axis in rng.sample(list(axes_of(POD)), len(POD)):
            users.setdefault(rng.choice([None, "pieces", *range(rank), *range(rank)]), []).append(axis)
        pieces = {axis: ReduceOp.SUM for axis in users.get("pieces", ())}
        return Layout(axes_of(POD), [users.get(dim, ()) for dim in range(rank)], pieces)

    found = []
    for number in range(count):
        rank = rng.randint(1, 3)
        shape = (65536,) * rank if number % 2 else tuple(rng.randint(60000, 70000) for _ in range(rank))
        found.append((layout(rank), layout(rank), shape))
    return found


def _first_in_a_process(settings: Settings) -> float:
    """What no cache of ours could have helped: a new interpreter plans one pair."""
    pair = json.dumps(["[x=2,y=2,z=2] (x,y),z", "[x=2,y=2,z=2] z,(y,x)", [64, 64]])
    return median(float(_python(FIRST, pair)) for _ in range(settings.choose(1, 7, 7)))


def _cached(settings: Settings) -> float:
    axes = axes_of((2, 2, 2))
    source, target = Layout(axes, [("x", "y"), ("z",)]), Layout(axes, [("z",), ("y", "x")])
    call = {"cached": lambda: plan(source, target, (64, 64), 4)}
    return interleaved(call, repeats=settings.choose(3, 21, 21), loops=1000)["cached"]


def _import(settings: Settings) -> tuple[float, list[str]]:
    answers = [_python(IMPORT).split() for _ in range(settings.choose(1, 9, 9))]
    return median(float(seconds) for seconds, *_ in answers), answers[0][1:]


def _python(program: str, *arguments: str) -> str:
    """What a new interpreter prints; one that doesn't read this package first."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, cwd=ROOT / "src", env=environment(), check=True, capture_output=True, text=True
    ).stdout


def _name(source: Layout, target: Layout, shape: Sequence[int]) -> str:
    return f"{source} → {str(target).partition('] ')[2]} {list(shape)}"


def _table(title: str, rows: tuple) -> Table:
    shown = []
    for what, times in rows:
        values = list(times.values())
        spread = median(values), percentile(values, 0.9), max(values)
        shown.append((what, len(values), *map(seconds_text, spread)))
    return Table(
        title,
        ("mesh", "pairs", "median", "p90", "worst"),
        tuple(shown),
        "The processor's time. Every cache is emptied before each plan.",
    )
