"""The links between devices: what a message costs to start, and how fast bytes go.

A topology gives every mesh axis a link.  Several devices may have to share one: a *shared* link connects whole hosts
(all devices that agree on the shared axes), so what its devices receive together goes through it.

Costs follow the α-β model: a step takes one latency per round, and its bytes over the bandwidth of the slowest link
that they cross; bytes that are only copied inside a device take the memory's time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lamina.errors import PlanError


@dataclass(frozen=True, slots=True)
class Link:
    """Seconds to start a message, and bytes per second that arrive at one device (or one host, if shared)."""

    latency: float
    bandwidth: float
    shared: bool = False

    def __post_init__(self) -> None:
        if self.latency < 0 or self.bandwidth <= 0:
            raise PlanError(f"{self}: the latency must be >= 0 and the bandwidth > 0")


@dataclass(frozen=True)
class Topology:
    """A link for each axis of a mesh: `axes` by name, `default` for all others; `copy` is the memory's bandwidth.

    >>> pod = topology("h100").between("dp", "infiniband")
    >>> pod.link("dp").shared, pod.link("tp").shared
    (True, False)
    """

    name: str
    default: Link
    axes: Mapping[str, Link] = field(default_factory=dict)
    copy: float = float("inf")

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", MappingProxyType(dict(self.axes)))
        object.__setattr__(self, "_key", (self.name, self.default, tuple(self.axes.items()), self.copy))

    def __hash__(self) -> int:
        return hash(self._key)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple:
        return Topology, (self.name, self.default, dict(self.axes), self.copy)

    def link(self, axis: str) -> Link:
        """The link of an axis."""
        return self.axes.get(axis, self.default)

    @property
    def shared_axes(self) -> frozenset[str]:
        """The axes between hosts."""
        return frozenset(axis for axis, link in self.axes.items() if link.shared)

    @property
    def only_bytes(self) -> bool:
        """Does nothing but the number of bytes count: no latency, no copies, one bandwidth everywhere?"""
        return not self.axes and self.default.latency == 0 and self.copy == float("inf")

    def between(self, axis: str, link: Link | str) -> Topology:
        """The same with another link along one axis: `h100` inside a host, `infiniband` between them."""
        chosen = LINKS[link] if isinstance(link, str) and link in LINKS else link
        if not isinstance(chosen, Link):
            raise PlanError(f"{link!r} is not a link: use a Link, or one of {', '.join(LINKS)}")
        return Topology(f"{self.name}+{axis}", self.default, {**self.axes, axis: chosen}, self.copy)

    def to_dict(self) -> dict[str, Any]:
        """Everything that it says, as plain data."""

        def row(link: Link) -> dict[str, Any]:
            return {"latency": link.latency, "bandwidth": link.bandwidth, "shared": link.shared}

        axes = {axis: row(link) for axis, link in self.axes.items()}
        return {"name": self.name, "default": row(self.default), "axes": axes, "copy": self.copy}

    def save(self, path: str | Path) -> None:
        """Writes what `load` reads."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2))

    @staticmethod
    def load(path: str | Path) -> Topology:
        """Reads what `save` wrote."""
        data = json.loads(Path(path).read_text())
        axes = {axis: Link(**row) for axis, row in data["axes"].items()}
        return Topology(data["name"], Link(**data["default"]), axes, data["copy"])


# Bandwidths are what one device receives, in one direction; latencies are of a small collective, launch included.
LINKS = {
    # NDR InfiniBand: 400 Gbit/s a port, one port per GPU in the reference DGX H100 (NVIDIA DGX H100 user guide).
    "infiniband": Link(15e-6, 50e9, shared=True),
    # 1 Gbit/s Ethernet, TCP goodput ~94 %.
    "ethernet": Link(100e-6, 117e6, shared=True),
}

PRESETS = {
    # Nothing but bytes counts; rounds only break ties.  What plans are made for when nothing is known of the devices.
    "bytes": Topology("bytes", Link(0.0, 1.0)),
    # NVLink 4: 900 GB/s per GPU in both directions together (NVIDIA H100 datasheet); HBM3 3.35 TB/s.
    "h100": Topology("h100", Link(8e-6, 450e9), copy=3.35e12 / 2),
    # The same NVLink, HBM3e 4.8 TB/s (NVIDIA H200 datasheet).
    "h200": Topology("h200", Link(8e-6, 450e9), copy=4.8e12 / 2),
    # NVLink 5: 1.8 TB/s in both directions, HBM3e 8 TB/s (NVIDIA Blackwell datasheet).
    "b200": Topology("b200", Link(8e-6, 900e9), copy=8e12 / 2),
    # ICI: 4,800 Gbit/s per chip over the 3-D torus, HBM 2,765 GB/s (Google Cloud TPU v5p system architecture).
    "tpu_v5p": Topology("tpu_v5p", Link(1e-6, 600e9), copy=2.765e12 / 2),
    "ethernet": Topology("ethernet", Link(100e-6, 117e6), copy=10e9),
    # CPU processes on one machine, through Gloo's TCP on loopback.
    "gloo": Topology("gloo", Link(150e-6, 1e9), copy=5e9),
    # Virtual CPU devices in one process: a rendezvous of threads, and a copy through memory.
    "cpu": Topology("cpu", Link(30e-6, 4e9), copy=8e9),
}


def topology(which: Topology | str | None) -> Topology:
    """A Topology, or the preset of that name; None means that only bytes count.

    >>> topology("dialup")
    Traceback (most recent call last):
    lamina.errors.PlanError: topology 'dialup' is unknown: use a Topology, or one of bytes, h100, h200, b200, ...
    """
    if which is None:
        return PRESETS["bytes"]
    if isinstance(which, Topology):
        return which
    if which not in PRESETS:
        raise PlanError(f"topology {which!r} is unknown: use a Topology, or one of {', '.join(PRESETS)}")
    return PRESETS[which]
