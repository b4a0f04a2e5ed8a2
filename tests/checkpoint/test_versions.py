"""The directory of steps: which are there, which stay, and what a save leaves behind."""

from __future__ import annotations

import numpy as np
import pytest

import lamina
from lamina import CheckpointError


def steps(path):
    return sorted(int(entry.name.removeprefix("step-")) for entry in path.iterdir())


def test_latest_and_each_step(tmp_path):
    assert lamina.latest(tmp_path) is None and lamina.latest(tmp_path / "nowhere") is None
    for step in (3, 100_000_000, 20):
        assert lamina.save(tmp_path, {"a": step}, step=step).step == step
    assert lamina.latest(tmp_path) == 100_000_000
    assert [lamina.load(tmp_path, step=step)["a"] for step in (3, 20, 100_000_000)] == [3, 20, 100_000_000]
    assert lamina.load(tmp_path)["a"] == 100_000_000
    assert lamina.load(tmp_path / "step-00000003")["a"] == 3  # the folder of a step itself


def test_without_a_step_it_is_the_next(tmp_path):
    assert [lamina.save(tmp_path / "new" / "run", 0).step for _ in range(3)] == [0, 1, 2]
    lamina.save(tmp_path / "new" / "run", 0, step=np.int64(10))
    assert lamina.save(tmp_path / "new" / "run", 0).step == 11


@pytest.mark.parametrize(
    ("keep", "left"),
    [(None, [0, 1, 2, 3, 4]), (1, [4]), (3, [2, 3, 4]), (9, [0, 1, 2, 3, 4]), (lambda all: [], [4])],
)
def test_keep(tmp_path, keep, left):
    for step in range(5):
        lamina.save(tmp_path, step, step=step, keep=keep)
    assert steps(tmp_path) == left


def test_keep_as_a_function_of_the_steps(tmp_path):
    for step in range(8):
        lamina.save(tmp_path, step, step=step, keep=lambda all: {s for s in all if s % 3 == 0} | set(all[-2:]))
    assert steps(tmp_path) == [0, 3, 6, 7]


def test_an_earlier_step_than_the_latest_stays_when_it_is_saved(tmp_path):
    for step in (5, 6, 2):
        lamina.save(tmp_path, step, step=step, keep=2)
    assert steps(tmp_path) == [2, 5, 6]


def test_a_step_is_saved_once(tmp_path):
    lamina.save(tmp_path, {"a": 1}, step=3)
    with pytest.raises(CheckpointError, match=r"(?s)^save\('.*'\): step 3 is there already: .*/step-00000003\n  fix: "):
        lamina.save(tmp_path, {"a": 2}, step=3)
    assert lamina.load(tmp_path) == {"a": 1}
    assert steps(tmp_path) == [3]


def test_what_dead_processes_left_is_cleared_away(tmp_path):
    lamina.save(tmp_path, {"a": 1})
    for name in (".saving-00000001", ".deleted-00000000"):
        (tmp_path / name / "arrays").mkdir(parents=True)
    assert lamina.latest(tmp_path) == 0 and lamina.load(tmp_path) == {"a": 1}
    lamina.save(tmp_path, {"a": 2})
    assert steps(tmp_path) == [0, 1]


def test_a_failed_save_leaves_nothing(tmp_path, monkeypatch):
    from lamina.checkpoint.arrays import Stored

    lamina.save(tmp_path, {"a": np.ones(3)})

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Stored, "write", full)
        with pytest.raises(OSError, match="No space left"):
            lamina.save(tmp_path, {"a": np.zeros(3)})
    assert steps(tmp_path) == [0]
    assert lamina.load(tmp_path)["a"].tolist() == [1, 1, 1]
    assert lamina.save(tmp_path, {"a": np.zeros(3)}).step == 1


def test_files_that_process_0_does_not_see(tmp_path, monkeypatch):
    """As on hosts that don't share the file system."""
    from lamina.checkpoint import versions, writing

    monkeypatch.setattr(writing, "_write_parts", lambda *_: 3)
    with pytest.raises(CheckpointError, match=r"(?s)wrote 3 files, but process 0 sees 0 of them.*fix: .* share"):
        lamina.save(tmp_path, {"a": np.ones(3)})
    assert versions.steps(tmp_path) == []
