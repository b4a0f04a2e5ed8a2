"""The order in which devices meet on their signal buffers.

A collective takes one turn on each of its buffers, and a device takes the turns of its buffer one after the other.  Two
things can go wrong, and both are refused when the graph is built or read:

* The participants are listed in another order the second time.  A device's place in the list is its rank in the
  meeting, and a buffer keeps the state of the last one under that rank.
* On two buffers the turns are taken in different orders: each of two devices waits in a collective that the other has
  yet to reach.  Ops take their turns in the order in which they are written, so only a text can say such a thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from lamina.errors import LayoutError, Problems, with_fix
from lamina.graph.nodes import Node
from lamina.graph.values import BufferValue
from lamina.sharding import Device


def check_meeting(op: str, devices: Sequence[Device], signals: Sequence[BufferValue]) -> None:
    """LayoutError unless the signal buffers are those of the participants, in their order."""
    if not signals:
        return
    problems = Problems()
    if any(not isinstance(buffer, BufferValue) for buffer in signals):
        problems.add(f"{op}: {signals} are not all buffers", "Signals(devices).input_types() are their types")
    if len(signals) != len(devices):
        problems.add(f"{op}: {len(devices)} participants and {len(signals)} signal buffers", "give one for each")
    for i, (device, buffer) in enumerate(zip(devices, signals, strict=False)):
        if device != buffer.device:
            fact = f"{op}: input {i} is on {device!r}, its signal buffer on {buffer.device!r}"
            problems.add(fact, "list the signal buffers in the order of the inputs")
    problems.check()


def check_order(nodes: Sequence[Node]) -> None:
    """LayoutError if the newest collective, or any two, disagree about the order."""
    meetings = [node for node in nodes if node.signals]
    if not meetings or nodes[-1].signals == ():
        return
    _check_ranks(meetings)
    _check_turns(nodes, meetings)


def _check_ranks(meetings: Sequence[Node]) -> None:
    last = meetings[-1]
    for earlier in meetings[:-1]:
        common = [buffer for buffer in earlier.signals if buffer in last.signals]
        now = [buffer for buffer in last.signals if buffer in common]
        if common != now:
            fact = (
                f"{last.op} lists the signal buffers {_listed(now)} in another order than {earlier.op} "
                f"before it, {_listed(common)}: each device would meet the others under another rank"
            )
            raise LayoutError(with_fix(fact, f"list them as {_listed(common)}, or take buffers of their own"))


def _check_turns(nodes: Sequence[Node], meetings: Sequence[Node]) -> None:
    after: dict[int, set[int]] = {id(node): set() for node in nodes}
    turns: dict[int, dict[int, Node]] = {}
    for node in meetings:
        for buffer, turn in zip(node.signals, node.turns, strict=True):
            if (other := turns.setdefault(buffer, {}).setdefault(turn, node)) is not node:
                raise LayoutError(f"{other.op} and {node.op} both take turn {turn} on %{buffer}")
    for by_turn in turns.values():
        order = [by_turn[turn] for turn in sorted(by_turn)]
        for first, then in pairwise(order):
            after[id(then)].add(id(first))
    maker = {number: node for node in nodes for number in node.outputs}
    for node in nodes:
        after[id(node)] |= {id(maker[number]) for number in node.inputs if number in maker}
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        by_id = {id(node): node for node in nodes}
        waiting = [by_id[key] for key in error.args[1] if by_id[key].signals][:2]
        raise LayoutError(_deadlock(*(waiting * 2)[:2])) from None


def _deadlock(one: Node, other: Node) -> str:
    uses = [
        f"{node.op} of {_listed(node.outputs)} takes turns "
        + ", ".join(f"{turn} on %{buffer}" for buffer, turn in zip(node.signals, node.turns, strict=True))
        for node in (one, other)
    ]
    fact = f"two collectives use the same signal buffers in different order on different devices: {'; '.join(uses)}"
    return with_fix(fact, "let every device take its turns in one order, or give each collective its own buffers")


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(f"%{number}" for number in numbers)
