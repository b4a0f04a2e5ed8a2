"""A plan: the steps from one layout to another, and what they cost.  A value: it prints itself and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lamina.planning.bounds import Bytes, bound_across, lower_bound
from lamina.planning.cost import crossed, rounds, seconds
from lamina.planning.html import plan_html
from lamina.planning.pieces import kept_pieces
from lamina.planning.steps import Step, Transfer, block_size, most_held, most_received
from lamina.planning.topology import PRESETS, Topology
from lamina.sharding.layout import Layout

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The route of a tensor of `shape` from layout `source` to layout `target`.

    1. `layouts[0]` is the source, each step leads to the next, and the last is the target.
    """

    source: Layout
    target: Layout
    shape: Shape
    itemsize: float
    steps: tuple[Step, ...]
    links: Topology = field(default=PRESETS["bytes"])

    def __post_init__(self) -> None:
        assert self.layouts[-1] == self.target, (self.layouts[-1], self.target)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout before the first step, and after each."""
        found = [self.source]
        for step in self.steps:
            found.append(step.after(found[-1]))
        return tuple(found)

    @cached_property
    def step_bytes(self) -> tuple[float, ...]:
        """What a device of the step's mesh receives in each step, on the mean."""
        walk = zip(self.steps, self.layouts, strict=False)
        return tuple(step.received(layout, self.shape) * self.itemsize for step, layout in walk)

    @cached_property
    def bytes_received(self) -> Bytes:
        """What a device receives in all steps: on the mean, and at most."""
        walk = zip(self.steps, self.layouts, strict=False)
        most = sum(most_received(step, layout, self.shape) for step, layout in walk) * self.itemsize
        mean = sum(received * share for received, share in zip(self.step_bytes, self.shares, strict=True))
        return Bytes(mean, most)

    @cached_property
    def homes(self) -> tuple[int | None, ...] | None:
        """If the route leads to another mesh: which of its positions are whose here (see `Transfer`)."""
        return next((step.homes for step in self.steps if isinstance(step, Transfer)), None)

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of all devices that take part in each step: less than 1 only on the way to another mesh."""
        if self.homes is None:
            return (1.0,) * len(self.steps)
        total = self.source.num_devices + self.homes.count(None)
        walk = zip(self.steps, self.layouts[1:], strict=True)
        return tuple(after.num_devices / total for _, after in walk)

    @cached_property
    def lower_bound(self) -> Bytes:
        """What a device must receive whatever the algorithm."""
        if self.homes is not None:
            return bound_across(self.source, self.target, self.shape, self.itemsize, self.homes)
        return lower_bound(self.source, self.target, self.shape, self.itemsize)

    @cached_property
    def host_bound(self) -> Bytes | None:
        """What a host must receive, where axes share a link between hosts."""
        if not (shared := self.links.shared_axes & set(self.source.sizes)):
            return None
        return lower_bound(self.source, self.target, self.shape, self.itemsize, shared)

    @property
    def ratio(self) -> float:
        """Bytes received over the bound; 1 where nothing has to move and nothing does."""
        received, bound = self.bytes_received.mean, self.lower_bound.mean
        if bound:
            return received / bound
        return float("inf") if received else 1.0

    @cached_property
    def peak_memory(self) -> float:
        """The most bytes that one device holds at once: a step's input and output."""
        walk = zip(self.steps, self.layouts, strict=False)
        least = block_bytes(self.source, self.shape, self.itemsize)
        return max((most_held(step, layout, self.shape) * self.itemsize for step, layout in walk), default=least)

    @cached_property
    def step_seconds(self) -> tuple[float, ...]:
        walk = zip(self.steps, self.layouts, strict=False)
        return tuple(seconds(step, layout, self.shape, self.itemsize, self.links) for step, layout in walk)

    @property
    def time(self) -> float:
        """Estimated seconds on the plan's links."""
        return sum(self.step_seconds)

    @cached_property
    def step_rounds(self) -> tuple[int, ...]:
        """How many collectives each step is lowered to (of an exchange: at most)."""
        return tuple(rounds(step, layout, self.shape) for step, layout in zip(self.steps, self.layouts, strict=False))

    @cached_property
    def step_groups(self) -> tuple[int, ...]:
        """How many devices each step joins: those along every axis that data moves along."""
        walk = zip(self.steps, self.layouts, strict=False)
        return tuple(
            len(step.homes) if isinstance(step, Transfer) else layout.count(crossed(step, layout))
            for step, layout in walk
        )

    def _repr_html_(self) -> str:
        return plan_html(self)

    def transpose(self) -> Plan:
        """The way of cotangents back: what was reduced, and its pieces, have one cotangent."""
        kept = kept_pieces(self.source, self.target) if self.homes is None else {}
        source, target = (layout.replace(partial=kept.items()) for layout in (self.target, self.source))
        walk = list(zip(self.steps, self.layouts, strict=False))
        steps = tuple(back for step, layout in reversed(walk) if (back := step.transpose(layout)) is not None)
        return Plan(source, target, self.shape, self.itemsize, steps, self.links)

    def to_dict(self) -> dict[str, Any]:
        """Everything that the plan says, as plain data."""
        rows = zip(self.steps, self.layouts[1:], self.step_bytes, self.step_rounds, self.step_seconds, strict=True)
        return {
            "source": str(self.source),
            "target": str(self.target),
            "shape": list(self.shape),
            "itemsize": self.itemsize,
            "topology": self.links.name,
            "steps": [
                {"step": str(step), "layout": str(after), "bytes": received, "rounds": turns, "seconds": time}
                for step, after, received, turns, time in rows
            ],
            "bytes_received": {"mean": self.bytes_received.mean, "max": self.bytes_received.max},
            "lower_bound": {"mean": self.lower_bound.mean, "max": self.lower_bound.max},
            "host_bound": None if self.host_bound is None else self.host_bound.mean,
            "ratio": self.ratio,
            "peak_memory": self.peak_memory,
            "seconds": self.time,
        }

    def __str__(self) -> str:
        lines = [f"{self.source}  →  {self.target}   {self.shape}, itemsize {self.itemsize:g}"]
        for number, (step, received) in enumerate(zip(self.steps, self.step_bytes, strict=True), 1):
            lines.append(f"  {number}. {step}: {received:.0f} B")
        if not self.steps:
            lines.append("  nothing to do")
        received, bound = self.bytes_received.mean, self.lower_bound.mean
        lines.append(
            f"receives {received:.0f} B (bound {bound:.0f} B, ratio {self.ratio:.2f}), "
            f"holds at most {self.peak_memory:.0f} B"
        )
        return "\n".join(lines)


def block_bytes(layout: Layout, shape: Shape, itemsize: float) -> float:
    """The bytes of the largest block."""
    return block_size(layout, shape) * itemsize
