"""What a graph is made of: nodes, and the ops that say what a node means.

An op is one of three kinds:

* `Local`: values of one device to values of the same device.  `infer` gives the types of the results from those of the
  operands, or raises a LayoutError; `compute` is the JAX function.
* `Collective`: from devices to devices.  What it means is said once, by `sends` (which part of which operand goes to
  the device of result i) and `arrive` (what that device makes of the parts).  `across`, where there is one, is the same
  for a group of devices that do it in lock-step with a collective of the machine; `in_step` says when they can.
* `Mutation`: reads or writes a buffer; `compute` maps what the buffer held, and the operands, to what it holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.sharding import BufferType, TensorType

Attributes = Mapping[str, Any]
Box = tuple[slice, ...]
Types = Sequence[Any]
Infer = Callable[[Types, Attributes], list[TensorType]]


@dataclass(frozen=True)
class Local:
    """`compute(attributes, *arrays)` gives the array, or a tuple of them."""

    infer: Infer
    compute: Callable[..., Any]


@dataclass(frozen=True)
class Collective:
    """See the module's docstring.

    `sends(types, attributes, i)` lists (operand, box) for result i, a box of None being all of it;
    `arrive(attributes, parts, i)` makes the result; `across(attributes, x, axes, sizes)` runs inside of `shard_map`.
    """

    infer: Infer
    sends: Callable[[Types, Attributes, int], list[tuple[int, Box | None]]]
    arrive: Callable[[Attributes, list[Any], int], Any]
    in_step: Callable[[Types, Attributes], bool] = lambda types, attributes: False
    across: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Mutation:
    """`compute(attributes, held, *arrays)` gives what the buffer holds afterwards; None: it is only read."""

    infer: Infer
    compute: Callable[..., Any] | None = None


Op = Local | Collective | Mutation


@dataclass(frozen=True)
class Node:
    """One op at its place in a graph.

    1. `inputs` and `outputs` are numbers of values; every input is older than every output.
    2. `signals` are the buffers that a collective's participants meet on, in the order of the participants, and
       `turns` says the how-manieth use of each buffer this is.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: tuple[tuple[str, Any], ...] = ()
    signals: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.attributes)


Type = TensorType | BufferType
