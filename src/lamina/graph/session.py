"""`InferenceSession(devices).load(graph)`: graphs that run.

A model compiles its graph once per binding of the symbolic dims, and keeps the last so many of these programs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lamina.engine import compat, inventory, transfer
from lamina.errors import LaminaError, LayoutError, TransformError, explained, with_fix
from lamina.graph.binding import Binding, signature, storage_of, unknown_device
from lamina.graph.buffers import copied
from lamina.graph.devices import as_device
from lamina.graph.graph import Graph
from lamina.graph.held import Member, in_program, is_inside_jit
from lamina.graph.lower import Lowered, lower
from lamina.graph.nodes import Collective
from lamina.graph.programs import Env, logical, stage_program
from lamina.graph.results import joined, single, update
from lamina.graph.stages import Move, Region, Segment, Stage, inputs_of, stages
from lamina.sharding import BufferType, Device
from lamina.tensors import Tensor

CACHED_BINDINGS = 32
CACHED_SIGNATURES = 1024


class InferenceSession:
    """The devices on which graphs may run; without any, all that there are.

    >>> import numpy as np
    >>> from lamina.graph import DeviceRef, Graph, InferenceSession, TensorType, ops
    >>> devices = [DeviceRef.CPU(0), DeviceRef.CPU(1)]
    >>> graph = Graph(
    ...     "sum", lambda a, b: ops.allreduce.sum([a, b]), [TensorType("float32", ("n",), device) for device in devices]
    ... )
    >>> model = InferenceSession(devices).load(graph)
    >>> [result.numpy().tolist() for result in model.execute(np.ones(2, "float32"), np.ones(2, "float32"))]
    [[2.0, 2.0], [2.0, 2.0]]
    """

    def __init__(self, devices: Iterable[Any] | None = None):
        self.devices = None if devices is None else [as_device(d, "InferenceSession(devices)") for d in devices]
        for device in self.devices or ():
            inventory.resolve(device)

    def load(self, graph: Graph, *, cached: int = CACHED_BINDINGS) -> Model:
        """The graph, checked and ready to run; at most `cached` bindings of its symbols stay compiled."""
        if graph.output_groups is None:
            raise LayoutError(with_fix(f"load: graph {graph.name!r} has no output", "call graph.output(...) first"))
        graph.verify()
        if self.devices is not None:
            unknown_device(graph.devices, self.devices)
        for device in graph.devices:
            inventory.resolve(device)
        return Model(graph, cached)


class Model:
    """A loaded graph.  `execute` runs it; so does calling it, inside of `jax.jit` and `jax.grad`, too."""

    def __init__(self, graph: Graph, cached: int):
        self.graph, self._cached = graph, cached
        self._compiled: OrderedDict[tuple[tuple[str, int], ...], Executable] = OrderedDict()
        self._bindings: dict[tuple[Any, ...], tuple[Binding, tuple[tuple[str, int], ...]]] = {}
        self._constants: dict[str, Any] = {}

    def execute(self, *inputs: Any) -> list[Tensor]:
        """The outputs; buffers are updated in place.

        Inputs are Tensors, numpy arrays, `jax.Array`s, anything with DLPack; of a Tensor on a mesh each device's part
        goes to one input.  They are moved to their devices if they aren't there.  Programs may still be running when
        `execute` returns, as everywhere in JAX.
        """
        bound, executable = self._bind("execute", inputs, pure=False)
        held, stores = bound.held(inputs), executable.lowered.stored
        written = {ns: buffer for ns, buffer in bound.buffers(inputs).items() if ns[0] in stores} if stores else {}
        if written and any(compat.is_tracer(_array(one)) for one in held.values()):
            fact = "execute: a buffer can't be updated inside of jax.jit or jax.grad"
            raise TransformError(with_fix(fact, "model.functional(*inputs) returns what the buffers hold then"))
        outputs, stored = executable.run(held, donate=True)
        for numbers, buffer in written.items():
            update(buffer, stored[numbers[0]])
        return outputs

    __call__ = execute

    def functional(self, *inputs: Any) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs, and what each buffer that the graph writes holds then; nothing is changed."""
        bound, executable = self._bind("functional", inputs, pure=True)
        outputs, stored = executable.run(bound.held(inputs), donate=False)
        return outputs, [stored[number] for number in sorted(stored)]

    def stages(self, **sizes: int) -> tuple[Stage, ...]:
        """The programs and moves that a run consists of, for these sizes of the symbols."""
        return self._executable(tuple(sorted(sizes.items()))).stages

    def _bind(self, name: str, inputs: Sequence[Any], pure: bool) -> tuple[Binding, Executable]:
        """What these arguments mean, decided once for all that look the same."""
        key = (pure, *map(signature, inputs))
        if (known := self._bindings.get(key)) is not None:
            return known[0], self._executable(known[1])
        with explained(f"{name}({self.graph.name})", only=LaminaError):
            bound = Binding(self.graph, inputs, pure)
            sizes = tuple(sorted(bound.sizes.items()))
            found = bound, self._executable(sizes)
        if None not in key:
            if len(self._bindings) >= CACHED_SIGNATURES:
                self._bindings.clear()
            self._bindings[key] = bound, sizes
        return found

    def _executable(self, key: tuple[tuple[str, int], ...]) -> Executable:
        if (known := self._compiled.get(key)) is None:
            known = self._compiled[key] = Executable(self.graph, dict(key), self._constants)
            while len(self._compiled) > self._cached:
                self._compiled.popitem(last=False)
        else:
            self._compiled.move_to_end(key)
        return known

    def __repr__(self) -> str:
        return f"Model({self.graph!r}, {len(self._compiled)} bindings compiled)"


class Executable:
    """One binding: the lowered graph, its stages, and a program for each."""

    def __init__(self, graph: Graph, sizes: dict[str, int], constants: dict[str, Any]):
        self.graph, self.constants = graph, constants
        self.lowered = lower(graph, sizes)
        self.stages = stages(self.lowered)
        self.groups = [
            (ns, None if kind is None else storage_of(kind, sizes)) for ns, kind in graph.output_groups or ()
        ]
        self.outputs = iter_outputs(self.lowered, self.groups)
        buffers = [(ns, kind) for ns, kind in graph.input_groups if isinstance(graph.types[ns[0]], BufferType)]
        self.stored = [
            (ns, None if kind is None else storage_of(kind, sizes))
            for ns, kind in buffers
            if ns[0] in self.lowered.stored
        ]
        self.shared = {*self.lowered.stored.values(), *(n for ns, _ in buffers for n in ns)}
        meshes = [kind.mesh for _, kind in [*graph.input_groups, *(graph.output_groups or ())] if kind is not None]
        self.meshes = [mesh for mesh in dict.fromkeys(meshes) if not mesh.is_simulated]
        specs = {
            ns: (held.mesh, held.sharding.spec)
            for ns, held in self._leaving()
            if held is not None and held.is_plain and not held.is_local
        }
        self.computed_with = {n for stage in self.stages if not isinstance(stage, Move) for n in inputs_of(stage)}
        donated = _donated(self.lowered, self.stages)
        self.programs = [
            stage_program(stage, self.lowered, self.meshes, specs, donated.get(i, frozenset()))
            for i, stage in enumerate(self.stages)
        ]

    def _leaving(self) -> list[tuple[tuple[int, ...], Any]]:
        stored = [(tuple(self.lowered.stored.get(n, n) for n in ns), held) for ns, held in self.stored]
        return [*self.outputs, *stored]

    def run(self, held: dict[int, Any], donate: bool) -> tuple[list[Tensor], dict[int, Tensor]]:
        """The outputs, and what the written buffers hold then, by the number of their first input."""
        tracers = [array for array in map(_array, held.values()) if compat.is_tracer(array)]
        traced, placed = bool(tracers), not any(map(is_inside_jit, tracers))
        env: Env = dict(held)
        self._add_constants(env)
        if placed:
            self._place_host_data(env)
        if placed or self._spread(held):
            for program in self.programs:
                program.run(env, placed, donate and not traced)
        else:
            for number in [*held, *self.lowered.constants]:
                env[number] = in_program(env[number], self.lowered.types[number])
            logical(self.lowered, env)
        outputs = [self._result(env, ns, target, placed) for ns, target in self.outputs]
        if donate and not traced:
            outputs = [
                _own(t) if self.shared & set(ns) else t for t, (ns, _) in zip(outputs, self.outputs, strict=True)
            ]
        stored = {}
        for numbers, target in self.stored:
            last = tuple(self.lowered.stored.get(n, n) for n in numbers)
            stored[numbers[0]] = self._result(env, last, target, placed)
        return outputs, stored

    def _result(self, env: Env, numbers: tuple[int, ...], target: Any, placed: bool) -> Tensor:
        types = self.lowered.types
        if target is None:
            return single(env[numbers[0]], types[numbers[0]], placed)
        return joined([env[n] for n in numbers], [types[n] for n in numbers], target, placed)

    def _spread(self, held: dict[int, Any]) -> bool:
        """Inside of jax.jit: do the inputs come as Tensors over just the devices of the graph's regions?

        Only then may a program over these devices stand there; else the graph is traced as if for one device.
        """
        regions = [stage.devices for stage in self.stages if isinstance(stage, Region)]
        devices = [one.family.mesh.devices for one in held.values() if isinstance(one, Member)]
        return bool(devices and regions) and all(one == devices[0] for one in [*devices, *regions])

    def _place_host_data(self, env: Env) -> None:
        """Host data that programs compute with goes to its devices, all of it at once."""
        host = [number for number in self.computed_with if isinstance(env.get(number), np.ndarray)]
        if host:
            kinds = [self.lowered.types[number] for number in host]
            data = [env[number] for number in host]
            there = transfer.place_each(data, [kind.dtype for kind in kinds], [kind.device for kind in kinds])  # type: ignore[misc]
            env.update(zip(host, there, strict=True))

    def _add_constants(self, env: Env) -> None:
        for number, name in self.lowered.constants.items():
            data = self.graph.constants[name]
            only_moved = all(
                isinstance(one.op, Collective) for one in self.lowered.instructions if number in one.inputs
            )
            if only_moved:
                env[number] = data  # straight from the host to where it is wanted
                continue
            device = self.lowered.types[number].device
            assert device is not None
            if name not in self.constants:
                self.constants[name] = _place(data, device)
            env[number] = self.constants[name]


@compat.at_once
def _place(data: np.ndarray, device: Device) -> Any:
    return transfer.place_each([data], [data.dtype], [device])[0]


def iter_outputs(lowered: Lowered, groups: Sequence[tuple[tuple[int, ...], Any]]) -> list[tuple[tuple[int, ...], Any]]:
    """The outputs by the values that they are after lowering."""
    numbers = iter(lowered.outputs)
    return [(tuple(next(numbers) for _ in group), held) for group, held in groups]


def _donated(lowered: Lowered, found: Sequence[Stage]) -> dict[int, frozenset[int]]:
    """Which buffers' first contents each stage may overwrite: used there for the last time, replaced by its result."""
    last: dict[int, int] = {}
    made: dict[int, int] = {}
    for i, stage in enumerate(found):
        last |= dict.fromkeys(inputs_of(stage), i)
        match stage:
            case Region():
                made |= dict.fromkeys((n for row in stage.outputs for n in row), i)
            case Segment():
                made |= dict.fromkeys(stage.outputs, i)
    donated: dict[int, set[int]] = {}
    for buffer, value in lowered.stored.items():
        place = made.get(value)
        if place is not None and last.get(buffer) == place and buffer not in lowered.results:
            donated.setdefault(place, set()).add(buffer)
    return {place: frozenset(buffers) for place, buffers in donated.items()}


def _own(t: Tensor) -> Tensor:
    """A copy of what a buffer holds, too: the next run may overwrite that."""
    return Tensor(copied(t._array), t._held)


def _array(held: Any) -> Any:
    return held.family.array if isinstance(held, Member) else held
