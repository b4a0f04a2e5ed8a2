"""Reads what `text` writes: `parse_graph(str(graph))` is the same graph again.

Every node goes through `Graph.add`, so a text is checked as a program is, and what it says of its results must be what
the op makes of its operands.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lamina.errors import LaminaError, LayoutError, SpecSyntaxError, explained, with_fix
from lamina.graph.graph import Graph
from lamina.graph.ops import OPS
from lamina.graph.values import DistributedValue
from lamina.sharding import (
    CPU,
    Accelerator,
    BufferType,
    DeviceMesh,
    DistributedBufferType,
    DistributedTensorType,
    NamedMapping,
    TensorType,
    parse_layout,
)
from lamina.sharding.dims import parse_dim
from lamina.sharding.shape import Shape


def parse_graph(
    text: str,
    constants: Mapping[str, np.ndarray] | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> Graph:
    """The graph that a text describes.

    `constants` and `functions` are what the text has only the names of: those of the graph that was written.

    >>> from lamina.graph import DeviceRef, Graph, TensorType
    >>> graph = Graph("g", lambda x: x + 1, [TensorType("int32", ("n", 2), DeviceRef.CPU(0))])
    >>> str(parse_graph(str(graph))) == str(graph)
    True
    >>> parse_graph("graph g(%0: int32[n @ CPU(0)) {}")
    Traceback (most recent call last):
    lamina.errors.SpecSyntaxError: expected ']' at column 33 of 'graph g(%0: int32[n @ CPU(0)) {}'
    """
    return _Reader(text, dict(constants or {}), dict(functions or {})).graph()


class _Reader:
    """Recursive descent over the whole text; an error shows the line and the column."""

    def __init__(self, text: str, constants: dict[str, Any], functions: dict[str, Any]):
        self.text, self.at = text, 0
        self.constants, self.functions = constants, functions

    # -- characters -------------------------------------------------------------------------------------------------

    def fail(self, fact: str) -> SpecSyntaxError:
        start = self.text.rfind("\n", 0, self.at) + 1
        end = self.text.find("\n", self.at)
        return SpecSyntaxError(fact, self.text[start : end if end >= 0 else None], self.at - start)

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip()
        found = self.text.startswith(token, self.at)
        self.at += len(token) * found
        return found

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(f"expected {token!r}")

    def match(self, pattern: str, what: str) -> str:
        self.skip()
        if not (found := re.compile(pattern).match(self.text, self.at)):
            raise self.fail(f"expected {what}")
        self.at = found.end()
        return found[0]

    def until(self, closing: str) -> str:
        """The text up to the closing bracket of one that is open; strings and brackets inside of it are skipped."""
        start, depth, quote = self.at, 0, ""
        while self.at < len(self.text):
            character = self.text[self.at]
            if quote:
                self.at += character == "\\"
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
            elif depth == 0 and character == closing:
                self.at += 1
                return self.text[start : self.at - 1]
            else:
                depth += (character in "([{") - (character in ")]}")
            self.at += 1
        raise self.fail(f"expected {closing!r}")

    def listed(self, closing: str, one: Callable[[], Any]) -> list[Any]:
        """What stands between here and the closing bracket, separated by commas."""
        found: list[Any] = []
        while not self.take(closing):
            if found:
                self.need(",")
            found.append(one())
        return found

    # -- pieces -----------------------------------------------------------------------------------------------------

    def number(self) -> int:
        self.need("%")
        return int(self.match(r"\d+", "the number of a value"))

    def device(self) -> Any:
        kind = self.match(r"CPU|Accelerator", "a device, CPU(i) or Accelerator(i)")
        self.need("(")
        device = (CPU if kind == "CPU" else Accelerator)(int(self.match(r"\d+", "the id of a device")))
        self.need(")")
        return device

    def kind(self) -> Any:
        """A type on one device, or a distributed one."""
        is_buffer = re.compile(r"\s*buffer\s").match(self.text, self.at) is not None and self.take("buffer")
        dtype = self.match(r"\w+", "a dtype")
        self.need("[")
        inside = self.until("]")
        dims = [parse_dim(part) for part in _split(inside)]
        if self.take("@"):
            return (BufferType if is_buffer else TensorType)(dtype, Shape(dims), self.device())
        self.need("as")
        layout = parse_layout(self.match(r"\[[^\]]*\][^\n]*?(?= on \()", "a layout").strip())
        self.need("on")
        self.need("(")
        devices = self.listed(")", self.device)
        mesh = DeviceMesh(devices, [size for _, size in layout.axes], [name for name, _ in layout.axes])
        mapping = NamedMapping(mesh, layout.dims, unreduced=dict(layout.partial))
        return (DistributedBufferType if is_buffer else DistributedTensorType)(dtype, tuple(dims), mesh, mapping)

    def input(self) -> Any:
        self.number()
        if self.take(".."):
            self.number()
        self.need(":")
        return self.kind()

    # -- the whole --------------------------------------------------------------------------------------------------

    def graph(self) -> Graph:
        self.need("graph")
        written = self.match(r"\w+|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "the name of the graph")
        name = ast.literal_eval(written) if written[0] in "'\"" else written
        self.need("(")
        graph = Graph(name, input_types=self.listed(")", self.input))
        graph.constants, graph.functions = self.constants, self.functions
        self.need("{")
        while not self.take("}"):
            self.skip()
            if re.compile(r"output\s*\(").match(self.text, self.at):
                self.output(graph)
            else:
                self.node(graph)
        self.skip()
        if self.at < len(self.text):
            raise self.fail("did not expect anything after the graph")
        return graph

    def output(self, graph: Graph) -> None:
        self.need("output")
        self.need("(")
        graph.output(*self.listed(")", lambda: self.result(graph)))

    def result(self, graph: Graph) -> Any:
        if not self.take("("):
            return self.value(graph)
        values = self.listed(")", lambda: self.value(graph))
        self.need(":")
        return DistributedValue(values, self.kind())

    def value(self, graph: Graph) -> Any:
        start = self.at
        if (number := self.number()) >= len(graph.types):
            self.at = start
            self.skip()
            raise self.fail(f"%{number} is not there yet")
        return graph.value(number)

    def node(self, graph: Graph) -> None:
        results: list[int] = []
        while re.compile(r"\s*[%,]").match(self.text, self.at):
            self.take(",")
            results.append(self.number())
        if results:
            self.need("=")
        start = self.at
        op = self.match(r"[\w.]+", "the name of an op")
        if op not in OPS:
            self.at = start
            self.skip()
            raise self.fail(f"there is no op {op!r}")
        self.need("(")
        inputs, signals, turns = self.operands(graph)
        attributes = _read_attributes(self, self.until("}")) if self.take("{") else {}
        kinds = [self.kind()] if self.take(":") else []
        while len(kinds) < len(results):
            self.need(",")
            kinds.append(self.kind())
        self.check_names(op, attributes)
        with explained(f"line {self.text.count(chr(10), 0, start) + 1} ({op})", only=LaminaError):
            found = graph.add(op, inputs, attributes | _restored(op, attributes, kinds), signals, turns)
            written = list(zip(results, kinds, strict=True))
            if [(value.number, value.type) for value in found] != written:
                shown = ", ".join(map(repr, found)) or "nothing"
                fact = f"its results are {shown}, not {', '.join(f'%{n}: {kind}' for n, kind in written) or 'nothing'}"
                raise LayoutError(with_fix(fact, "write what the op makes of its operands"))

    def operands(self, graph: Graph) -> tuple[list[Any], list[Any], list[int]]:
        inputs: list[Any] = []
        signals: list[tuple[Any, int]] = []
        while not self.take(")"):
            if self.take(";"):
                signals = self.listed(")", lambda: self.meeting(graph))
                break
            if inputs:
                self.need(",")
            inputs.append(self.value(graph))
        return inputs, [buffer for buffer, _ in signals], [turn for _, turn in signals]

    def meeting(self, graph: Graph) -> tuple[Any, int]:
        buffer = self.value(graph)
        self.need("#")
        return buffer, int(self.match(r"\d+", "a turn"))

    def check_names(self, op: str, attributes: dict[str, Any]) -> None:
        for what, given, key in (("constants", self.constants, "name"), ("functions", self.functions, "function")):
            name = attributes.get(key)
            if name is not None and name not in given:
                fact = f"parse_graph: the text names {name!r}, which is not among the {what} {sorted(given)}"
                raise LayoutError(with_fix(fact, f"parse_graph(text, {what}=graph.{what}) of the graph that wrote it"))


def _split(text: str) -> list[str]:
    """The parts between the commas that are in no brackets.

    >>> _split("n, (n + 1) // 2"), _split("")
    (['n', ' (n + 1) // 2'], [])
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts if text.strip() else []


def _restored(op: str, attributes: dict[str, Any], kinds: list[Any]) -> dict[str, Any]:
    """The attributes that the text leaves out because the types of the results say them."""
    if op in ("constant", "dim", "shape", "transfer_to"):
        shape = {"shape": tuple(kinds[0].shape)} if "name" in attributes else {}
        return {"device": kinds[0].device, **shape}
    if op in ("distributed_broadcast", "distributed_scatter", "shard_and_stack"):
        return {"devices": tuple(kind.device for kind in kinds)}
    if op == "call":
        return {"results": tuple((kind.dtype, tuple(kind.shape)) for kind in kinds)}
    return {}


def _read_attributes(reader: _Reader, text: str) -> dict[str, Any]:
    try:
        call = ast.parse(f"dict({text})", mode="eval").body
        assert isinstance(call, ast.Call) and not call.args
        return {str(keyword.arg): _literal(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise reader.fail(f"{{{text}}} are no attributes") from None


def _literal(node: ast.expr) -> Any:
    """A Python literal; also infinities, dims and devices."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Tuple(elts=parts):
            return tuple(map(_literal, parts))
        case ast.Name(id="inf" | "nan" as name):
            return math.inf if name == "inf" else math.nan
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_literal(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            other = _literal(right)
            return _literal(left) + (other if isinstance(sign, ast.Add) else -other)
        case ast.Call(func=ast.Name(id="dim"), args=[ast.Constant(value=str(text))]):
            return parse_dim(text)
        case ast.Call(func=ast.Name(id="CPU" | "Accelerator" as name), args=[ast.Constant(value=int(number))]):
            return (CPU if name == "CPU" else Accelerator)(number)
    raise ValueError(ast.unparse(node))
