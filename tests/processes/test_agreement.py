"""LAMINA_CHECK=1: who doesn't run the same program as the others learns so, and so do they, before anything runs."""

from __future__ import annotations

import pytest

from tests.processes.launching import launched

pytestmark = pytest.mark.processes

SIDES = {  # what processes 0 and 2 are about to run, and what process 1 is
    "another target": ("[x=3] x,- → [x=3] -,- of float32[6,6]", "[x=3] x,- → [x=3] -,x of float32[6,6]"),
    "another dtype": ("[x=3] x,- → [x=3] -,- of float32[6,6]", "[x=3] x,- → [x=3] -,- of int32[6,6]"),
    "another shape": ("[x=3] x,- → [x=3] -,- of float32[6,6]", "[x=3] x,- → [x=3] -,- of float32[6,9]"),
    "another op": ("[x=3] x,- → [x=3] -,- of float32[6,6]", "ppermute [(0, 1)] in [x=3] x,- of float32[6,6]"),
    "another permutation": (
        "ppermute [(1, 0)] in [x=3] x,- of float32[6,6]",
        "ppermute [(0, 1)] in [x=3] x,- of float32[6,6]",
    ),
    "another computation": ("multiply: [x=3] x,-, [x=3] x,- → [x=3] x,-", "add: [x=3] x,-, [x=3] x,- → [x=3] x,-"),
    "another reduction": ("min: [x=3] x,- → [x=3] () +min(x)", "max: [x=3] x,- → [x=3] () +max(x)"),
}


def test_mismatches():
    done = launched("mismatches", processes=3)
    for rank in range(3):
        said = [line for line in done.said(rank) if line.startswith("another") and "another mesh" not in line]
        assert [line.partition(":")[0] for line in said] == list(SIDES), done.out + done.errors
        for line in said:
            most, one = SIDES[line.partition(":")[0]]
            assert "the processes don't run the same program; about to run were" in line
            assert f"| process 0, 2: {most}" in line
            assert f"| process 1: {one}" in line
            assert line.endswith(
                "fix: call the same ops with the same layouts, shapes and dtypes, in the same order, on every process"
            )
        assert "all agree again" in done.said(rank)


def test_another_mesh():
    """Process 1 waits for 0 and 1 alone, the others for all: neither can ever be complete."""
    done = launched("mismatches", processes=3)
    lines = [line for rank in range(3) for line in done.said(rank) if line.startswith("another mesh")]
    assert len(lines) >= 2
    assert any("[x=2] x → [x=2] - of float32[4]" in line and "[x=3] x,- → [x=3] -,-" in line for line in lines)
    assert done.seconds < 60
