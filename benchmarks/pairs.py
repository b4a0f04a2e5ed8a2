"""Bytes: what every pair of layouts makes a device receive, by Lamina's plan, by XLA, and at least.

* Lamina's bytes are its plan's; for a sample the program is compiled and its own HLO counted, and both must agree.
* XLA's are counted in the HLO that `jax.jit` of the identity compiles to. It can be asked about even layouts without
  Partial axes only: JAX has no uneven shards, and no way to say Partial at the border of a program.
  By default a sample of 600 pairs per mesh and rank is compiled; `--full` compiles all, some 40,000 (half an hour).
* The bound is the planner's. Where nothing is Partial it is counted again here, device by device.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from benchmarks.answers import answers_to
from benchmarks.compiling import Answer, Job
from benchmarks.layouts import MESHES, Family, families, least_bytes
from benchmarks.pair import Measured
from benchmarks.pair_tables import result_of
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings
from lamina.planning import plan
from lamina.sharding import Layout


def run(settings: Settings) -> Result:
    chosen = families(settings.meshes or settings.choose(((2, 2, 2), (2, 3)), MESHES, MESHES))
    if settings.quick:
        chosen = [family for family in chosen if family.rank == 2]
    return result_of([one for family in chosen for one in _measure(family, settings)])


def _measure(family: Family, settings: Settings) -> list[Measured]:
    """All numbers of one family; the compilers work in other processes while this one plans."""
    pairs = family.pairs(settings.choose(10, 2400, None))
    sample = _spread(len(pairs), settings.choose(1, 12, 60))
    asked = _spread(len(pairs), settings.choose(10, 600, None)) if family.even and not family.pieces else range(0)

    def jobs(who: str, numbers: Sequence[int]) -> list[Job]:
        return [Job(who, *pairs[number], family.shape, settings.topology) for number in numbers]

    answers: list[Answer] = []
    with progress(family.name, len(pairs) + len(asked) + len(sample)) as done:
        everything = [*jobs("jax", asked), *jobs("lamina", sample)]
        compiling = threading.Thread(
            target=lambda: answers.extend(answers_to(everything, settings.workers, done)), daemon=True
        )
        compiling.start()
        planned = [_planned(family, *pair, settings.topology, done) for pair in pairs]
        compiling.join()
    if len(answers) != len(everything):
        raise RuntimeError(f"the compilers of {family.name} gave {len(answers)} of {len(everything)} answers")
    by_jax = dict(zip(asked, answers, strict=False))
    by_lamina = dict(zip(sample, answers[len(asked) :], strict=True))
    return [
        Measured(family, *pairs[number], *numbers, by_jax.get(number), by_lamina.get(number))
        for number, numbers in enumerate(planned)
    ]


def _spread(count: int, most: int | None) -> range:
    """Some `most` of so many numbers, evenly spread.

    >>> list(_spread(10, 4)), list(_spread(3, 4)), list(_spread(3, None))
    ([0, 3, 6, 9], [0, 1, 2], [0, 1, 2])
    """
    return range(0, count, 1 if most is None else -(-count // most))


def _planned(family: Family, source: Layout, target: Layout, topology: str, done) -> tuple:
    route = plan(source, target, family.shape, 4, None, topology)
    counted = None if family.pieces else least_bytes(source, target, family.shape)
    done(1)
    steps = "; ".join(map(str, route.steps))
    return route.bytes_received.mean, route.lower_bound.mean, counted, route.peak_memory, steps
