"""The launcher: output, arguments, signals, exit codes, hosts; nothing is left when it ends, however it ends."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lamina.cli import main
from lamina.cli.launch import Reserved
from tests.processes.launching import (
    PROGRAMS,
    environment,
    launch_command,
    launched,
    launched_well,
    of_this_suite,
)

pytestmark = pytest.mark.processes


def test_output_arguments_and_devices():
    done = launched_well("says", "partial", "a b", "-x", processes=2, options=["--devices-per-process", "3"])
    for rank in range(2):
        assert done.said(rank) == [
            f"process {rank} of 2, 3 devices",
            "stdin is empty: True, arguments: ['partial', 'a b', '-x']",
            "no newline at the end",
        ]
        assert "a word on stderr" in done.said(rank, "errors")
    assert done.verdict == ""


def test_a_module_and_a_single_process(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("import sys, jax\nprint(sys.argv[1:], jax.device_count())")
    options = ["-n", "1", "--devices-per-process", "2", "-m", "package", "7"]
    command = [sys.executable, "-m", "lamina.cli", "launch", *options]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[0] ['7'] 2\n"), done.stderr


@contextmanager
def running(*arguments: str, tag: str) -> Iterator[subprocess.Popen]:
    """A launch of two processes that wait, once both say so."""
    command = launch_command("says", *arguments, tag, processes=2, options=["--grace", "1"])
    launcher = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert launcher.stdout is not None
        waiting = 0
        for line in launcher.stdout:
            waiting += line.endswith("waiting\n")
            if waiting == 2:
                break
        assert len(of_this_suite(tag)) >= 3
        yield launcher
    finally:
        launcher.kill()
        launcher.wait()


def gone(tag: str, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while left := of_this_suite(tag):
        if time.monotonic() > until:
            print("\n".join(left))
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(number):
    tag = f"tag-signal-{number}"
    with running("child", tag=tag) as launcher:
        launcher.send_signal(number)
        assert launcher.wait(20) in (128 + number, 1)  # SIGINT is KeyboardInterrupt, an error of its own, in Python
        assert gone(tag), "a grandchild, or a process, is left"


def test_other_signals_are_passed_on():
    with running("wait", tag="tag-usr") as launcher:
        launcher.send_signal(signal.SIGUSR1)
        assert launcher.stdout is not None
        assert sorted([launcher.stdout.readline(), launcher.stdout.readline()]) == [
            "[0] heard SIGUSR1\n",
            "[1] heard SIGUSR1\n",
        ]


def test_a_launcher_that_is_killed_leaves_nothing():
    with running("child", tag="tag-killed") as launcher:
        launcher.kill()
        assert gone("tag-killed")


def test_hosts(tmp_path):
    """Two hosts, by a command that stands for ssh: it runs in a shell what ssh would have run there."""
    shell = tmp_path / "ssh"
    shell.write_text('#!/bin/sh\n[ "$1" = -p22 ] && shift\nhost=$1; shift\necho "on $host"\nexec sh -c "$*"\n')
    shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
    with Reserved() as reserved:  # the coordinator of hosts needs a port that is free on the first of them
        port = reserved.port
    options = ["--hosts", "a,b", "--ssh", f"{shell} -p22", "--coordinator", f"127.0.0.1:{port}"]
    done = launched_well("says", "it's here", processes=4, options=options)
    for rank in range(4):
        host, who, arguments = done.said(rank)
        assert (host, who) == ("on a" if rank < 2 else "on b", f"process {rank} of 4, 1 devices")
        assert arguments.endswith("""arguments: ["it's here"]""")


def test_no_port_is_left():
    with Reserved() as reserved:
        port = reserved.port
    launched_well("says", processes=2, options=["--coordinator", f"127.0.0.1:{port}"])
    socket.create_server(("127.0.0.1", port)).close()
    until = time.monotonic() + 5
    while of_this_suite(f"lamina.engine.coordinator {port}") and time.monotonic() < until:
        time.sleep(0.05)
    assert of_this_suite(f"lamina.engine.coordinator {port}") == []


def test_a_reserved_port_is_taken():
    with Reserved() as reserved, pytest.raises(OSError, match="Address already in use"):
        socket.create_server(("127.0.0.1", reserved.port))


def test_an_error_before_anything_else(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f(:\n")
    done = launched(wrong, processes=2)
    assert done.code == 1
    assert done.errors.splitlines()[-2].endswith("SyntaxError: invalid syntax")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-n", "0", "x.py"], "-n 0: start one process at least"),
        (["-n", "2", "nowhere.py"], "there is no file nowhere.py"),
        (["-n", "3", "--hosts", "a,b", "x.py"], "-n 3: the same number on each of 2 hosts doesn't give that many"),
        (["-n", "2", "--devices-per-process", "0", "x.py"], "--devices-per-process 0: a process needs one device"),
    ],
)
def test_wrong_arguments(arguments, problem, capsys):
    assert main(["launch", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_programs_are_guarded():
    """pytest imports every file below tests for its doctests."""
    for program in PROGRAMS.glob("*.py"):
        assert '__name__ == "__main__"' in program.read_text(), program
