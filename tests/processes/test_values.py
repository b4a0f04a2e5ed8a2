"""Values over processes that are really started: all pairs of layouts, reads, parts, meshes of some processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.launching import launched_well
from tests.processes.programs import pairs
from tests.strategies import all_layouts

pytestmark = pytest.mark.processes

LAYOUTS = len(all_layouts({"x": 2, "y": 2, "z": 2}, 2))
STRIDE, EAGER_STRIDE = 24, 260
FAST_COMPILE = "--xla_backend_optimization_level=0"  # the programs are compiled by each process, and run once


@pytest.mark.exhaustive(keep=1000)
@pytest.mark.parametrize("first", range(STRIDE))
def test_all_pairs_of_layouts(first):
    """Over 4 processes of 2 devices: with --exhaustive every pair."""
    sources = len(range(first, LAYOUTS, STRIDE))
    options = ["--devices-per-process", "2"]
    done = launched_well(
        "all_pairs", str(first), str(STRIDE), processes=4, options=options, limit=400, XLA_FLAGS=FAST_COMPILE
    )
    for rank in range(4):
        assert done.said(rank)[-1] == f"checked {sources * LAYOUTS} pairs"


def test_pairs_one_by_one():
    """Eagerly, as users call `shard`: the program check and the watchdog look at each; Partial ones too."""
    options = ["--devices-per-process", "2"]
    done = launched_well("pairs", str(EAGER_STRIDE), processes=4, options=options, XLA_FLAGS=FAST_COMPILE)
    count = len(list(pairs.cases(EAGER_STRIDE)))
    assert count > 10
    assert {done.said(rank)[-1] for rank in range(4)} == {f"checked {count} pairs"}


@pytest.mark.exhaustive(keep=1000)
@pytest.mark.parametrize("processes", [2, 4])
def test_reads_and_parts(processes):
    done = launched_well(
        "reads", processes=processes, options=["--devices-per-process", "2"], limit=300, XLA_FLAGS=FAST_COMPILE
    )
    assert all(done.said(rank)[-1] == "read everything" for rank in range(processes))


@pytest.mark.exhaustive(keep=1000)
@pytest.mark.parametrize(
    ("example", "says"),
    [
        (["demo.py"], "results matched numpy"),
        (["train.py", "--mesh", "dp=2,tp=4", "--steps", "3"], "3/3 loss 4."),
    ],
    ids=["demo", "train"],
)
def test_the_examples_run_unchanged(example, says):
    program = Path(__file__).parent.parent.parent / "examples" / example[0]
    options = ["--devices-per-process", "4"]
    done = launched_well(program, *example[1:], processes=2, options=options, limit=300, XLA_FLAGS=FAST_COMPILE)
    assert says in "\n".join(done.said(0)[-3:])


def test_graphs():
    """Per-device graphs over the devices of two processes."""
    options = ["--devices-per-process", "2"]
    done = launched_well("graphs", processes=2, options=options, limit=300, XLA_FLAGS=FAST_COMPILE)
    assert [done.said(rank)[-1] for rank in range(2)] == ["graphs are right"] * 2
