"""Network namespaces as if they were hosts: one address each on a bridge, links shaped to a rate by tc.

Needs root and iproute2.  Everything that `hosts` makes is removed when it ends, and what an earlier run that was killed
left behind is removed before it starts.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cluster import Place

BRIDGE = "lamina-bench"
NETWORK = "10.231.7"
PORT = 52341


def why_not() -> str | None:
    """What is missing for namespaces on this machine; None if nothing is."""
    if os.geteuid() != 0:
        return "it needs root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} of iproute2 aren't there"
    try:
        _do("ip", "netns", "add", f"{BRIDGE}-probe")
        _do("ip", "netns", "del", f"{BRIDGE}-probe")
    except subprocess.CalledProcessError as error:
        return f"the kernel refuses a namespace: {error.stderr.strip()}"
    return None


@contextmanager
def hosts(count: int, rate: str = "1gbit") -> Iterator[Place]:
    """So many namespaces, each sending and receiving at `rate` at most."""
    _remove(count)
    try:
        _do("ip", "link", "add", BRIDGE, "type", "bridge")
        _do("ip", "link", "set", BRIDGE, "up")
        for number in range(count):
            _add_host(number, rate)
        yield Place(tuple(("ip", "netns", "exec", _name(number)) for number in range(count)), f"{_address(0)}:{PORT}")
    finally:
        _remove(count)


def _add_host(number: int, rate: str) -> None:
    name, outside = _name(number), _outside(number)
    # Gloo listens on the address that the host's own name resolves to; `ip netns exec` shows this file as /etc/hosts.
    folder = Path("/etc/netns") / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{_address(number)} {socket.gethostname()}\n")
    _do("ip", "netns", "add", name)
    _do("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
    _do("ip", "link", "set", outside, "master", BRIDGE, "up")
    _do("ip", "-n", name, "addr", "add", f"{_address(number)}/24", "dev", "eth0")
    _do("ip", "-n", name, "link", "set", "eth0", "up")
    _do("ip", "-n", name, "link", "set", "lo", "up")
    shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
    _do("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", *shape)  # what it sends
    _do("tc", "qdisc", "add", "dev", outside, *shape)  # what it receives


def _remove(count: int) -> None:
    for number in range(count):
        _try("ip", "netns", "del", _name(number))
        _try("ip", "link", "del", _outside(number))
        shutil.rmtree(Path("/etc/netns") / _name(number), ignore_errors=True)
    _try("ip", "link", "del", BRIDGE)


def _name(number: int) -> str:
    return f"{BRIDGE}-{number}"


def _outside(number: int) -> str:
    return f"lamina-b{number}"  # an interface's name has at most 15 characters


def _address(number: int) -> str:
    return f"{NETWORK}.{number + 1}"


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _try(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)
