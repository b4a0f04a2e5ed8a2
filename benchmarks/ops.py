"""Every communication op as the user calls it, beside the JAX program that does the same, compiled.

The first table is on 8 virtual CPU devices.  The second is Python's share: the op on a mesh that one device plays, over
the compiled program of the same op called directly, so that nothing but the way to the program differs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.figures import geomean, number, seconds_text
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved

AXES = ("dp", "tp")
MOST = 15e-6


@dataclass(frozen=True)
class Case:
    """An op on a tensor with these specs on a (2, 4) mesh, and its twin in raw JAX.

    `twin` is what each device does with its block under `shard_map`, and `out` where the results lie; without a twin
    the program is the identity from one sharding to the other.  `direct` is instead a call that needs no program.
    """

    name: str
    specs: tuple[Any, ...]
    op: Callable[[Any], Any]
    out: tuple[Any, ...] = ()
    twin: Callable[[Any], Any] | None = None
    direct: Callable[[Any], Any] | None = None


def _cases() -> list[Case]:
    import jax
    from jax import lax

    import lamina

    rows, both = ("dp", None), ("dp", "tp")
    swap = [(i, (i + 1) % 4) for i in range(4)]
    return [
        Case("shard (all-to-all)", rows, lambda x: lamina.shard(x, x.mesh, [None, "dp"]), (None, "dp")),
        Case("shard (reorder)", (AXES,), lambda x: lamina.shard(x, x.mesh, [AXES[::-1]]), (AXES[::-1],)),
        Case("shard (slice)", (), lambda x: lamina.shard(x, x.mesh, ["tp"]), ("tp",)),
        Case(
            "all_gather",
            both,
            partial(lamina.all_gather, axis=1),
            rows,
            lambda block: lax.all_gather(block, "tp", axis=1, tiled=True),
        ),
        Case(
            "all_to_all",
            rows,
            partial(lamina.all_to_all, split_axis=1, concat_axis=0),
            (None, "dp"),
            lambda block: lax.all_to_all(block, "dp", split_axis=1, concat_axis=0, tiled=True),
        ),
        Case("all_reduce", rows, lamina.all_reduce, (), lambda block: lax.psum(block, "dp")),
        Case(
            "reduce_scatter",
            rows,
            partial(lamina.reduce_scatter, axis=0),
            rows,
            lambda block: lax.psum_scatter(block, "dp", scatter_dimension=0, tiled=True),
        ),
        Case(
            "ppermute",
            both,
            partial(lamina.ppermute, permutation=swap, axis="tp"),
            both,
            lambda block: lax.ppermute(block, "tp", swap),
        ),
        Case("distributed_broadcast", both, lamina.distributed_broadcast, ()),
        Case(
            "to_device",
            both,
            lambda x: lamina.to_device(x, lamina.CPU(1)),
            direct=lambda array: jax.device_put(array, jax.devices()[1]),
        ),
    ]


def run(settings: Settings) -> Result:
    result = Result()
    cases = _cases()[: settings.choose(2, None, None)]
    sizes = settings.choose((64,), (64, 1024), (64, 1024, 4096))
    with progress("ops", len(cases) * (len(sizes) + 1)) as done:
        result.tables = [_beside_jax(result, cases, sizes, settings, done), _overhead(result, cases, settings, done)]
    return result


# -- beside raw JAX ---------------------------------------------------------------------------------------------------


def _beside_jax(result: Result, cases: list[Case], sizes: tuple[int, ...], settings: Settings, done: Callable) -> Table:
    import jax

    rows, ratios = [], []
    for case in cases:
        for size in sizes:
            ours, theirs = _both(case, size)
            loops, repeats = (5 if size <= 64 else 1), settings.choose(3, 15, 25)
            times = interleaved({"ours": ours, "theirs": theirs}, repeats, loops, jax.block_until_ready)
            ratios.append(times["ours"] / times["theirs"])
            rows.append((case.name, f"{size}²", *map(seconds_text, times.values()), number(ratios[-1])))
            done(1)
    result.limit("ops over the raw JAX program, geomean", "≤ 1.1", number(geomean(ratios)), geomean(ratios) <= 1.1)
    note = "Eager, float32, mesh (2, 4) of virtual CPU devices; medians of interleaved repeats."
    return Table("Each op beside raw JAX", ("op", "shape", "Lamina", "raw JAX", "ratio"), tuple(rows), note)


def _both(case: Case, size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The op and its twin, as calls without arguments; they must agree."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import lamina

    mesh = lamina.DeviceMesh.create((2, 4), AXES)
    x = lamina.shard(np.arange(size * size, dtype=np.float32).reshape(size, size), mesh, case.specs)
    array = x.jax()
    out = PartitionSpec(*case.out)
    if case.direct is not None:
        program = case.direct
    elif case.twin is None:
        program = jax.jit(lambda a: a, out_shardings=NamedSharding(array.sharding.mesh, out))
    else:
        into = PartitionSpec(*case.specs)
        body = jax.shard_map(case.twin, mesh=array.sharding.mesh, in_specs=into, out_specs=out, check_vma=False)
        program = jax.jit(body)
    np.testing.assert_allclose(case.op(x).numpy(), np.asarray(program(array)), rtol=1e-5)
    return partial(case.op, x), partial(program, array)


# -- Python's share ---------------------------------------------------------------------------------------------------


def _overhead(result: Result, cases: list[Case], settings: Settings, done: Callable) -> Table:
    import jax

    rows, shares = [], []
    for case in cases:
        if case.direct is not None:
            continue
        ours, program = _op_and_its_program(case)
        times = interleaved({"op": ours, "program": program}, settings.choose(5, 41, 81), 50, jax.block_until_ready)
        shares.append(times["op"] - times["program"])
        rows.append((case.name, *map(seconds_text, times.values()), f"{shares[-1] * 1e6:.1f} µs"))
        done(1)
    worst = max(shares)
    result.limit("Python's share of an eager op, worst", "≤ 15 µs", f"{worst * 1e6:.1f} µs", worst <= MOST)
    note = "8×8 float32 on a simulated (2, 4) mesh, where one device plays all and no two threads have to meet."
    return Table("An eager op over its compiled program", ("op", "eager", "program", "difference"), tuple(rows), note)


def _op_and_its_program(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The op on a Tensor, and the op jitted from raw array to raw array: what is left without any Python of ours."""
    import jax
    import numpy as np

    import lamina

    mesh = lamina.DeviceMesh.simulated((2, 4), AXES)
    x = lamina.shard(np.arange(64, dtype=np.float32).reshape(8, 8), mesh, case.specs)
    (array,), tree = jax.tree.flatten(x)
    program = jax.jit(lambda a: jax.tree.leaves(case.op(jax.tree.unflatten(tree, [a])))[0])
    return partial(case.op, x), partial(program, array)
