"""From instructions to stages: what runs as one program, and what moves between programs.

* A `Segment` is work of one device between two moves.
* A `Region` is the same work on several devices with collectives inside of it: one program over all of them.  Devices
  whose programs differ get segments, and their collectives a region each.
* A `Move` brings values from devices to devices, each part once.

Instructions get a level: a move's results are one level above its operands.  All work of one level can be done at once,
so stages go level by level; JAX starts them one after the other without waiting, and devices run side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.graph.lower import Instruction, Lowered, device_of, is_lockstep
from lamina.graph.nodes import Collective
from lamina.sharding import Device, TensorType

Types = Mapping[int, TensorType]


@dataclass(frozen=True)
class Segment:
    """`body` maps `inputs` to `outputs`, all on one device."""

    device: Device
    body: tuple[Instruction, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Region:
    """The same work on every device: `body` is that of the first one, in its numbers.

    Row i of `inputs` has the value that each device has where the first has `inputs[i][0]`; likewise `outputs`.
    """

    devices: tuple[Device, ...]
    body: tuple[Instruction, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Move:
    """One collective, part by part."""

    instruction: Instruction


Stage = Segment | Region | Move


def inputs_of(stage: Stage) -> list[int]:
    """The values that a stage needs, of all its devices."""
    match stage:
        case Segment():
            return list(stage.inputs)
        case Region():
            return [number for row in stage.inputs for number in row]
        case Move():
            return list(stage.instruction.inputs)


def stages(lowered: Lowered) -> tuple[Stage, ...]:
    """The stages in an order in which they can run."""
    return _Staging(lowered).staged(lowered.instructions, apart=False)


class _Staging:
    def __init__(self, lowered: Lowered):
        self.types = lowered.types
        self.results = set(lowered.results)
        self.uses = _uses(lowered.instructions)

    def staged(self, instructions: Sequence[Instruction], apart: bool) -> tuple[Stage, ...]:
        """`apart`: collectives in lock-step are stages of their own, too."""

        def is_move(one: Instruction) -> bool:
            return isinstance(one.op, Collective) and (apart or not is_lockstep(one, self.types))

        levels: dict[int, list[Instruction]] = {}
        moves: dict[int, list[Instruction]] = {}
        for one, level in zip(instructions, _levels(instructions, is_move), strict=True):
            (moves if is_move(one) else levels).setdefault(level, []).append(one)
        found: list[Stage] = []
        for level in range(max([*levels, *moves], default=-1) + 1):
            for part in self._components(levels.get(level, [])):
                found += self._work(part)
            for one in moves.get(level, []):
                region = self._region([one]) if is_lockstep(one, self.types) else None
                found.append(region or Move(one))
        return tuple(found)

    # -- the work of one level --------------------------------------------------------------------------------------

    def _components(self, instructions: Sequence[Instruction]) -> list[list[Instruction]]:
        """By devices that meet in a collective, directly or through others."""
        leader: dict[Device, Device] = {}

        def find(device: Device) -> Device:
            while leader.setdefault(device, device) != device:
                device = leader[device]
            return device

        for one in instructions:
            first, *others = self._devices(one)
            for other in others:
                leader[find(other)] = find(first)
        parts: dict[Device, list[Instruction]] = {}
        for one in instructions:
            parts.setdefault(find(self._devices(one)[0]), []).append(one)
        return list(parts.values())

    def _devices(self, one: Instruction) -> list[Device]:
        if isinstance(one.op, Collective):
            return [self.types[number].device for number in one.outputs]  # type: ignore[misc]
        return [device_of(one, self.types)]

    def _work(self, part: Sequence[Instruction]) -> Iterable[Stage]:
        devices = list(dict.fromkeys(device for one in part for device in self._devices(one)))
        if len(devices) == 1:
            return [self._segment(devices[0], part)]
        if (region := self._region(part)) is not None:
            return [region]
        core, rest = _around_collectives(part)
        if rest and (region := self._region(core)) is not None:
            return [region, *self.staged(rest, apart=True)]
        return self.staged(part, apart=True)

    def _segment(self, device: Device, part: Sequence[Instruction]) -> Segment:
        made = {number for one in part for number in one.outputs}
        inputs = dict.fromkeys(number for one in part for number in one.inputs if number not in made)
        return Segment(device, tuple(part), tuple(inputs), tuple(sorted(made & self._leaving(part))))

    def _leaving(self, part: Sequence[Instruction]) -> set[int]:
        """What the part makes that somebody outside of it wants."""
        inside = _uses(part)
        made = {number for one in part for number in one.outputs}
        return {number for number in made if number in self.results or self.uses[number] > inside[number]}

    # -- the same work on several devices ---------------------------------------------------------------------------

    def _region(self, part: Sequence[Instruction]) -> Region | None:
        """One region of all of it, if every device does the same."""
        groups = [one for one in part if isinstance(one.op, Collective)]
        devices = tuple(self._devices(groups[0]))
        if any(tuple(self._devices(one)) != devices for one in groups):
            return None
        programs = [_Program(device, i, part, self) for i, device in enumerate(devices)]
        if any(program.text != programs[0].text for program in programs[1:]):
            return None
        inputs = tuple(zip(*(program.outside for program in programs), strict=True))
        made = tuple(zip(*(program.made for program in programs), strict=True))
        leaving = self._leaving(part)
        outputs = tuple(row for row in made if leaving.intersection(row))
        return Region(devices, tuple(programs[0].body), inputs, outputs)


class _Program:
    """What one device does in a part: its instructions as text over places, so that two can be compared.

    `outside` are the values that come from elsewhere, in order of their first use; `made` all that it makes.
    """

    def __init__(self, device: Device, position: int, part: Sequence[Instruction], staging: _Staging):
        self.body: list[Instruction] = []
        self.outside: list[int] = []
        self.made: list[int] = []
        self.text: list[Any] = []
        places: dict[int, tuple[str, int]] = {}
        for one in part:
            if isinstance(one.op, Collective):
                inputs, outputs = one.inputs[position : position + 1], one.outputs[position : position + 1]
            elif device_of(one, staging.types) == device:
                inputs, outputs = one.inputs, one.outputs
            else:
                continue
            for number in inputs:
                if number not in places:
                    places[number] = ("outside", len(self.outside))
                    self.outside.append(number)
                    self.text.append(_kind(staging.types[number]))
            operands = tuple(places[number] for number in inputs)
            for number in outputs:
                places[number] = ("made", len(self.made))
                self.made.append(number)
            self.text.append((one.key, operands, tuple(_kind(staging.types[number]) for number in outputs)))
            self.body.append(Instruction(one.name, one.op, one.attributes, inputs, outputs))


def _levels(instructions: Sequence[Instruction], is_move: Callable[[Instruction], bool]) -> list[int]:
    """How many moves are before each; what has no operands waits for the first that uses it."""
    above: dict[int, int] = {}
    levels = []
    for one in instructions:
        levels.append(max((above.get(number, 0) for number in one.inputs), default=0))
        above |= dict.fromkeys(one.outputs, levels[-1] + is_move(one))
    first: dict[int, int] = {}
    for one, level in zip(instructions, levels, strict=True):
        for number in one.inputs:
            first[number] = min(level, first.get(number, level))
    return [
        level if one.inputs else min((first[n] for n in one.outputs if n in first), default=level)
        for one, level in zip(instructions, levels, strict=True)
    ]


def _uses(instructions: Iterable[Instruction]) -> Counter[int]:
    return Counter(number for one in instructions for number in one.inputs)


def _kind(kind: TensorType) -> tuple[Any, ...]:
    return kind.dtype, tuple(kind.shape)


def _around_collectives(part: Sequence[Instruction]) -> tuple[list[Instruction], list[Instruction]]:
    """What the collectives need, with them, and the rest: what only follows."""
    wanted: set[int] = set()
    core: list[Instruction] = []
    for one in reversed(part):
        if isinstance(one.op, Collective) or wanted & set(one.outputs):
            core.append(one)
            wanted |= set(one.inputs)
    chosen = {id(one) for one in core}
    return core[::-1], [one for one in part if id(one) not in chosen]
