"""One process dies, stops, raises or doesn't come: an error on the others in time, and nothing left."""

from __future__ import annotations

import re
import signal

import pytest

from tests.processes.launching import Launched, launched, of_this_suite

pytestmark = pytest.mark.processes

TIMEOUT = 10.0  # a busy machine may well keep a process from beating for some seconds
MOMENTS = ["before", "during", "after"]


def failing(what: str, victim: int, when: str = "before", processes: int = 4, devices: int = 2) -> Launched:
    tag = f"tag-{what}-{victim}-{when.replace(' ', '-')}"
    options = ["--timeout", f"{TIMEOUT:g}", "--devices-per-process", str(devices), "--grace", "2"]
    # The check would find some of these before the watchdog does, which is what is tested here.
    done = launched("faults", what, str(victim), when, tag, processes=processes, options=options, LAMINA_CHECK="0")
    assert of_this_suite(tag) == []
    assert all("ready" in done.said(rank) for rank in range(processes)), done.out + done.errors
    return done


def learnt(done: Launched, rank: int) -> tuple[float, str]:
    """When a process got its ProcessError, and what it said."""
    lines = [line for line in done.said(rank) if line.startswith("learnt after")]
    assert len(lines) == 1, f"process {rank} said {done.said(rank)}\n{done.errors}"
    match = re.fullmatch(r"learnt after ([\d.]+) s: (.*)", lines[0])
    assert match is not None
    return float(match[1]), match[2]


@pytest.mark.exhaustive(keep=3)
@pytest.mark.parametrize(("victim", "when"), [(victim, when) for victim in range(4) for when in MOMENTS])
def test_a_process_that_is_killed(victim, when):
    done = failing("die", victim, when)
    assert done.code == 128 + signal.SIGKILL
    assert done.verdict == f"lamina launch: process {victim} failed first, by SIGKILL"
    for rank in {0, 1, 2, 3} - {victim}:
        seconds, error = learnt(done, rank)
        assert re.match(rf"process {victim} \(pid \d+ on .*\) died fix: look at its last output", error)
        assert seconds < TIMEOUT


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_raises(victim):
    done = failing("raise", victim, processes=2)
    assert done.code == 1
    assert done.verdict == f"lamina launch: process {victim} failed first, with exit code 1"
    _, error = learnt(done, 1 - victim)
    assert error.startswith(f"process {victim} raised ValueError: the victim's own error | Traceback")
    assert "runpy" not in error  # the frames of the launcher aren't the program's
    last = done.errors.splitlines()[-2:]
    assert last[0] == f"[{victim}] ValueError: the victim's own error"  # its traceback stands last, above the verdict


def test_a_process_that_ends_with_an_exit_code():
    done = failing("exit", 1, processes=2)
    assert done.code == 7
    assert done.verdict == "lamina launch: process 1 failed first, with exit code 7"
    assert learnt(done, 0)[1] == "process 1 ended with exit code 7"


def test_a_process_that_ends_while_another_waits_for_it():
    done = failing("return", 1, processes=2)
    assert done.code == 1
    assert "process 1 failed first" in done.verdict
    seconds, error = learnt(done, 0)
    assert "process 1 ended its program, while process 0 has waited" in error
    assert "[x=4] x,- → [x=4] -,- of float32[64,64]" in error
    assert seconds < TIMEOUT


@pytest.mark.exhaustive(keep=1000)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_stopped(victim):
    done = failing("stop", victim, processes=2)
    seconds, error = learnt(done, 1 - victim)
    assert re.match(rf"process {victim} \(pid \d+ on .*\) has not been heard of for \d+ s: stopped, or out of", error)
    assert seconds < TIMEOUT
    assert done.code == 86
    assert done.verdict.endswith(f"; process {victim} had to be ended")


def test_a_process_that_never_comes():
    done = failing("loop", 1, processes=2)
    seconds, error = learnt(done, 0)
    assert re.match(r"process 1 \(pid \d+ on .*\) doesn't come, while process 0 has waited \d+ s for", error)
    assert "its last was [x=4] x,- → [x=4] -,x of float32[64,64]" in error
    assert "fix: let it come here sooner, or set a longer" in error
    assert seconds < TIMEOUT
    assert any("time.sleep(1000)" in line for line in done.said(1, "errors"))  # where it was
    assert done.code == 1


@pytest.mark.parametrize(("when", "devices"), [("in jax", 2), ("before", 1)])
def test_a_wait_that_is_not_laminas(when, devices):
    """JAX's own waits can't be interrupted, so the process is ended, with its stack.

    With one device per process JAX waits inside of the call that starts a program.
    """
    done = failing("stop", 1, when, processes=2, devices=devices)
    errors = "\n".join(done.said(0, "errors"))
    assert "lamina: process 0 ends: process 1 (pid" in errors
    assert "It was here:\n" in errors and "faults.py" in errors
    assert done.code == 86


def test_a_process_that_ends_early_waits_for_the_others():
    """It has started all that the others need, so nothing is wrong."""
    options = ["--devices-per-process", "2", "--timeout", f"{TIMEOUT:g}"]
    done = launched("leaves", processes=2, options=options, LAMINA_CHECK="0")
    assert done.code == 0, done.errors
    assert done.said(0)[-1] == done.said(1)[-1] == "done"
