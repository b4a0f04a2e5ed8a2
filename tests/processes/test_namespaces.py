"""Four network namespaces as four hosts, links of 1 Gbit/s: the launcher, reshards, reads and a death over them.

It needs root and iproute2; elsewhere it is skipped, and says what is missing.
"""

from __future__ import annotations

import fcntl
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.namespaces import PORT, Network, hosts, why_not
from tests.processes.launching import PROGRAMS, ROOT, launched, launched_well

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(why_not() is not None, reason=f"no network namespaces here: {why_not()}"),
]

NET = Network("lamina-test", "lamina-t", "10.231.9")


@contextmanager
def four_hosts() -> Iterator[list[str]]:
    """What makes the launcher use the namespaces as hosts; one run of the tests at a time."""
    with (Path(tempfile.gettempdir()) / f"{NET.bridge}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with hosts(4, "1gbit", NET):
            names = ",".join(NET.name(number) for number in range(4))
            where = ["--hosts", names, "--ssh", "ip netns exec", "--coordinator", f"{NET.address(0)}:{PORT}"]
            yield [*where, "--devices-per-process", "2", "--timeout", "20", "--grace", "2"]


@pytest.mark.exhaustive(keep=1000)
@pytest.mark.parametrize("program", ["", "demo", "reads", "train"])
def test_four_hosts(program):
    """The checks below on hosts that are made once; with --exhaustive, whole programs too."""
    with four_hosts() as options:
        if program:
            a_program(program, options)
        else:
            reshards_and_reads(options)
            a_host_that_dies(options)
            links(options)


def a_program(name: str, options: list[str]) -> None:
    path, *arguments = {
        "demo": [ROOT / "examples" / "demo.py"],
        "reads": [PROGRAMS / "reads.py"],
        "train": [ROOT / "examples" / "train.py", "--mesh", "dp=2,tp=4", "--steps", "3"],
    }[name]
    ends = {"demo": "results matched numpy", "reads": "read everything", "train": "3/3 loss 4."}
    done = launched_well(path, *arguments, processes=4, options=[*options, "--timeout", "60"], limit=300)
    assert ends[name] in "\n".join(done.said(0)[-3:])


def reshards_and_reads(options: list[str]) -> None:
    done = launched_well("pairs", "500", processes=4, options=options, XLA_FLAGS="--xla_backend_optimization_level=0")
    assert all(done.said(rank)[-1].startswith("checked ") for rank in range(4))


def a_host_that_dies(options: list[str]) -> None:
    done = launched("faults", "die", "2", "during", processes=4, options=options, LAMINA_CHECK="0")
    assert done.code == 128 + signal.SIGKILL
    for rank in (0, 1, 3):
        assert any(line.startswith("learnt after") and "process 2 (pid" in line for line in done.said(rank))


def links(options: list[str]) -> None:
    """1 Gbit/s, that is 125 MB/s, between the hosts, and more inside of them."""
    done = launched_well("links", processes=4, options=options)
    between, inside = map(float, done.said(0)[-1].split())
    assert 50e6 < between < 130e6
    assert inside > between
