"""A graph as text; `reader.parse_graph` reads it back.

::

    graph NAME(%0: float32[n, 4] @ CPU(0), %1..%2: float32[n, 4] as [x=2] x,- on (CPU(0), CPU(1)), %3: buffer …) {
      %5, %6 = allgather(%1, %2; %3#0, %4#0) {axis=0} : float32[n, 4] @ CPU(0), float32[n, 4] @ CPU(1)
      output(%5, (%5, %6): float32[n, 4] as [x=2] -,- on (CPU(0), CPU(1)))
    }

A node is its results, its op, its operands, after `;` its signal buffers with the turn that it takes on each, its
attributes as Python writes them, and the types of its results.  Data and functions that don't fit
into a line stand under a name; `graph.constants` and `graph.functions` have them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lamina.sharding import BufferType, Device, DistributedBufferType, DistributedType
from lamina.sharding.dims import AlgebraicDim, SymbolicDim

if TYPE_CHECKING:
    from lamina.graph.graph import Graph
    from lamina.graph.nodes import Node


WIDTH = 90


def graph_text(graph: Graph) -> str:
    inputs = [_input(graph, numbers, kind) for numbers, kind in graph.input_groups]
    in_one_line = sum(map(len, inputs)) <= WIDTH
    listed = ", ".join(inputs) if in_one_line else "\n    " + ",\n    ".join(inputs) + "\n"
    name = graph.name if re.fullmatch(r"\w+", graph.name) else repr(graph.name)
    lines = [f"graph {name}({listed}) {{"]
    lines += [f"  {_node(graph, node)}" for node in graph.nodes]
    if graph.output_groups is not None:
        lines.append(f"  output({', '.join(_output(numbers, kind) for numbers, kind in graph.output_groups)})")
    return "\n".join([*lines, "}"])


def _input(graph: Graph, numbers: Sequence[int], kind: DistributedType | None) -> str:
    if kind is not None:
        return f"{_several(numbers)}: {distributed_text(kind)}"
    one = graph.types[numbers[0]]
    return f"%{numbers[0]}: {'buffer ' if isinstance(one, BufferType) else ''}{one}"


def distributed_text(kind: DistributedType) -> str:
    """
    >>> from lamina.sharding import DeviceMesh, CPU, DistributedTensorType, Sharded
    >>> mesh = DeviceMesh((CPU(0), CPU(1)), (2,), ("x",))
    >>> distributed_text(DistributedTensorType("float32", ("n", 4), mesh, [Sharded(0)]))
    'float32[n, 4] as [x=2] x,- on (CPU(0), CPU(1))'
    """
    buffer = "buffer " if isinstance(kind, DistributedBufferType) else ""
    dims = ", ".join(map(str, kind.shape))
    return f"{buffer}{kind.dtype}[{dims}] as {kind.layout} on ({', '.join(map(repr, kind.mesh.devices))})"


def _output(numbers: Sequence[int], kind: DistributedType | None) -> str:
    return f"%{numbers[0]}" if kind is None else f"({_listed(numbers)}): {distributed_text(kind)}"


def _node(graph: Graph, node: Node) -> str:
    results = f"{_listed(node.outputs)} = " if node.outputs else ""
    meeting = ", ".join(f"%{buffer}#{turn}" for buffer, turn in zip(node.signals, node.turns, strict=True))
    operands = _listed(node.inputs) + (f"; {meeting}" if meeting else "")
    shown = {name: value for name, value in node.attributes if not _follows(name, node)}
    attributes = f" {{{', '.join(f'{name}={_value(value)}' for name, value in shown.items())}}}" if shown else ""
    kinds = ", ".join(str(graph.types[number]) for number in node.outputs)
    return f"{results}{node.op}({operands}){attributes}" + (f" : {kinds}" if kinds else "")


def _follows(name: str, node: Node) -> bool:
    """Is the attribute said by the types of the results anyway?"""
    return name in ("device", "devices", "results") or (name == "shape" and node.op == "constant")


def _value(value: Any) -> str:
    match value:
        case tuple():
            return f"({', '.join(map(_value, value))}{',' if len(value) == 1 else ''})"
        case SymbolicDim() | AlgebraicDim():
            return f"dim({str(value)!r})"
        case Device():
            return repr(value)
    return repr(value)


def _several(numbers: Sequence[int]) -> str:
    return f"%{numbers[0]}" if len(numbers) == 1 else f"%{numbers[0]}..%{numbers[-1]}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"%{number}" for number in numbers)
