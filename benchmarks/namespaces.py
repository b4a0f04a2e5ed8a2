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
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import Place

PORT = 52341


@dataclass(frozen=True)
class Network:
    """The names of what is made, so that two of them can be there at once: an interface has at most 15 characters."""

    bridge: str = "lamina-bench"
    outside: str = "lamina-b"
    addresses: str = "10.231.7"

    def name(self, number: int) -> str:
        return f"{self.bridge}-{number}"

    def end(self, number: int) -> str:
        """The end of a host's cable at the bridge."""
        return f"{self.outside}{number}"

    def address(self, number: int) -> str:
        return f"{self.addresses}.{number + 1}"


BENCH = Network()


def why_not() -> str | None:
    """What is missing for namespaces on this machine; None if nothing is."""
    if os.geteuid() != 0:
        return "it needs root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"{' and '.join(missing)} of iproute2 aren't there"
    try:
        probe = f"lamina-probe-{os.getpid()}"
        _do("ip", "netns", "add", probe)
        _do("ip", "netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"the kernel refuses a namespace: {error.stderr.strip()}"
    return None


@contextmanager
def hosts(count: int, rate: str = "1gbit", net: Network = BENCH) -> Iterator[Place]:
    """So many namespaces, each sending and receiving at `rate` at most."""
    _remove(count, net)
    try:
        _do("ip", "link", "add", net.bridge, "type", "bridge")
        _do("ip", "link", "set", net.bridge, "up")
        for number in range(count):
            _add_host(number, rate, net)
        prefixes = tuple(("ip", "netns", "exec", net.name(number)) for number in range(count))
        yield Place(prefixes, f"{net.address(0)}:{PORT}")
    finally:
        _remove(count, net)


def _add_host(number: int, rate: str, net: Network) -> None:
    name, outside = net.name(number), net.end(number)
    # Gloo listens on the address that the host's own name resolves to; `ip netns exec` shows this file as /etc/hosts.
    folder = Path("/etc/netns") / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{net.address(number)} {socket.gethostname()}\n")
    _do("ip", "netns", "add", name)
    _do("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
    _do("ip", "link", "set", outside, "master", net.bridge, "up")
    _do("ip", "-n", name, "addr", "add", f"{net.address(number)}/24", "dev", "eth0")
    _do("ip", "-n", name, "link", "set", "eth0", "up")
    _do("ip", "-n", name, "link", "set", "lo", "up")
    shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
    _do("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", *shape)  # what it sends
    _do("tc", "qdisc", "add", "dev", outside, *shape)  # what it receives


def _remove(count: int, net: Network) -> None:
    for number in range(count):
        _try("ip", "netns", "del", net.name(number))
        _try("ip", "link", "del", net.end(number))
        shutil.rmtree(Path("/etc/netns") / net.name(number), ignore_errors=True)
    _try("ip", "link", "del", net.bridge)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _try(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)
