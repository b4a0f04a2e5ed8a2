"""Joining without the launcher: arguments, environment, clusters, and what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import pytest

import lamina
from lamina.cli.launch import Reserved
from lamina.engine.membership import TIMEOUT, Membership, membership
from tests.processes.launching import PROGRAMS, environment, without_gloo

NOTHING: dict = {}


ENOUGH, SHORT = 60, 8  # seconds in which all come, and in which some don't


def started(port: int, count: int, rank: int, *what: str, timeout: int = ENOUGH) -> subprocess.Popen:
    command = [sys.executable, str(PROGRAMS / "joins.py"), *map(str, (port, count, rank, timeout)), *what]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen) -> list[str]:
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return without_gloo(out.splitlines())


def free_port() -> int:
    with Reserved() as reserved:
        return reserved.port


def job_with_a_free_port() -> int:
    """The number of a SLURM job for which JAX chooses a port that is free: 61440 and the last 12 bits of the number."""
    for job in range(os.getpid() % 4096, 8192):
        with contextlib.suppress(OSError), socket.create_server(("", 61440 + job % 4096)):
            return job
    raise AssertionError("no port is free")


@pytest.mark.processes
def test_joining_and_parting():
    port = free_port()
    processes = [started(port, 2, rank) for rank in (1, 0)]
    for rank, process in zip((1, 0), processes, strict=True):
        first, fix, total, last = ended(process)
        assert first.startswith(f"initialize(): this process has joined already, as {rank} of 2: Membership(")
        assert fix == "  fix: call lamina.shutdown() before joining others"
        assert (total, last) == ("28.0", "apart")


@pytest.mark.processes
def test_who_is_late_is_named():
    port = free_port()
    processes = [started(port, 4, rank, timeout=SHORT) for rank in (0, 2)]
    for process in processes:
        assert ended(process) == [
            "initialize(): of 4 processes these didn't come within 8 s: 1, 3",
            "  fix: start all of them, or set a longer timeout",
        ]


@pytest.mark.processes
def test_nobody_there():
    port = free_port()
    assert ended(started(port, 2, 1, timeout=3)) == [
        f"initialize(): process 0 doesn't answer at 127.0.0.1:{port} within 3 s",
        "  fix: start it, check the address and the firewall, or set a longer timeout",
    ]


@pytest.mark.processes
def test_two_with_one_id_and_another_count():
    port = free_port()
    processes = [started(port, count, rank, timeout=SHORT) for count, rank in [(3, 0), (3, 1), (3, 1), (2, 1)]]
    said = [ended(process)[0] for process in processes]
    assert said[3] == "initialize(): process 1 was started as one of 2 processes, process 0 as one of 3"
    assert "initialize(): two processes say that they are process 1: pid " in max(said[1:3])
    assert said[0] == min(said[1:3]) == "initialize(): of 3 processes these didn't come within 8 s: 2"


@pytest.mark.processes
def test_a_port_that_is_taken():
    with Reserved() as reserved:
        assert ended(started(reserved.port, 2, 0))[0].startswith(
            f"initialize(): the coordinator can't listen at port {reserved.port}: Address already in use"
        )


@pytest.mark.processes
def test_devices_that_were_used():
    said = ended(started(free_port(), 2, 0, "used"))
    assert said[0] == "initialize(): JAX's devices were used already, so no other processes can join them"
    assert said[1].startswith("  fix: call lamina.initialize before anything that needs a device: jax.devices()")


def together(command: list[str], settings: list[dict[str, str]]) -> list[list[str]]:
    """What the processes say that a cluster starts with these variables each."""
    processes = [
        subprocess.Popen(command, env=environment(**own), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for own in settings
    ]
    return [ended(process) for process in processes]


@pytest.mark.processes
def test_as_slurm_starts_them():
    job = {"JOB_ID": str(job_with_a_free_port()), "STEP_NODELIST": "localhost", "NTASKS": "2"}
    own = [{"PROCID": str(rank), "LOCALID": str(rank)} for rank in range(2)]
    settings = [{f"SLURM_{name}": value for name, value in {**job, **one}.items()} for one in own]
    assert together([sys.executable, str(PROGRAMS / "anywhere.py")], settings) == [["64.0"], ["64.0"]]


@pytest.mark.processes
def test_as_kubernetes_starts_them():
    """The command of the Job in docs/cluster.md."""
    command = f"LAMINA_PROCESS=$JOB_COMPLETION_INDEX exec {sys.executable} {PROGRAMS / 'anywhere.py'}"
    common = {"LAMINA_COORDINATOR": f"localhost:{free_port()}", "LAMINA_PROCESSES": "2"}
    settings = [{**common, "JOB_COMPLETION_INDEX": str(rank)} for rank in range(2)]
    assert together(["sh", "-c", command], settings) == [["64.0"], ["64.0"]]


# -- who this process is ----------------------------------------------------------------------------------------------


def test_one_process_joins_nobody(monkeypatch):
    for name in ("COORDINATOR", "PROCESSES", "PROCESS", "DEVICES_PER_PROCESS", "LOCAL_DEVICES", "TIMEOUT"):
        monkeypatch.delenv(f"LAMINA_{name}", raising=False)
    assert membership(NOTHING) is None
    lamina.initialize()
    lamina.shutdown()


def test_the_environment(monkeypatch):
    monkeypatch.setenv("LAMINA_COORDINATOR", "node0:1234")
    monkeypatch.setenv("LAMINA_PROCESSES", "4")
    monkeypatch.setenv("LAMINA_PROCESS", "3")
    assert membership(NOTHING) == Membership("node0:1234", 4, 3, None, None, TIMEOUT)
    monkeypatch.setenv("LAMINA_DEVICES_PER_PROCESS", "2")
    monkeypatch.setenv("LAMINA_LOCAL_DEVICES", "4,5")
    monkeypatch.setenv("LAMINA_TIMEOUT", "7.5")
    assert membership(NOTHING) == Membership("node0:1234", 4, 3, 2, (4, 5), 7.5)
    assert membership({"process_id": 1, "timeout": 3}) == Membership("node0:1234", 4, 1, 2, (4, 5), 3)
    monkeypatch.setenv("LAMINA_PROCESSES", "four")
    with pytest.raises(lamina.ProcessError, match="LAMINA_PROCESSES='four' can't be read"):
        membership(NOTHING)


def test_slurm(monkeypatch):
    """As JAX reads it: the first host of the list, a port from the job's id, one accelerator per process."""
    settings = {"JOB_ID": "7", "STEP_NODELIST": "node[003-006]", "NTASKS": "4", "PROCID": "2", "LOCALID": "1"}
    for name, value in settings.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert membership(NOTHING) == Membership("node003:61447", 4, 2, None, (1,), TIMEOUT)
    assert membership({"timeout": 5, "coordinator": "here:1"}) == Membership("here:1", 4, 2, None, (1,), 5)


def test_open_mpi(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911")
    for name, value in {"SIZE": "2", "RANK": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    found = membership(NOTHING)
    assert found is not None
    assert (found.host, found.count, found.rank, found.local_device_ids) == ("10.96.0.1", 2, 1, (0,))


def test_what_can_not_be():
    with pytest.raises(lamina.ProcessError) as caught:
        Membership("nowhere", 2, 2, timeout=0)
    assert str(caught.value) == (
        "process_id=2 of num_processes=2; coordinator='nowhere'; timeout=0\n"
        "  fix: number them from 0 on; say host:port, the host where process 0 runs; give seconds, above 0"
    )
