"""`lamina launch`: one program in several processes, on this machine or on several hosts."""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import sys

from lamina.cli.supervisor import GRACE, Supervisor, Task

SUMMARY = "run a Python program in several processes that Lamina joins"

NEVER_PASSED = ("LAMINA_PROCESS", "LAMINA_PROCESSES", "LAMINA_COORDINATOR", "LAMINA_LOCAL_DEVICES", "LAMINA_RESERVED")
PASSED_TO_HOSTS = ("JAX_", "LAMINA_", "XLA_", "NCCL_", "GLOO_")  # what the variables begin with that hosts are given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_start_arguments(parser, is_required=True)
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module, as in python -m")
    parser.add_argument("program", help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")


def add_start_arguments(parser: argparse.ArgumentParser, is_required: bool) -> None:
    """How many processes, and where."""
    parser.add_argument("-n", "--processes", type=int, required=is_required, metavar="N", help="how many in all")
    parser.add_argument(
        "--devices-per-process", type=int, default=1, metavar="N", help="devices of each, virtual ones on a CPU (1)"
    )
    parser.add_argument("--hosts", metavar="A,B", help="where: the same number of processes on each (this machine)")
    parser.add_argument(
        "--ssh", default="ssh -o BatchMode=yes", metavar="COMMAND", help="what starts a command on a host (ssh)"
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="where they meet (the first host, a free port)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="when silence is an error (60)")
    parser.add_argument(
        "--grace", type=float, default=GRACE, metavar="SECONDS", help=f"what others get when one fails ({GRACE:g})"
    )


def run(arguments: argparse.Namespace) -> int:
    hosts = arguments.hosts.split(",") if arguments.hosts else []
    if problem := _problem(arguments, hosts):
        print(f"lamina launch: {problem}", file=sys.stderr)
        return 2
    with Reserved() as reserved:
        coordinator = arguments.coordinator or f"{hosts[0] if hosts else '127.0.0.1'}:{reserved.port}"
        tasks = [_task(arguments, rank, hosts, coordinator) for rank in range(arguments.processes)]
        return Supervisor(tasks, arguments.grace).run()


class Reserved:
    """A free port of this machine that nobody else is given meanwhile.

    It is bound and never listens.  With SO_REUSEPORT the program's own coordinator may bind it, too.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if self._socket.family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self._socket.bind(("", 0))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> Reserved:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _problem(arguments: argparse.Namespace, hosts: list[str]) -> str | None:
    if arguments.processes < 1:
        return f"-n {arguments.processes}: start one process at least"
    if arguments.devices_per_process < 1:
        return f"--devices-per-process {arguments.devices_per_process}: a process needs one device at least"
    if hosts and arguments.processes % len(hosts):
        return f"-n {arguments.processes}: the same number on each of {len(hosts)} hosts doesn't give that many"
    if not arguments.is_module and not hosts and not os.path.isfile(arguments.program):
        return f"there is no file {arguments.program}"
    return None


def _task(arguments: argparse.Namespace, rank: int, hosts: list[str], coordinator: str) -> Task:
    here = arguments.processes // max(1, len(hosts))
    first, each = rank % here * arguments.devices_per_process, arguments.devices_per_process
    reserved = "" if arguments.coordinator else coordinator.rpartition(":")[2]
    settings = {
        "LAMINA_COORDINATOR": coordinator,
        "LAMINA_PROCESSES": str(arguments.processes),
        "LAMINA_PROCESS": str(rank),
        "LAMINA_DEVICES_PER_PROCESS": str(each),
        "LAMINA_LOCAL_DEVICES": ",".join(map(str, range(first, first + each))),
        "LAMINA_RESERVED": reserved,
        "PYTHONUNBUFFERED": "1",
    }
    if arguments.timeout is not None:
        settings["LAMINA_TIMEOUT"] = f"{arguments.timeout:g}"
    module = ["-m"] if arguments.is_module else []
    command = [sys.executable, "-m", "lamina.cli.worker", *module, arguments.program, *arguments.arguments]
    if not hosts:
        return Task(rank, command, {**_own(), **settings, "PYTHONPATH": _search_path()})
    words = ["cd", os.getcwd(), "&&", "exec", "env"]
    passed = {name: value for name, value in _own().items() if name.startswith(PASSED_TO_HOSTS)}
    words += [f"{name}={value}" for name, value in {**passed, **settings, "PYTHONPATH": _search_path()}.items()]
    script = " ".join(word if word == "&&" else shlex.quote(word) for word in [*words, *command])
    return Task(rank, [*shlex.split(arguments.ssh), hosts[rank // here], *_by_shell(arguments.ssh, script)], _own())


def _by_shell(ssh: str, script: str) -> list[str]:
    """ssh hands one line to a shell on the other side; other starters (`ip netns exec`) run the words themselves."""
    return [script] if os.path.basename(shlex.split(ssh)[0]) == "ssh" else ["sh", "-c", script]


def _own() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NEVER_PASSED}


def _search_path() -> str:
    """Where the processes find Lamina and what else this Python finds by PYTHONPATH."""
    import lamina

    home = os.path.dirname(os.path.dirname(os.path.abspath(lamina.__file__)))
    own = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(dict.fromkeys([home, *own.split(os.pathsep)] if own else [home]))
