"""What the collectives have in common: participants on devices of their own, and a signal buffer for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lamina.errors import LayoutError, Problems, with_fix
from lamina.graph.arguments import as_buffers, as_tensor
from lamina.graph.graph import Graph
from lamina.graph.values import BufferValue, TensorValue
from lamina.sharding import CPU, Device, TensorType


def participants(
    op: str, inputs: Iterable[Any], signal_buffers: Iterable[Any] | None
) -> tuple[list[TensorValue], list[BufferValue]]:
    """The inputs and their buffers; data that is no value yet comes to the device of its buffer."""
    given = list(inputs)
    if not given:
        raise LayoutError(with_fix(f"{op}: the list of inputs is empty", "give one input per device"))
    if signal_buffers is None:
        return [as_tensor(x, op) for x in given], []
    buffers = as_buffers(signal_buffers, op)
    if len(buffers) != len(given):
        fact = f"{op}: {len(given)} inputs and {len(buffers)} signal buffers"
        raise LayoutError(with_fix(fact, "give one signal buffer per input, or none at all (signal_buffers=None)"))
    return [as_tensor(x, op, device=b.device, graph=b.graph) for x, b in zip(given, buffers, strict=True)], buffers


def receivers(
    op: str, signal_buffers: Iterable[Any] | None, devices: Sequence[Device] | None
) -> tuple[list[Device], list[BufferValue]]:
    """The devices that take part in what one of them starts: those of the buffers."""
    if signal_buffers is not None:
        buffers = as_buffers(signal_buffers, op)
        return [buffer.device for buffer in buffers], buffers
    if devices is None:
        fact = f"{op}(signal_buffers=None): nothing says which devices take part"
        raise LayoutError(with_fix(fact, "give signal_buffers, or devices=[...]"))
    return list(devices), []


def graph_of(values: Iterable[Any]) -> Graph:
    """The graph of the first of them that is a value, else the current one."""
    found = next((value.graph for value in values if isinstance(value, (TensorValue, BufferValue))), None)
    return found or Graph.current()


# -- what the rules of types check ------------------------------------------------------------------------------------


def check_group(op: str, types: Sequence[TensorType], axis: int | None = None) -> None:
    """Inputs on devices of their own, alike but for their sizes along `axis`."""
    problems = Problems()
    check_unique(op, [kind.device for kind in types], "inputs", problems)
    check_alike(op, types, problems, axis)
    problems.check()


def check_receivers(op: str, types: Sequence[TensorType], devices: Sequence[Device]) -> None:
    """At least two devices, each once, and the root, which holds all inputs, among them."""
    problems, what = Problems(), op.removeprefix("distributed_")
    if len(devices) < 2:
        fact = f"{op}: {len(devices)} signal buffer{'s' * (len(devices) != 1)}; a {what} needs at least 2"
        problems.add(fact, "give a signal buffer per device")
    check_unique(op, devices, "signal buffers", problems)
    for root in dict.fromkeys(kind.device for kind in types):
        if root not in devices:
            there = ", ".join(map(repr, devices))
            fact = f"{op}: the input is on {root!r}, which is not among the devices of the signal buffers: {there}"
            problems.add(fact, "ops.transfer_to it to one of them, or add that device's signal buffer")
    problems.check()


def check_unique(op: str, devices: Sequence[Any], what: str, problems: Problems) -> None:
    for i, device in enumerate(devices):
        if device in devices[:i]:
            fact = f"{op}: the {what} are not on devices of their own: {device!r} stands twice"
            problems.add(fact, "use each device once")


def check_alike(op: str, types: Sequence[TensorType], problems: Problems, axis: int | None = None) -> None:
    """Equal rank, dtype and dims; along `axis` the dims may differ."""
    first = types[0]
    for i, kind in enumerate(types):
        if kind.rank != first.rank:
            problems.add(f"{op}: input {i} has rank {kind.rank}, input 0 has rank {first.rank}", "give them one rank")
            continue
        if kind.dtype != first.dtype:
            problems.add(f"{op}: input {i} is {kind.dtype}, input 0 is {first.dtype}", "ops.cast one of them")
        for dim, (mine, its) in enumerate(zip(kind.shape, first.shape, strict=True)):
            if mine != its and dim != axis:
                which = "only the dims along the axis may differ" if axis is not None else "the shapes must be equal"
                problems.add(f"{op}: dim {dim} is {mine} in input {i} and {its} in input 0", which)


def check_axis(op: str, types: Sequence[TensorType], axis: int) -> None:
    """For a text, whose axes no function has looked at."""
    if not 0 <= axis < types[0].rank:
        raise LayoutError(f"{op}(axis={axis}) is out of bounds for a value of rank {types[0].rank}")


def host() -> Device:
    """Where data lies that is no value yet."""
    return CPU(0)
