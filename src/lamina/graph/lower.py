"""From a graph to instructions: sizes bound, buffers as values, nothing left that nobody needs.

A `Lowered` graph is a function.  What a buffer holds is a value like any other; a store gives it a new one, so that the
last of each buffer's values are results, too.  Instructions are in the graph's order, and each has been checked once
more with the sizes that the symbols have now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.errors import LayoutError, explained
from lamina.graph.graph import Graph
from lamina.graph.nodes import Collective, Local, Mutation, Node, Op
from lamina.graph.ops import OPS
from lamina.sharding import Device, TensorType
from lamina.sharding.dims import AlgebraicDim, SymbolicDim, substitute


@dataclass(frozen=True)
class Instruction:
    """One op on values by number, everything about it static.  A Local one has one device."""

    name: str
    op: Op
    attributes: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What it does, wherever it is: equal for the same instruction on two devices."""
        return self.name, tuple((k, v) for k, v in self.attributes.items() if k != "device")


@dataclass(frozen=True)
class Lowered:
    """Instructions over values.

    `types` are static.  `inputs` are the graph's, in order, without the buffers that are only signals; `constants` are
    values that come from the host once; `stored` says which value a buffer input ends as.
    """

    instructions: tuple[Instruction, ...]
    types: Mapping[int, TensorType]
    inputs: tuple[int, ...]
    constants: Mapping[int, str]
    outputs: tuple[int, ...]
    stored: Mapping[int, int]

    @property
    def results(self) -> tuple[int, ...]:
        """Everything that somebody outside wants."""
        return tuple(dict.fromkeys([*self.outputs, *self.stored.values()]))


def lower(graph: Graph, bindings: Mapping[str, int]) -> Lowered:
    """The graph as a function of static values."""
    return _Lowering(graph, bindings).run()


class _Lowering:
    """`name[number]` is the value that a number of the graph stands for just now: buffers change theirs."""

    def __init__(self, graph: Graph, bindings: Mapping[str, int]):
        self.graph, self.bindings = graph, bindings
        self.types: dict[int, TensorType] = {}
        self.name: dict[int, int] = {}
        self.found: list[Instruction] = []
        self.constants: dict[int, str] = {}
        self.next = len(graph.types)

    def run(self) -> Lowered:
        inputs = [number for numbers, _ in self.graph.input_groups for number in numbers]
        for number in inputs:
            self._is(number, number)
        for node in self.graph.nodes:
            self._node(node)
        outputs = [self.name[n] for numbers, _ in self.graph.output_groups or () for n in numbers]
        stored = {n: self.name[n] for n in inputs if self.name[n] != n}
        needed = _needed(self.found, [*outputs, *stored.values()])
        constants = {n: name for n, name in self.constants.items() if n in needed.values}
        return Lowered(needed.instructions, self.types, tuple(inputs), constants, tuple(outputs), stored)

    def _is(self, number: int, value: int) -> None:
        kind = self.graph.types[number]
        self.name[number] = value
        self.types[value] = TensorType(kind.dtype, kind.shape.bound(self.bindings), kind.device)

    def _node(self, node: Node) -> None:
        rule, attributes = OPS[node.op], _bound(node.settings, self.bindings)
        inputs = tuple(self.name[number] for number in node.inputs)
        self._check(node, rule, attributes, inputs)
        if node.op == "buffer_load" or node.op == "rebind":
            self._is(node.outputs[0], inputs[0])
        elif isinstance(rule, Mutation):
            self._store(node, rule, attributes, inputs)
        else:
            for number in node.outputs:
                self._is(number, number)
            if node.op == "constant" and "name" in attributes:
                self.constants[node.outputs[0]] = attributes["name"]
                return
            if node.op == "call":
                attributes = attributes | {"function": self.graph.functions[attributes["function"]]}
            self.found.append(Instruction(node.op, rule, attributes, inputs, node.outputs))

    def _store(self, node: Node, rule: Mutation, attributes: Any, inputs: tuple[int, ...]) -> None:
        buffer, compute = node.inputs[0], rule.compute
        assert compute is not None
        if node.op == "buffer_store":
            self.name[buffer] = inputs[1]
            return
        value, self.next = self.next, self.next + 1
        self._is(buffer, value)
        as_local = Local(rule.infer, compute)
        self.found.append(Instruction(node.op, as_local, attributes, inputs, (value,)))

    def _check(self, node: Node, rule: Op, attributes: Any, inputs: tuple[int, ...]) -> None:
        """What could not be decided with symbols must hold now."""
        if not self.bindings:
            return
        sizes = ", ".join(f"{name}={size}" for name, size in sorted(self.bindings.items()))
        with explained(f"{node.op} with {sizes}", "run the graph with sizes that fit"):
            found = rule.infer([self.types[n] for n in inputs], attributes)
            promised = [self.graph.types[n].shape.bound(self.bindings) for n in node.outputs]
            for kind, shape in zip(found, promised, strict=True):
                if kind.shape != shape:
                    written = self.graph.types[node.outputs[0]].shape
                    said = "" if written == shape else f", which is {shape} now"
                    raise LayoutError(f"the result was to be {written}{said}, but it is {kind.shape}")


def _bound(value: Any, bindings: Mapping[str, int]) -> Any:
    if isinstance(value, dict):
        return {name: _bound(part, bindings) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_bound(part, bindings) for part in value)
    return substitute(value, bindings) if isinstance(value, (SymbolicDim, AlgebraicDim)) else value


@dataclass(frozen=True)
class _Needed:
    instructions: tuple[Instruction, ...]
    values: frozenset[int]


def _needed(instructions: Sequence[Instruction], results: Sequence[int]) -> _Needed:
    """What leads to a result; collectives keep all of their participants."""
    wanted, kept = set(results), []
    for instruction in reversed(instructions):
        if wanted & set(instruction.outputs):
            kept.append(instruction)
            wanted |= set(instruction.inputs)
    return _Needed(tuple(reversed(kept)), frozenset(wanted))


def device_of(instruction: Instruction, types: Mapping[int, TensorType]) -> Device:
    """Where a Local instruction runs."""
    device = types[instruction.outputs[0]].device
    assert device is not None
    return device


def is_lockstep(instruction: Instruction, types: Mapping[int, TensorType]) -> bool:
    """Is it a collective that its devices can do at the same time with one collective of the machine?

    Not where CPUs and accelerators meet: no program runs on both.
    """
    rule = instruction.op
    kinds = {type(types[n].device) for n in instruction.outputs}
    if not isinstance(rule, Collective) or len(kinds) > 1:
        return False
    return rule.in_step([types[n] for n in instruction.inputs], instruction.attributes)
