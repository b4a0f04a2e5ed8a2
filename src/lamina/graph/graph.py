"""The graph itself: a list of nodes that only grows, checked as it grows.

1. A value's number is its place in `types`; inputs come first, every node's operands are older than its results.
2. Whatever is in a graph has passed its op's `infer`; `verify` proves it again, for graphs that were read from text.
3. A collective's signal buffers are on its participants' devices, listed in one order throughout the graph, and no
   device meets the others in an order in which they would wait for each other forever (see `ordering`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np

from lamina.errors import LayoutError, Problems, explained, with_fix
from lamina.graph.nodes import Node, Type
from lamina.graph.ordering import Meetings, check_meeting, check_turns
from lamina.graph.values import BufferValue, DistributedValue, TensorValue, Value
from lamina.sharding import BufferType, DistributedBufferType, DistributedType, TensorType
from lamina.sharding.shape import Shape

_current: ContextVar[Graph | None] = ContextVar("lamina_graph", default=None)


class Graph:
    """Values on devices, and what is done with them.

    As a context manager, inside of which the ops of `lamina.graph.ops` add to it, or as a tracer: `forward` is called
    with the inputs, and what it returns is the output.  `input_types` are TensorTypes, BufferTypes, and distributed
    types, of which one stands for a value per device.

    >>> from lamina.graph import DeviceRef, Graph, TensorType, ops
    >>> with Graph("double", input_types=[TensorType("float32", ("n",), DeviceRef.CPU(0))]) as graph:
    ...     graph.output(graph.inputs[0] * 2)
    >>> print(graph)
    graph double(%0: float32[n] @ CPU(0)) {
      %1 = constant() {dtype='float32', value=2.0} : float32[] @ CPU(0)
      %2 = mul(%0, %1) : float32[n] @ CPU(0)
      output(%2)
    }
    """

    def __init__(self, name: str, forward: Any = None, input_types: Sequence[Any] = ()):
        if forward is not None and not callable(forward):
            forward, input_types = None, forward  # Graph("name", [types])
        self.name = name
        self.types: list[Type] = []
        self.nodes: list[Node] = []
        self.input_groups: list[tuple[tuple[int, ...], DistributedType | None]] = []
        self.output_groups: list[tuple[tuple[int, ...], DistributedType | None]] | None = None
        self.constants: dict[str, np.ndarray] = {}
        self.functions: dict[str, Callable[..., Any]] = {}
        self._meetings = Meetings()
        self._outer: list[Any] = []
        self.inputs = [self._input(i, kind) for i, kind in enumerate(input_types)]
        if forward is not None:
            with self:
                found = forward(*self.inputs)
                several = isinstance(found, (list, tuple)) and not isinstance(found, DistributedValue)
                self.output(*(found if several else [found]))

    @staticmethod
    def current() -> Graph:
        """The graph of the innermost `with`."""
        if (graph := _current.get()) is None:
            raise LayoutError(with_fix("there is no current graph", "call ops inside of `with Graph(...) as graph:`"))
        return graph

    def __enter__(self) -> Graph:
        self._outer.append(_current.set(self))
        return self

    def __exit__(self, kind: type | None, *_: Any) -> None:
        _current.reset(self._outer.pop())
        if kind is None and self.output_groups is None:
            fact = f"graph {self.name!r} has no output"
            raise LayoutError(with_fix(fact, "call graph.output(...) as the last thing, without values if need be"))

    # -- what is in it ----------------------------------------------------------------------------------------------

    def value(self, number: int) -> Any:
        """The value of that number."""
        kind = self.types[number]
        return (BufferValue if isinstance(kind, BufferType) else TensorValue)(self, number, kind)

    @property
    def input_types(self) -> list[Type]:
        """One type per value: a distributed input has one per device."""
        return [self.types[number] for numbers, _ in self.input_groups for number in numbers]

    @property
    def outputs(self) -> list[Any]:
        """The values that `output` was given, one per device where they are distributed."""
        return [self.value(number) for numbers, _ in self.output_groups or () for number in numbers]

    @property
    def devices(self) -> list[Any]:
        """Every device that holds a value, in order of appearance."""
        return list(dict.fromkeys(kind.device for kind in self.types))

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the dims that are bound when it runs."""
        return frozenset[str]().union(*(kind.shape.symbols for kind in self.input_types))

    # -- how it grows -----------------------------------------------------------------------------------------------

    def _input(self, position: int, kind: Any) -> Any:
        if not isinstance(kind, (TensorType, BufferType, DistributedType)):
            raise TypeError(
                f"Graph(input_types[{position}]) must be a TensorType, a BufferType or a distributed type, not {kind!r}"
            )
        local = kind.local_types if isinstance(kind, DistributedType) else [kind]
        with explained(f"Graph(input_types[{position}])", type=kind):
            values = [self._new(kept(one)) for one in local]
        distributed = kind if isinstance(kind, DistributedType) else None
        self.input_groups.append((tuple(value.number for value in values), distributed))
        return values[0] if distributed is None else DistributedValue(values, distributed)

    def _new(self, kind: Type) -> Any:
        if kind.device is None:
            raise LayoutError(
                with_fix(f"{kind.dtype}{kind.shape} has no device", "name one: an abstract mesh has none")
            )
        self.types.append(kind)
        return self.value(len(self.types) - 1)

    def add(
        self,
        op: str,
        inputs: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        signals: Sequence[BufferValue] = (),
        turns: Sequence[int] | None = None,
    ) -> list[Any]:
        """One more node; its results.  This is what the functions of `ops` call."""
        from lamina.graph.ops import OPS  # the ops are made of graphs

        if self.output_groups is not None:
            raise LayoutError(with_fix(f"graph {self.name!r} is finished", "call output(...) after the last op"))
        self._check_mine([*inputs, *signals], op)
        settings = dict(attributes or {})
        problems, kinds = Problems(), []
        with problems.caught():
            kinds = OPS[op].infer([value.type for value in inputs], settings)
        with problems.caught():
            check_meeting(op, settings.get("devices", [value.device for value in inputs]), signals)
        problems.check()
        meeting = tuple(buffer.number for buffer in signals)
        uses = self._meetings.next_turns(meeting) if turns is None else tuple(turns)
        results = [self._new(kind) for kind in kinds]
        numbers = tuple(value.number for value in inputs), tuple(value.number for value in results)
        node = Node(op, *numbers, tuple(sorted(settings.items())), meeting, uses)
        self.nodes.append(node)
        try:
            self._meetings.check(node, self.nodes)
        except LayoutError:
            self.nodes.pop()  # a failed op leaves the graph as it was
            del self.types[len(self.types) - len(results) :]
            raise
        return results

    def _check_mine(self, values: Iterable[Value], op: str) -> None:
        for value in values:
            if value.graph is not self:
                fact = f"{op}: {value!r} belongs to graph {value.graph.name!r}, not to {self.name!r}"
                raise LayoutError(with_fix(fact, "pass it in as an input"))

    def output(self, *values: Any) -> None:
        """What the graph returns: values, lists of them, and distributed values, which come out as one tensor each."""
        from lamina.graph.arguments import as_value

        if self.output_groups is not None:
            raise LayoutError(with_fix(f"graph {self.name!r} has an output already", "call output(...) once"))
        groups: list[tuple[tuple[int, ...], DistributedType | None]] = []
        for given in values:
            if isinstance(given, DistributedValue):
                groups.append((tuple(value.number for value in given), given.type))
                continue
            several = given if isinstance(given, (list, tuple)) else [given]
            groups += [((as_value(value, "output", self).number,), None) for value in several]
        self._check_mine([self.value(n) for numbers, _ in groups for n in numbers], "output")
        self.output_groups = groups

    def verify(self) -> None:
        """Proves the class's invariants again; what is built with `ops` keeps them anyway."""
        from lamina.graph.ops import OPS

        for place, node in enumerate(self.nodes):
            with explained(f"graph {self.name!r}, node {place} ({node.op})"):
                if any(number >= min(node.outputs, default=len(self.types)) for number in node.inputs):
                    raise LayoutError("an operand is younger than the result")
                expected = OPS[node.op].infer([self.types[n] for n in node.inputs], node.settings)
                written = [self.types[n] for n in node.outputs]
                if expected != written:
                    raise LayoutError(f"its results are {_listed(expected)}, not {_listed(written)}")
                inputs, signals = [self.value(n) for n in node.inputs], [self.value(n) for n in node.signals]
                check_meeting(node.op, node.settings.get("devices", [value.device for value in inputs]), signals)
        check_turns(self.nodes)

    # -- how it shows itself ----------------------------------------------------------------------------------------

    def __str__(self) -> str:
        from lamina.graph.text import graph_text

        return graph_text(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes on {', '.join(map(repr, self.devices)) or 'no device'}>"

    def to_dot(self) -> str:
        """The graph for Graphviz, one cluster per device."""
        from lamina.graph.picture import dot

        return dot(self)

    def to_svg(self) -> str:
        """A picture: one lane per device, time downwards, collectives across the lanes."""
        from lamina.graph.picture import svg

        return svg(self)

    _repr_svg_ = to_svg


def kept(kind: Type) -> Type:
    """The type with the dtype that JAX keeps: 64 bits become 32 unless `jax_enable_x64` is set."""
    dtype = jax.dtypes.canonicalize_dtype(jax.numpy.dtype(kind.dtype)).name
    return type(kind)(dtype, Shape(kind.shape), kind.device)


def distributed(values: Sequence[Any], mesh: Any, placements: Any) -> DistributedValue:
    """The values of a graph, one per device of the mesh, as one distributed value: what `output` makes a Tensor of.

    >>> import lamina
    >>> from lamina.graph import DeviceRef, Graph, TensorType, distributed
    >>> mesh = lamina.DeviceMesh([lamina.CPU(0), lamina.CPU(1)], (2,), ("x",))
    >>> graph = Graph(
    ...     "g",
    ...     lambda a, b: distributed([a, b], mesh, [lamina.Sharded(0)]),
    ...     [TensorType("float32", (3, "n"), DeviceRef.CPU(i)) for i in range(2)],
    ... )
    >>> graph.output_groups[0][1].shape
    (6, SymbolicDim('n'))
    """
    from lamina.graph.arguments import distributed_type

    kind = DistributedBufferType if all(isinstance(value, BufferValue) for value in values) else None
    return DistributedValue(values, distributed_type(values, mesh, placements, kind))


def _listed(kinds: Sequence[Type]) -> str:
    return ", ".join(map(str, kinds)) or "none"
