"""The order in which devices meet on their signal buffers.

A collective takes one turn on each of its buffers, and a device takes the turns of its buffer one after the other.  Two
things can go wrong, and both are refused when the graph is built or read:

* The participants are listed in another order the second time.  A device's place in the list is its rank in the
  meeting, and a buffer keeps the state of the last one under that rank.
* On two buffers the turns are taken in different orders: each of two devices waits in a collective that the other has
  yet to reach.  Ops take their turns in the order in which they are written, so only a text can say such a thing.
"""

from __future__ import annotations

from collections import Counter
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


class Meetings:
    """Who meets on which buffers, as far as a graph has grown.

    `uses` counts the turns taken on each buffer.  As long as every collective takes the next one (`is_plain`), the
    order of the nodes is an order for all devices, and there is nothing to search for.
    """

    def __init__(self) -> None:
        self.uses: Counter[int] = Counter()
        self.groups: dict[tuple[int, ...], str] = {}
        self.is_plain = True

    def next_turns(self, signals: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.uses[buffer] for buffer in signals)

    def check(self, node: Node, nodes: Sequence[Node]) -> None:
        """LayoutError if the newest node of a graph disagrees with the others about the order; else it is taken in."""
        if not node.signals:
            return
        for group, op in self.groups.items():
            _check_ranks(node, group, op)
        is_next = node.turns == self.next_turns(node.signals)
        if not (self.is_plain and is_next):
            check_turns(nodes)
        self.is_plain &= is_next
        self.groups.setdefault(node.signals, node.op)
        self.uses.update(node.signals)


def _check_ranks(node: Node, group: tuple[int, ...], op: str) -> None:
    common = [buffer for buffer in group if buffer in node.signals]
    now = [buffer for buffer in node.signals if buffer in common]
    if common != now:
        fact = (
            f"{node.op} lists the signal buffers {_listed(now)} in another order than {op} before it, "
            f"{_listed(common)}: each device would meet the others under another rank"
        )
        raise LayoutError(with_fix(fact, f"list them as {_listed(common)}, or take buffers of their own"))


def check_turns(nodes: Sequence[Node]) -> None:
    """LayoutError if the turns, with what is computed from what, say that somebody waits for itself."""
    after: dict[int, set[int]] = {id(node): set() for node in nodes}
    turns: dict[int, dict[int, Node]] = {}
    for node in nodes:
        for buffer, turn in zip(node.signals, node.turns, strict=True):
            if (other := turns.setdefault(buffer, {}).setdefault(turn, node)) is not node:
                fact = f"{other.op} and {node.op} both take turn {turn} on %{buffer}"
                raise LayoutError(with_fix(fact, "number the turns on each buffer 0, 1, 2, …"))
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
