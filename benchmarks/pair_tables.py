"""What the bytes of all pairs say: tables by mesh, the worst ten, the limits."""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.figures import geomean, number, percentile, ratio, thinned
from benchmarks.pair import SLACK, Measured
from benchmarks.settings import Curve, Result, Table

LARGE = 4096


def result_of(measured: list[Measured]) -> Result:
    result = Result(axis="bytes received over the lower bound")
    groups = {(one.family.mesh, one.family.even, one.family.pieces): None for one in measured}
    by_group = [(group, [one for one in measured if _group(one) == group]) for group in groups]
    result.tables = [_bytes_table(by_group), _jax_table(by_group), _worst_table(measured), _worst_jax_table(measured)]
    ours = [one.ratio for one in measured]
    plain = [one for one in measured if one.jax_ratio is not None]
    result.curves = [
        Curve("Lamina, every pair", thinned(ours)),
        Curve("Lamina, the pairs that JAX can be asked", thinned(one.ratio for one in plain)),
        Curve("JAX", thinned(one.jax_ratio for one in plain)),
    ]
    _limits(result, measured)
    result.notes = list(_notes(measured))
    return result


def _notes(measured: list[Measured]) -> Iterator[str]:
    """Why pairs are above the bound, and what compiled programs hold beyond what the plan says."""
    above = [one for one in measured if one.ratio > SLACK]
    pieces = sum(one.family.pieces for one in above)
    if above:
        yield (
            f"{len(above)} of {len(measured)} pairs are above the bound, {pieces} of them with Partial axes. Of an "
            "element's k pieces the bound counts k - 1 messages, and one for each further device that wants the value, "
            "as if any device could collect them. Where those that hold pieces and those that want the value are "
            "different ones, a reduction in place and a copy of its result together send more than that; no way to "
            "send less was found, nor is it proven that there is none."
        )
    run = [one for one in measured if one.compiled is not None and one.compiled.memory and one.held >= LARGE]
    if run:
        held = [one.compiled.memory / one.held for one in run]
        yield (
            "A peak is what a plan says: a block before a step and one after it. XLA's buffers for "
            f"{len(run)} compiled programs of Lamina's (those with {LARGE} B or more of source and target, so that "
            f"constants don't count) hold {number(geomean(held))} times these in the geomean and {number(max(held))} "
            "times at worst, since parts of blocks that are on their way are copies, too."
        )


def _group(one: Measured) -> tuple:
    return one.family.mesh, one.family.even, one.family.pieces


def _label(group: tuple) -> tuple[str, str]:
    mesh, even, pieces = group
    return f"({','.join(map(str, mesh))})", f"{'even' if even else 'uneven'}{', Partial' if pieces else ''}"


def _bytes_table(by_group: list) -> Table:
    rows = []
    for group, members in by_group:
        ratios = [one.ratio for one in members]
        over = sum(one.peak > one.held * SLACK for one in members)
        finite = [value for value in ratios if value < math.inf]
        spread = geomean(ratios), percentile(ratios, 0.9), max(finite, default=1.0)
        rows.append((*_label(group), len(members), *map(number, spread), len(ratios) - len(finite), over))
    columns = ("mesh", "layouts", "pairs", "geomean", "p90", "worst", "bound 0, moved", "peaks over")
    note = "Bytes received over the lower bound, mean over the devices; peaks over source + target block."
    return Table("Lamina's plans over the bound", columns, tuple(rows), note)


def _jax_table(by_group: list) -> Table:
    rows = []
    for group, members in by_group:
        asked = [one for one in members if one.jax is not None]
        if not asked:
            why = "no uneven shards in JAX" if not group[1] else "no Partial at a program's border in JAX"
            rows.append((*_label(group), "—", why, "", "", "", "", "", "", ""))
            continue
        alive = [one for one in asked if one.jax_ratio is not None]
        ratios = [one.jax_ratio for one in alive]
        finite = [value for value in ratios if value < math.inf]
        memory = max((ratio(one.jax.memory, one.held) for one in alive), default=1.0)
        spread = geomean(one.ratio for one in alive), geomean(ratios), percentile(ratios, 0.9), max(finite, default=1.0)
        crashes = sum(one.jax.crash is not None for one in asked)
        counts = len(ratios) - len(finite), crashes, sum(one.jax.rematerialised for one in asked)
        rows.append((*_label(group), len(asked), *map(number, spread), *counts, number(memory)))
    columns = ("mesh", "layouts", "pairs", "Lamina", "JAX", "JAX p90", "JAX worst", "bound 0, moved")
    columns += ("crashes", "full remat.", "memory")
    note = (
        "Bytes received over the bound, Lamina (geomean) beside `jax.jit` of the identity, on the pairs that JAX "
        "compiles (`jax.device_put` runs that identity where the array spans processes). A crash aborts the process. "
        "full remat.: XLA's own warning. memory: the most that XLA's buffers take over source + target block."
    )
    return Table("Beside JAX", columns, tuple(rows), note)


def _worst_table(measured: list[Measured]) -> Table:
    worst = sorted(measured, key=lambda one: -one.ratio)[:10]
    rows = tuple((one.name, number(one.ratio), one.steps, _jax_cell(one)) for one in worst)
    return Table("Lamina's worst ten", ("pair", "ratio", "steps", "JAX"), rows)


def _worst_jax_table(measured: list[Measured]) -> Table:
    alive = [one for one in measured if one.jax_ratio is not None and one.jax_ratio < math.inf]
    worst = sorted(alive, key=lambda one: -one.jax_ratio)[:10]
    rows = tuple((one.name, number(one.jax_ratio), number(one.ratio), one.steps) for one in worst)
    return Table("JAX's worst ten", ("pair", "JAX", "Lamina", "Lamina's steps"), rows)


def _jax_cell(one: Measured) -> str:
    if one.jax is None:
        return "can't say it"
    return "crash" if one.jax.crash is not None else number(one.jax_ratio)


def _limits(result: Result, measured: list[Measured]) -> None:
    ratios = [one.ratio for one in measured]
    mean, worst = geomean(ratios), max(ratios)
    result.limit("bytes over the bound, geomean", "≤ 1.02", number(mean), mean <= 1.02)
    result.limit("bytes over the bound, worst", "≤ 1.5", number(worst), worst <= 1.5)
    over = [one for one in measured if one.peak > one.held * SLACK]
    result.limit("peaks above source + target", "0", str(len(over)), not over)
    above = [one for one in measured if one.above_jax]
    result.limit("pairs where Lamina moves more than JAX", "0", str(len(above)), not above)
    result.failures += [
        f"moves more than JAX: {one.name}: {one.received:.0f} B, JAX {one.jax.mean:.0f} B" for one in above
    ]
    run = [one for one in measured if one.compiled is not None]
    dead = [one for one in run if one.compiled.crash is not None]
    result.limit(f"Lamina's crashes in {len(run)} compiled programs", "0", str(len(dead)), not dead)
    result.failures += [f"crashed: {one.name}: {one.compiled.crash}" for one in dead]
    other = [one for one in run if one not in dead and not math.isclose(one.compiled.mean, one.received, abs_tol=1e-6)]
    result.limit("compiled programs whose bytes aren't the plan's", "0", str(len(other)), not other)
    result.failures += [
        f"plan {one.received:.1f} B, program {one.compiled.mean:.1f} B {one.compiled.kinds}: {one.name}: {one.steps}"
        for one in other
    ]
    wrong = [
        one for one in measured if one.counted_bound is not None and not math.isclose(one.counted_bound, one.bound)
    ]
    result.limit("bounds that a count by device contradicts", "0", str(len(wrong)), not wrong)
    result.failures += [f"bound {one.bound:.1f} B, counted {one.counted_bound:.1f} B: {one.name}" for one in wrong]
    below = [one for one in measured if one.received < one.bound / SLACK]
    result.limit("plans below the bound (it would be wrong)", "0", str(len(below)), not below)
    result.failures += [f"below the bound: {one.name}: {one.received} B < {one.bound} B" for one in below]
