"""`lamina doctor`: what there is, whether it works, and what it measured."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lamina.cli import doctor
from tests.processes.launching import environment

pytestmark = pytest.mark.processes


def examined(*options: str) -> str:
    command = [sys.executable, "-m", "lamina.cli", "doctor", *options]
    done = subprocess.run(command, env=environment(COLUMNS="120"), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_one_process():
    said = examined()
    assert re.search(r"0 +│ \S+ +│ [\d.]+ +│ \d+ +│ 1 × cpu", said)
    assert re.search(r"a reduction over all devices: passed in [\d.]+ ms", said)
    assert "one device: no links to measure" in said


def test_several_processes():
    said = examined("-n", "2", "--devices-per-process", "2")
    assert len(re.findall(r"│ 2 × cpu", said)) == 2
    assert "LAMINA_PROCESSES=2" in said
    assert re.search(r"between 2 processes +│ [\d.]+ µs +│ [\d.]+ .?B/s", said)
    assert re.search(r"between 2 devices of a process +│ [\d.]+ µs +│ [\d.]+ .?B/s", said)


def report(**changes):
    return {"host": "a", "address": "10.0.0.1", "python": "3.11.1", "jax": "0.10.2", "devices": ["cpu"], **changes}


def test_what_it_complains_about():
    assert doctor._problems([report(), report(host="b", address="10.0.0.2")]) == []
    assert doctor._problems([report(address="127.0.0.1"), report(address="127.0.0.1")]) == []  # one host
    assert doctor._problems([report(), report(jax="0.10.1")]) == [
        "the processes have different versions of jax: 0.10.1, 0.10.2"
    ]
    assert doctor._problems([report(), report(devices=[])]) == ["the processes have different numbers of devices"]
    assert doctor._problems([report(), report(host="b", address="127.0.1.1")]) == [
        "on b the host's own name is a loopback address: Gloo can't be reached from other hosts"
    ]
