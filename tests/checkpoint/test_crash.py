"""kill -9 at any moment of a save: the steps that were complete stay whole, and the next save goes on."""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lamina
from tests.checkpoint.crashing import is_tree_of

ROOT = Path(__file__).parent.parent.parent
KILLS = 50


class Saver:
    """The process that is killed again and again, and what it says."""

    def __init__(self, path: Path):
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "tests.checkpoint.crashing", str(path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.hear() == "ready"

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def hear(self) -> str:
        return self.lines.get(timeout=120)

    def start(self, operation: int, first: int) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{operation} {first}\n")
        self.process.stdin.flush()
        word = self.hear()
        return int(word.removeprefix("pid "))

    def until_dead(self) -> list[int]:
        """The steps that it said were saved, since it was heard last."""
        said = []
        while (word := self.hear()) != "dead":
            said.append(int(word))
        return said

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def saver(tmp_path):
    saver = Saver(tmp_path / "run")
    yield saver
    saver.stop()


def check_steps(path: Path, saved: int) -> None:
    """Each step that is there is whole, and the last one that `save` returned from is there, or a later one."""
    there = [int(entry.name.removeprefix("step-")) for entry in path.iterdir() if entry.name.startswith("step-")]
    assert len(there) <= 3, "keep=2, and one that is being deleted or replaced"
    for step in there:
        assert is_tree_of(step, lamina.load(path, step=step)), step
    latest = lamina.latest(path)
    assert (latest is None and saved < 0) or (latest is not None and latest >= saved)


def test_killed_at_random_moments(tmp_path, saver):
    path, saved, random_ = tmp_path / "run", -1, random.Random(0)
    path.mkdir()
    for _ in range(KILLS):
        latest = lamina.latest(path)
        child = saver.start(0, 0 if latest is None else latest + 1)
        saved = max(saved, int(saver.hear()))  # it has begun to save
        time.sleep(random_.uniform(0, 0.04))
        os.kill(child, signal.SIGKILL)
        saved = max([saved, *saver.until_dead()])
        check_steps(path, saved)
    assert saved >= KILLS


@pytest.mark.exhaustive(keep=100)
@pytest.mark.parametrize("residue", [1, 2, 0])
def test_killed_at_every_file_operation(tmp_path, saver, residue):
    """Of three saves in a row, the third of which deletes the first; all operations with --exhaustive, else a third."""
    path, saved, operation = tmp_path / "run", -1, 0
    path.mkdir()
    for operation in range(residue or 3, 1000, 3):
        latest = lamina.latest(path)
        first = 0 if latest is None else latest + 1
        saver.start(operation, first)
        said = saver.until_dead()
        saved = max([saved, *said])
        check_steps(path, saved)
        if len(said) >= 3:
            break
    assert operation > 30, "the operations of three saves"
