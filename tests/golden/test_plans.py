"""The plans of a telling set of pairs, as text: what changes in the planner shows in the diff of these files.

`make test ARGS='tests/golden --update-golden'` writes them anew.  Read the diff before you commit it: fewer bytes or
steps are the point, more of them need a reason.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import numpy as np
import pytest

from lamina.planning.simulate import collect, run, scatter
from tests.golden.cases import TOPICS, Pair, written
from tests.strategies import values

FOLDER = Path(__file__).parent


def difference(kept: str, now: str) -> str:
    return "\n".join(unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm=""))


@pytest.mark.parametrize("topic", TOPICS)
def test_plans_are_those_that_were_kept(topic, request):
    path, now = FOLDER / f"{topic}.txt", written(topic)
    if request.config.getoption("--update-golden"):
        path.write_text(now, encoding="utf-8")
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    assert now == kept, f"{path.name} (--update-golden writes it anew):\n{difference(kept, now)}"


def test_every_file_has_its_topic():
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(TOPICS)


def test_a_changed_plan_shows():
    kept = written("partial").replace("reduce-scatter", "all-reduce")
    shown = difference(kept, written("partial")).splitlines()
    assert "-  1. all-reduce sum over tp into dim 1: 192 B" in shown
    assert "+  1. reduce-scatter sum over tp into dim 1: 192 B" in shown


@pytest.mark.parametrize(
    "pair", [pair for pairs in TOPICS.values() for pair in pairs if isinstance(pair, Pair)], ids=lambda pair: pair.why
)
def test_the_values_are_right_too(pair):
    """So that nobody updates the files to nonsense: the numpy interpreter walks every plan."""
    plan = pair.plan
    value = values(plan.shape)
    blocks = run(plan, scatter(value, plan.source))
    np.testing.assert_array_equal(collect(blocks, plan.target, plan.shape, value.dtype), value)
