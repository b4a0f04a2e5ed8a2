"""A plan: the steps from one layout to another, and what they cost.  A value: it prints itself and runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lamina.planning.steps import Step, block_size
from lamina.sharding.layout import Layout


@dataclass(frozen=True)
class Plan:
    """The route of a tensor of `shape` from layout `source` to layout `target`.

    1. `layouts[0]` is the source, each step leads to the next, and the last is the target.
    """

    source: Layout
    target: Layout
    shape: tuple[int, ...]
    itemsize: float
    steps: tuple[Step, ...]

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
        """What the device with the largest block receives in each step."""
        walk = zip(self.steps, self.layouts, strict=False)
        return tuple(step.received(layout, self.shape) * self.itemsize for step, layout in walk)

    @property
    def bytes_received(self) -> float:
        return sum(self.step_bytes)

    @cached_property
    def peak_memory(self) -> float:
        """The most bytes that one device holds at once: a step's input and output."""
        sizes = [block_bytes(layout, self.shape, self.itemsize) for layout in self.layouts]
        return max((before + after for before, after in pairwise(sizes)), default=sizes[0])

    def __str__(self) -> str:
        lines = [f"{self.source}  →  {self.target}   shape {self.shape}"]
        for number, (step, received) in enumerate(zip(self.steps, self.step_bytes, strict=True), 1):
            lines.append(f"  {number}. {step}: {received:.0f} B")
        if not self.steps:
            lines.append("  nothing to do")
        return "\n".join(lines)


def block_bytes(layout: Layout, shape: tuple[int, ...], itemsize: float) -> float:
    """The bytes of the largest block."""
    return block_size(layout, shape) * itemsize
