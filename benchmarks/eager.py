"""One process, 8 virtual CPU devices: `lamina.shard` as the user calls it, beside the better of JAX's two ways.

Whoever is above 1.1 is measured again with four times the repeats, all three ways alike, and the second time counts:
of hundreds of medians of a few repeats some are far off by chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import geomean, number, percentile, seconds_text, thinned
from benchmarks.layouts import Family, Pair
from benchmarks.progress import progress
from benchmarks.settings import Curve, Result, Settings, Table
from benchmarks.timing import interleaved

MOST = 1.1


@dataclass(frozen=True)
class Timed:
    """One pair at one shape: the median seconds of each way."""

    pair: Pair
    shape: tuple[int, ...]
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Lamina's time over the better of JAX's."""
        return self.seconds["lamina"] / min(self.seconds["jax.jit"], self.seconds["jax.device_put"])

    @property
    def name(self) -> str:
        source, target = self.pair
        return f"{source} → {str(target).partition('] ')[2]} {'×'.join(map(str, self.shape))}"


def run(settings: Settings) -> Result:
    pairs = Family((2, 2, 2), 2, True, False).pairs(settings.choose(4, 150, None))
    shapes = settings.choose(((64, 64),), ((64, 64), (1024, 1024)), ((64, 64), (1024, 1024)))
    timed = []
    with progress("eager reshards", len(pairs) * len(shapes)) as done:
        for shape in shapes:
            for pair in pairs:
                timed.append(_measure(pair, shape, settings.choose(3, 7, 7)))
                done(1)
    return _result(timed)


def _measure(pair: Pair, shape: tuple[int, ...], repeats: int) -> Timed:
    import jax

    contestants = _ways(*pair, shape)
    loops = 5 if shape[0] <= 64 else 1
    first = Timed(pair, shape, interleaved(contestants, repeats, loops, jax.block_until_ready))
    if first.ratio <= MOST:
        return first
    return Timed(pair, shape, interleaved(contestants, 4 * repeats, loops, jax.block_until_ready))


def _ways(source: Any, target: Any, shape: tuple[int, ...]) -> dict[str, Callable[[], Any]]:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import lamina

    mesh = lamina.DeviceMesh.create(tuple(source.sizes.values()), tuple(source.sizes))
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    x, specs = lamina.shard(value, mesh, source.dims), list(target.dims)
    array = x.jax()
    there = NamedSharding(array.sharding.mesh, PartitionSpec(*(axes or None for axes in target.dims)))
    identity = jax.jit(lambda a: a, out_shardings=there)
    np.testing.assert_array_equal(lamina.shard(x, mesh, specs).numpy(), value)
    return {
        "lamina": lambda: lamina.shard(x, mesh, specs),
        "jax.jit": lambda: identity(array),
        "jax.device_put": lambda: jax.device_put(array, there),
    }


def _result(timed: list[Timed]) -> Result:
    result = Result(axis="Lamina's time over that of the better of JAX's two ways")
    rows = []
    for shape in dict.fromkeys(one.shape for one in timed):
        members = [one for one in timed if one.shape == shape]
        ratios = [one.ratio for one in members]
        spread = geomean(ratios), percentile(ratios, 0.9), max(ratios)
        over = sum(ratio > MOST for ratio in ratios)
        rows.append(("×".join(map(str, shape)), len(members), *map(number, spread), over))
        result.curves.append(Curve(f"{shape[0]}², Lamina over JAX's best", thinned(ratios)))
    columns = ("shape", "pairs", "geomean", "p90", "worst", f"above {MOST}")
    note = "Lamina's time over the better of `jax.jit` identity and `jax.device_put`, eager, one process."
    result.tables = [Table("Eager reshards on 8 virtual CPU devices", columns, tuple(rows), note), _worst(timed)]
    slow = [one for one in timed if one.ratio > MOST]
    worst = max(one.ratio for one in timed)
    found = f"{number(worst)}; {len(slow)} of {len(timed)} above"
    result.limit("one process, eager, over the best of the two", f"≤ {MOST}", found, not slow)
    return result


def _worst(timed: list[Timed]) -> Table:
    worst = sorted(timed, key=lambda one: -one.ratio)[:10]
    rows = tuple((one.name, number(one.ratio), *map(seconds_text, one.seconds.values())) for one in worst)
    return Table("The worst ten", ("pair", "ratio", *worst[0].seconds), rows)
