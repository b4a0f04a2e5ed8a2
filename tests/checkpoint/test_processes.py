"""Two processes that save and load together, and one that goes on with what two have saved."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina
from lamina import DeviceMesh
from tests.checkpoint.worker import SHAPES
from tests.strategies import values

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.processes


def started(starter: str, count: int, path: Path, *scenarios: str) -> list[list[Any]]:
    """What each process says of each scenario."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    workers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.checkpoint.worker",
                starter,
                str(rank),
                str(count),
                str(port),
                str(path),
                *scenarios,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        for rank in range(count)
    ]
    try:
        said = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, said, strict=True):
        assert worker.returncode in (0, -9 if "killed" in scenarios else 0), errors
    lines = [[line.removeprefix("said ") for line in out.splitlines() if line.startswith("said ")] for out, _ in said]
    return [[json.loads(line) for line in of_one] for of_one in lines]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """All scenarios, in processes that are started once; one process has saved `alone` before."""
    path = tmp_path_factory.mktemp("runs")
    os.environ.pop("LAMINA_CHECKPOINT_TIMEOUT", None)
    started("lamina", 1, path, "save:alone")
    names = ("save", "reload:save", "reload:alone", "backgrounds", "differ", "fails")
    first, second = started("lamina", 2, path, *names)
    return path, {name: said for name, *said in zip(names, first, second, strict=True)}


def boxes(entries):
    return [(folder, tuple(map(tuple, where))) for folder, where in entries]


def test_each_process_writes_its_own_blocks_each_once(outcome):
    _, said = outcome
    first, second = map(boxes, said["save"])
    assert max(Counter(first + second).values()) == 1
    of = lambda entries, folder: sorted(where for name, where in entries if name == folder)  # noqa: E731
    assert of(first, "split.uneven") == [((0, 4), (0, 5)), ((0, 4), (5, 10))]
    assert of(second, "split.uneven") == [((4, 7), (0, 5)), ((4, 7), (5, 10))]
    assert len(of(first, "copies")) == 1 and not of(second, "copies")
    for name in ("host", "local", "own", "simulated"):  # each process has these for itself
        assert len(of(first, name)) == 1 and not of(second, name)
    assert len(of(second, "one")) == 1 and not of(first, "one")
    assert of(first, "pieces") == [((0, 1), (0, 3), (0, 4)), ((0, 1), (3, 5), (0, 4))]
    assert of(second, "pieces") == [((1, 2), (0, 3), (0, 4)), ((1, 2), (3, 5), (0, 4))]


def test_one_process_writes_small_leaves_as_one_file(outcome):
    path, _ = outcome
    count = lambda run: len(list((path / run / "step-00000001" / "arrays" / "split.even").glob("c*")))  # noqa: E731
    assert (count("save"), count("alone")) == (4, 1)


@pytest.mark.parametrize("name", ["reload:save", "reload:alone"])
def test_each_process_reads_its_own_blocks(outcome, name):
    for good, read in outcome[1][name]:
        assert good
        elements = Counter()
        for folder, where in read:
            elements[folder] += math.prod(stop - start for start, stop in where)
        rank = outcome[1][name].index([good, read])
        assert elements["split.even"] == 32 and elements["split.uneven"] == (40, 30)[rank]
        assert elements["pieces"] == 20 and elements["copies"] == 9


def test_one_process_goes_on(outcome):
    path, _ = outcome
    mesh = DeviceMesh.create((2, 4), ("dp", "tp"))
    for run in ("save", "alone"):
        found = lamina.load(path / run, lamina.NamedMapping(mesh, ["tp"]) if run == "save" else None)
        for name, shape in SHAPES.items():
            np.testing.assert_array_equal(np.asarray(found["split"][name]), values(shape))
            np.testing.assert_array_equal(np.asarray(found["rows"][f"{name} rows"]), values(shape))
        np.testing.assert_array_equal(np.asarray(found["pieces"]), values((5, 4)))
        assert found["step"] == 7


def test_saves_in_the_background(outcome):
    assert outcome[1]["backgrounds"] == [[3, True], [3, True]]


def test_processes_that_save_different_things(outcome):
    (first, left), (second, _) = outcome[1]["differ"]
    assert left == []
    assert first[:3] == second[:3]
    assert "the processes don't save the same a\n  fix: save the same leaves" in first[0]
    assert "process 1 saves 1 leaves, and process 0 0" in first[1]
    assert "process 1 saves step 2, and process 0 step 1" in first[2]
    assert "process 1 failed: a: <object object" in first[3] and "a: <object object" in second[3]


def test_a_process_that_fails(outcome):
    (first, left), (second, also_left) = outcome[1]["fails"]
    assert left == also_left == ["step-00000001"]
    assert "process 1 failed: No space left on device" in first[0] and second[0] == "No space left on device"
    assert first[:2] == [first[0]] * 2 and second[:2] == [second[0]] * 2
    assert "process 1 failed: split/even: the file " in first[2] and "is truncated" in second[2]


@pytest.mark.parametrize(
    ("starter", "kind", "words"),
    [
        ("lamina", "ProcessError", "process 1"),
        ("jax", "CheckpointError", "nothing was heard of process 1 for 2 s"),
    ],
)
def test_a_process_that_dies(tmp_path, starter, kind, words):
    (said, *_), _ = started(starter, 2, tmp_path, "killed")
    assert said[0] == kind and words in said[1], said
    assert "step-00000001" in said[2] and "step-00000002" not in said[2]
    assert lamina.latest(tmp_path / "killed") == 1 and lamina.load(tmp_path / "killed")["step"] == 7
