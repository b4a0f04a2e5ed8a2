"""Time to choose how an op runs, with empty caches and any pair of layouts on (2,2,2); Python's share of an eager op.

The second table is on a mesh that one device plays: the op as the user calls it, over the same compiled program called
with the same stored arrays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.figures import percentile, seconds_text
from benchmarks.layouts import all_layouts
from benchmarks.planning import forget
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved, once
from lamina.planning.choice import choose
from lamina.planning.topology import topology
from lamina.rules.contraction import matmul
from lamina.rules.elementwise import elementwise, linear
from lamina.sharding import Layout, ReduceOp

AXES = {"x": 2, "y": 2, "z": 2}
SHAPE = (64, 64)
RULES: dict[str, Callable[[], Any]] = {
    "matmul": lambda: matmul([SHAPE, SHAPE]),
    "add": lambda: elementwise([SHAPE, SHAPE], linear(0, 1, jointly=True)),
}


def run(settings: Settings) -> Result:
    result = Result()
    result.tables = [_choices(result, settings), _overhead(result, settings)]
    return result


def _choices(result: Result, settings: Settings) -> Table:
    layouts, draw = all_layouts(AXES, 2, (ReduceOp.SUM,)), random.Random(0)
    count = settings.choose(30, 600, 3000)
    rows = []
    with progress("cold choices on (2,2,2)", len(RULES) * count) as done:
        for name, rule in RULES.items():
            times = []
            for _ in range(count):
                times.append(_cold(rule, (draw.choice(layouts), draw.choice(layouts))))
                done(1)
            rows.append((name, count, *map(seconds_text, (median(times), percentile(times, 0.99), max(times)))))
            found = median(times)
            result.limit(f"first choice of {name}, median", "≤ 1.00 ms", seconds_text(found), found <= 1e-3)
            late = percentile(times, 0.99)
            result.limit(f"first choice of {name}, p99", "≤ 1.00 ms", seconds_text(late), late <= 1e-3)
    note = "64×64 float32, pairs drawn from all layouts, Partial ones too; the best of 3, each with empty caches."
    return Table("Rule evaluation, cold", ("op", "pairs", "median", "p99", "worst"), tuple(rows), note)


def _cold(rule: Callable[[], Any], pair: tuple[Layout, Layout]) -> float:
    times = []
    for _ in range(3):
        forget()
        times.append(once(lambda: choose(rule(), pair, (4.0, 4.0), topology("h100"))))
    return min(times)


def _overhead(result: Result, settings: Settings) -> Table:
    import jax
    import numpy as np

    import lamina
    from lamina.ops.compute import _decided

    mesh = lamina.DeviceMesh.simulated((2, 4), ("dp", "tp"))
    x = lamina.shard(np.ones((8, 8), "float32"), mesh, ["dp"])
    w = lamina.shard(np.ones((8, 8), "float32"), mesh, [None, "tp"])
    calls: dict[str, tuple[Callable[..., Any], tuple, tuple]] = {
        "exp": (lamina.exp, (x,), ()),
        "add": (lamina.add, (x, w), ()),
        "x * 2.0": (lambda x: x * 2.0, (x,), (2.0,)),
        "matmul": (lamina.matmul, (x, w), ()),
        "sum": (lamina.sum, (x,), ()),
    }
    rows, worst = [], 0.0
    for name, (op, operands, numbers) in calls.items():
        program = _program_of(partial(op, *operands), _decided)
        arrays = (*(t._array for t in operands), *numbers)
        times = interleaved(
            {"op": partial(op, *operands), "program": partial(program, *arrays)},
            settings.choose(5, 41, 81),
            50,
            jax.block_until_ready,
        )
        share = times["op"] - times["program"]
        worst = max(worst, share)
        rows.append((name, *map(seconds_text, times.values()), f"{share * 1e6:.1f} µs"))
    result.limit(
        "Python's share of an eager op that computes, worst", "≤ 15 µs", f"{worst * 1e6:.1f} µs", worst <= 15e-6
    )
    note = "8×8 float32 on a simulated (2, 4) mesh; the program is the one that the op itself runs."
    return Table("An eager op over its compiled program", ("op", "eager", "program", "difference"), tuple(rows), note)


def _program_of(call: Callable[[], Any], decided: Callable[..., Any]) -> Callable[..., Any]:
    """The last compiled program that a call runs."""
    from lamina.ops import compute

    seen: list[Any] = []

    def watched(*arguments: Any) -> Any:
        found = decided(*arguments)
        seen.append(found[0].run)
        return found

    compute._decided = watched
    try:
        call()
    finally:
        compute._decided = decided
    return seen[-1]
