"""examples/train.py: one device's losses on every mesh, a state that keeps its layouts, a command that resumes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

import lamina

ROOT = Path(__file__).parent.parent
STEPS = 4
CHARACTERS = 37  # divides by nothing


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", ROOT / "examples" / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["train"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


train = example()
CONFIG = train.Config(layers=1, width=16, heads=4, hidden=24, length=8, batch=4, warmup=2, rate=1e-2)
TEXT = np.random.default_rng(0).integers(0, CHARACTERS, 500).astype(np.int32)


def trained(mesh: lamina.DeviceMesh) -> tuple[list[float], Any]:
    """The losses of some steps, and the state after them."""
    state, step = train.started(train.initial(CONFIG, CHARACTERS, mesh)), train.stepper(CONFIG)
    losses = []
    for _, batch in zip(range(STEPS), train.batches(TEXT, CONFIG, mesh), strict=False):
        state, loss = step(state, batch)
        losses.append(float(loss))
    return losses, state


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return trained(lamina.DeviceMesh.create((1, 1), ("dp", "tp")))[0]


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (1, 3)], ids=str)
def test_losses_are_those_of_one_device(alone, shape):
    check(alone, lamina.DeviceMesh.create(shape, ("dp", "tp")))


@pytest.mark.exhaustive(keep=100)
@pytest.mark.parametrize("shape", [(2, 4), (2, 2), (1, 3)], ids=str)
def test_losses_of_simulated_devices_are_those_of_one(alone, shape):
    check(alone, lamina.DeviceMesh.simulated(shape, ("dp", "tp")))


def check(alone: list[float], mesh: lamina.DeviceMesh) -> None:
    losses, state = trained(mesh)
    np.testing.assert_allclose(losses, alone, rtol=2e-5)
    assert losses[-1] < losses[0]
    start = train.started(train.initial(CONFIG, CHARACTERS, mesh))
    assert layouts(state) == layouts(start)


def layouts(state: Any) -> list[Any]:
    leaves = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, lamina.Tensor))
    return [leaf.sharding if isinstance(leaf, lamina.Tensor) else None for leaf in leaves]


def command(*arguments: Any, launcher: tuple[str, ...] = ()) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
    line = [sys.executable, *launcher, ROOT / "examples" / "train.py", *map(str, arguments)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_trains_and_goes_on_where_it_stopped(tmp_path):
    first = command("--mesh", "dp=2,tp=2", "--steps", 3, "--checkpoint", tmp_path)
    assert "from step 0" in first and "tokens/s" in first
    second = command("--steps", 5, "--simulated", "--checkpoint", tmp_path)  # on another mesh
    assert "from step 3" in second and "5/5" in second
    assert lamina.latest(tmp_path) == 5


@pytest.mark.processes
def test_the_command_trains_in_two_processes():
    said = command("--mesh", "dp=2", "--steps", 2, launcher=("-m", "lamina.cli", "launch", "-n", "2"))
    assert "2/2 loss" in said and said.count("weights on") == 1


def test_a_state_that_was_saved_goes_on_as_if_it_had_never_stopped(tmp_path):
    """On another mesh, too."""
    mesh = lamina.DeviceMesh.simulated((1, 1), ("dp", "tp"))
    step = train.stepper(CONFIG)
    state = train.started(train.initial(CONFIG, CHARACTERS, mesh))
    pieces = train.batches(TEXT, CONFIG, mesh)
    state, _ = step(state, next(pieces))
    lamina.save(tmp_path, state, step=1)
    other = lamina.DeviceMesh.create((2, 2), ("dp", "tp"))
    resumed = lamina.load(tmp_path, train.started(train.initial(CONFIG, CHARACTERS, other)))
    _, expected = step(state, next(pieces))
    _, found = train.stepper(CONFIG)(resumed, next(train.batches(TEXT, CONFIG, other, first=1)))
    np.testing.assert_allclose(found, expected, rtol=2e-5)
