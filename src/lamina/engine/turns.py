"""The turns of an Exchange as a device takes them: in each it cuts a part and puts one, without exceptions if possible.

A program is one for all devices.  Where some take no part in a turn their blocks must stay as they are, and to select
that costs a pass over memory: on CPU devices as much as the message itself.  So

* a copy on a device that sends and receives nothing in a round rides along, as a message to itself;
* a device that gets nothing in a round puts what it has (zeros) where a later turn will put the right thing;
* a device with fewer copies than others does one of them again.

Only who can do none of that is *idle*, and has its block selected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from lamina.planning.schedule import Message, Schedule

Offset = tuple[int, ...]


@dataclass
class Turn:
    """Each device cuts a part of this shape at `cut`, passes it on as `pairs` say, and puts what it gets at `put`.

    Without pairs it puts its own part.  Who is `idle` keeps its block as it is; who isn't in `cut` may cut anywhere.
    """

    shape: tuple[int, ...]
    pairs: list[tuple[int, int]]
    cut: dict[int, Offset]
    put: dict[int, Offset]
    idle: list[int] = field(default_factory=list)


def plan_turns(schedule: Schedule, devices: int) -> list[Turn]:
    """The rounds first, with copies that ride along, then the other copies.

    >>> stays, goes = Message(0, 0, (2,), (0,), (0,)), Message(1, 2, (2,), (0,), (0,))
    >>> (turn,) = plan_turns(Schedule(((stays,),), ((goes,),)), 3)
    >>> turn.pairs, turn.idle
    ([(0, 0), (1, 2)], [1])
    """
    rounds = [list(turn) for turn in schedule.rounds]
    left = [copy for turn in schedule.copies for copy in turn if not _rides_along(copy, rounds)]
    turns = [_turn(messages, passed_on=True) for messages in rounds]
    turns += [_turn(copies, passed_on=False) for copies in _by_turns(left)]
    own: dict[tuple, list[Message]] = defaultdict(list)
    for copy in left:
        own[copy.receiver, copy.shape].append(copy)
    filled: dict[tuple, Offset] = {}  # by device and shape, a place that a later turn fills
    for turn in reversed(turns):
        receivers = list(turn.put)
        for device in range(devices):
            again = own[device, turn.shape]
            if device in turn.put:
                continue
            if not turn.pairs and again:
                turn.cut[device], turn.put[device] = again[0].cut, again[0].put
            elif (device, turn.shape) in filled:
                turn.put[device] = filled[device, turn.shape]
            else:
                turn.idle.append(device)
        filled.update({(device, turn.shape): turn.put[device] for device in receivers})
    return turns


def _rides_along(copy: Message, rounds: Iterable[list[Message]]) -> bool:
    """Adds the copy to the first round of its shape in which its device sends and receives nothing, if there is one."""
    for turn in rounds:
        free = all(copy.sender not in (message.sender, message.receiver) for message in turn)
        if free and turn[0].shape == copy.shape:
            turn.append(copy)
            return True
    return False


def _turn(messages: list[Message], passed_on: bool) -> Turn:
    pairs = sorted((message.sender, message.receiver) for message in messages) if passed_on else []
    cut = {message.sender: message.cut for message in messages}
    return Turn(messages[0].shape, pairs, cut, {message.receiver: message.put for message in messages})


def _by_turns(copies: Iterable[Message]) -> list[list[Message]]:
    """Copies of one shape, of each device at most one at a time."""
    taken: dict[tuple, int] = defaultdict(int)
    turns: dict[tuple, list[Message]] = defaultdict(list)
    for copy in copies:
        turns[copy.shape, taken[copy.shape, copy.receiver]].append(copy)
        taken[copy.shape, copy.receiver] += 1
    return list(turns.values())
