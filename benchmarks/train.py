"""A jitted train step of examples/train.py beside the same model in plain `jax.jit` with NamedShardings.

Bytes are read from the compiled HLO of both, times are medians of interleaved steps on 8 virtual CPU devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.figures import bytes_text, number, seconds_text
from benchmarks.hlo import Traffic, traffic
from benchmarks.progress import progress
from benchmarks.settings import Result, Settings, Table
from benchmarks.timing import interleaved

MOST = 1.05
MESHES = ((1, 8), (2, 4), (4, 2), (8, 1))
CHARACTERS = 128  # JAX's arrays must divide


@dataclass(frozen=True)
class Contestant:
    """One step, compiled: what it costs to compile, to move, and to run."""

    traffic: Traffic
    compiling: float
    losses: tuple[float, ...]
    call: Callable[[], Any]


def run(settings: Settings) -> Result:
    result = Result()
    meshes = settings.choose(((2, 4),), MESHES, MESHES)
    rows, kinds, ratios, bytes_ratios = [], [], [], []
    with progress("train steps", len(meshes)) as done:
        for shape in meshes:
            both = _contestants(shape, settings)
            _same_losses(both)
            calls = {name: one.call for name, one in both.items()}
            times = interleaved(calls, settings.choose(3, 15, 41), wait=lambda loss: loss.block_until_ready())
            name = "×".join(map(str, shape))
            ours, theirs = both["lamina"], both["jax"]
            ratios.append(times["lamina"] / times["jax"])
            bytes_ratios.append(ours.traffic.mean / theirs.traffic.mean)
            moved = map(bytes_text, (ours.traffic.mean, theirs.traffic.mean))
            compiling = map(seconds_text, (ours.compiling, theirs.compiling))
            both_times = map(seconds_text, (times["lamina"], times["jax"]))
            rows.append((name, *both_times, number(ratios[-1]), *moved, number(bytes_ratios[-1]), *compiling))
            kinds += [(name, who, *_counts(one.traffic)) for who, one in both.items()]
            done(1)
    columns = ("dp×tp", "Lamina", "JAX", "ratio", "bytes, Lamina", "JAX", "ratio", "compiling, Lamina", "JAX")
    note = (
        f"{_config(settings)}, {CHARACTERS} characters, float32; bytes that a device receives in a step, on the mean."
    )
    result.tables = [
        Table("A train step beside plain JAX", columns, tuple(rows), note),
        Table("Its collectives", ("dp×tp", "who", *_KINDS), tuple(kinds)),
    ]
    result.limit("train step over plain JAX, worst", f"≤ {MOST}", number(max(ratios)), max(ratios) <= MOST)
    most = max(bytes_ratios)
    result.limit("bytes of a train step over plain JAX's, worst", "≤ 1", number(most), most <= 1)
    return result


_KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")


def _counts(found: Traffic) -> tuple[int, ...]:
    return tuple(found.kinds.get(kind, 0) for kind in _KINDS)


def _config(settings: Settings) -> Any:
    from examples.train import Config

    small = Config(layers=2, width=64, heads=8, hidden=256, length=32, batch=16)
    return settings.choose(
        small, Config(layers=2, width=256, heads=8, hidden=1024, length=128, batch=16), Config(heads=8)
    )


def _contestants(shape: tuple[int, int], settings: Settings) -> dict[str, Contestant]:
    import jax
    import numpy as np

    import lamina
    from benchmarks import plain_transformer
    from examples import train

    config = _config(settings)
    mesh = lamina.DeviceMesh.create(shape, ("dp", "tp"))
    text = np.random.default_rng(0).integers(0, CHARACTERS, 10_000).astype(np.int32)
    state = train.started(train.initial(config, CHARACTERS, mesh))
    batch = next(train.batches(text, config, mesh))
    # The arrays of even Tensors are ordinary ones with NamedShardings: JAX's model starts from copies of the same.
    plain = jax.tree.map(
        lambda t: (t.jax() if isinstance(t, lamina.Tensor) else t).copy(),
        (state, batch),
        is_leaf=lambda leaf: isinstance(leaf, lamina.Tensor),
    )
    steps = {
        "lamina": (train.stepper(config), state, batch),
        "jax": (plain_transformer.stepper(config, plain[1][0].sharding.mesh), *plain),
    }
    return {name: _contestant(*step) for name, step in steps.items()}


def _contestant(step: Any, state: Any, batch: Any) -> Contestant:
    began = perf_counter()
    compiled = step.lower(state, batch).compile()
    compiling = perf_counter() - began
    held = [state]

    def call() -> Any:
        held[0], loss = compiled(held[0], batch)
        return loss

    return Contestant(traffic(compiled.as_text()), compiling, tuple(float(call()) for _ in range(3)), call)


def _same_losses(both: dict[str, Contestant]) -> None:
    import numpy as np

    np.testing.assert_allclose(both["lamina"].losses, both["jax"].losses, rtol=1e-4)
