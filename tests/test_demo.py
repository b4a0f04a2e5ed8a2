"""The demo runs as a newcomer runs it, and says what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo.py"
STOPS = ["A mesh", "Shard", "Reshard", "Uneven", "Reduce", "Differentiate", "Simulate"]


@pytest.fixture(scope="module")
def output() -> str:
    """What it prints where the output is no terminal and the locale knows only ASCII."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LC_ALL": "C", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, DEMO], env=environment, capture_output=True, timeout=300)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode("utf-8")


def test_it_visits_every_stop(output: str) -> None:
    assert re.findall(r"^(\S.*?) ─+$", output, re.MULTILINE) == STOPS
    assert "\x1b" not in output


def test_it_draws_who_holds_what(output: str) -> None:
    for line in [
        "8×8 as [dp=2,tp=4] -,(tp,dp)",
        " 8 │  0  │  4  │  1  │  5  │  2  │  6  │  3  │  7  │",
        "10×3 as [dp=2,tp=4] tp,dp",
        "8×6 as [dp=2,tp=4] dp,- +sum(tp)",
        "Σ(0, 1, 2, 3)",
        "8×6 as [dp=4,tp=8] dp,- +sum(tp)",
    ]:
        assert line in output
    assert "in all, per device" in output  # the plan


def test_every_result_was_checked(output: str) -> None:
    count = len(re.findall(r"^  ✓ ", output, re.MULTILINE))
    assert count >= 15
    assert re.search(rf"^All {count} results matched numpy in \d+\.\d s\.$", output, re.MULTILINE)
    assert output.splitlines()[-1].startswith("All ")


def test_the_calls_that_it_shows_are_the_calls_that_it_makes(output: str) -> None:
    source = DEMO.read_text(encoding="utf-8")
    shown = re.findall(r"^  (\w+ = .+)$", output, re.MULTILINE)
    assert len(shown) == len(STOPS) - 1
    for call in shown:
        assert re.search(rf"^ +{re.escape(call)}$", source, re.MULTILINE), call
