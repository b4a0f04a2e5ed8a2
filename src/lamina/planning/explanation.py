"""What an op would do, stage by stage: a value that prints itself and runs nothing, as `Plan` does for one move."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lamina.planning.choice import Choice
from lamina.planning.html import explanation_html
from lamina.planning.plan import Plan
from lamina.planning.topology import Topology
from lamina.planning.units import bytes_text, seconds_text
from lamina.sharding.layout import Layout

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operand:
    """One tensor that a stage takes: how it lies, how it must, and the plans that lead there (mostly one, or none)."""

    shape: Shape
    source: Layout
    required: Layout
    plans: tuple[Plan, ...]

    @property
    def bytes_received(self) -> float:
        return sum(plan.bytes_received.mean for plan in self.plans)


@dataclass(frozen=True)
class Stage:
    """One op (a composite one has several stages), or one move of a tensor.

    `choices` are all ways that it could take, the one that it takes first; a move has none.  `inside` are the bytes
    that a device receives while it runs, from collectives of the op itself.
    """

    name: str
    operands: tuple[Operand, ...]
    results: tuple[tuple[Shape, Layout], ...]
    choices: tuple[Choice, ...] = ()
    inside: float = 0.0

    @property
    def bytes_received(self) -> float:
        """What a device receives before the stage and in it, on the mean."""
        return self.inside + sum(operand.bytes_received for operand in self.operands)


@dataclass(frozen=True)
class Explanation:
    """The stages of a call, and what it comes to."""

    op: str
    stages: tuple[Stage, ...]
    results: tuple[tuple[Shape, Layout], ...]
    links: Topology

    @cached_property
    def bytes_received(self) -> float:
        """What a device receives in all stages, on the mean."""
        return sum(stage.bytes_received for stage in self.stages)

    @property
    def time(self) -> float:
        """Estimated seconds of all moves, on the links."""
        return sum(plan.time for stage in self.stages for operand in stage.operands for plan in operand.plans)

    def price(self, seconds: float) -> str:
        """A price as the links have it: a time, or bytes where only these count."""
        return bytes_text(seconds) if self.links.only_bytes else seconds_text(seconds)

    def to_dict(self) -> dict[str, Any]:
        """Everything that it says, as plain data."""
        return {
            "op": self.op,
            "topology": self.links.name,
            "bytes_received": self.bytes_received,
            "seconds": self.time,
            "results": [{"shape": list(shape), "layout": str(layout)} for shape, layout in self.results],
            "stages": [_stage_dict(stage) for stage in self.stages],
        }

    def _repr_html_(self) -> str:
        return explanation_html(self)

    def __str__(self) -> str:
        lines = []
        for number, stage in enumerate(self.stages, 1):
            lines.append(f"{number}. {stage.name}")
            lines += [f"   operand {i}, {operand_text(operand)}" for i, operand in enumerate(stage.operands)]
            lines += [f"   passes entries of a split dim on: {bytes_text(stage.inside)}"] * bool(stage.inside)
            lines += [f"   makes {result_text(shape, layout)}" for shape, layout in stage.results]
            lines += [f"   instead: {choice.way}: {self.price(cost(choice))}" for choice in stage.choices[1:]]
        received = f"receives {bytes_text(self.bytes_received)} per device"
        total = received if self.links.only_bytes else f"{received}, {seconds_text(self.time)} on {self.links.name}"
        return "\n".join([f"{self.op}: {total}", *lines])


def cost(choice: Choice) -> float:
    """The least seconds that a way takes: until its operands are there, and what it makes in pieces is reduced."""
    return choice.moving + choice.reducing


def operand_text(operand: Operand) -> str:
    lies = f"{result_text(operand.shape, operand.source)}"
    if operand.source == operand.required:
        return f"{lies}: stays"
    steps = ", then ".join(str(step) for plan in operand.plans for step in plan.steps) or "in place"
    return f"{lies}: {steps}, {bytes_text(operand.bytes_received)}"


def result_text(shape: Shape, layout: Layout) -> str:
    return f"{list(shape)} lying as {layout}"


def _stage_dict(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "operands": [
            {
                "shape": list(operand.shape),
                "layout": str(operand.source),
                "required": str(operand.required),
                "bytes": operand.bytes_received,
                "plans": [plan.to_dict() for plan in operand.plans],
            }
            for operand in stage.operands
        ],
        "inside": stage.inside,
        "results": [{"shape": list(shape), "layout": str(layout)} for shape, layout in stage.results],
        "choices": [
            {"way": str(choice.way), "seconds": cost(choice), "moving": choice.moving, "reducing": choice.reducing}
            for choice in stage.choices
        ],
    }
