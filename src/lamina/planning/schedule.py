"""Who sends what to whom in an Exchange, and in which round.

Every device that wants a block makes it from the parts that it shares with the source's blocks: its own part is a
copy, each other one a message from a holder.  Of several holders it is the one that has sent (and copied) least, then
the nearest.
Messages of one shape form rounds in which each device sends at most one and receives at most one: an edge colouring of
the bipartite graph of senders and receivers, which needs just as many colours as the busiest device has messages
(König), found by swapping along alternating paths.

Only execution needs a schedule; searching doesn't, so its size (devices × blocks) never slows a plan down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from lamina.planning.overlap import cuts
from lamina.planning.pieces import kept_pieces
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]
Offset = tuple[int, ...]
Coordinates = dict[str, int]


@dataclass(frozen=True, slots=True)
class Message:
    """A part of the sender's block (at `cut`) goes to the receiver's block (at `put`)."""

    sender: int
    receiver: int
    shape: Shape
    cut: Offset
    put: Offset


@dataclass(frozen=True, slots=True)
class Schedule:
    """`copies` stay on their device; each of `rounds` is messages of one shape, at most one in and out of a device."""

    copies: tuple[tuple[Message, ...], ...]
    rounds: tuple[tuple[Message, ...], ...]

    @property
    def elements_received(self) -> int:
        """By all devices together."""
        return sum(_size(message.shape) for turn in self.rounds for message in turn)


@lru_cache(maxsize=1024)
def schedule(source: Layout, target: Layout, shape: Shape, homes: tuple[int | None, ...] | None = None) -> Schedule:
    """The schedule of an Exchange from `source` to `target`; with `homes`, of a Transfer to another mesh.

    Receivers are positions of the target's mesh; a copy's sender and receiver are one device.

    >>> axes = {"x": 2, "y": 2}
    >>> plan = schedule(Layout(axes, [("x",)]), Layout(axes, [()]), (4,))
    >>> [[(m.sender, m.receiver) for m in turn] for turn in plan.rounds]
    [[(2, 0), (3, 1), (0, 2), (1, 3)]]
    """
    places = list(source.positions())
    number = {tuple(where.values()): device for device, where in enumerate(places)}
    kept = kept_pieces(source, target) if homes is None else {}
    pieces = [axis for axis in source.partial_axes if axis not in kept]
    made = {axis: op for axis, op in target.partial if axis not in kept and op is not ReduceOp.AVG}
    free = [a for a, size in source.axes if size > 1 and a not in source.sharded_axes and a not in source.partial_axes]
    sent = [0] * len(places)
    copies: list[Message] = []
    wanted: list[tuple[list[int], Message]] = []
    for receiver, where in enumerate(places if homes is None else target.positions()):
        if any(where[axis] for axis in made):
            continue
        home = receiver if homes is None else homes[receiver]
        near = places[receiver % len(places) if home is None else home]
        for fixed, part, cut, put in _parts(source, target, shape, where):
            for piece in product(*(range(source.sizes[axis]) for axis in pieces)):
                asked = {**fixed, **dict(zip(pieces, piece, strict=True)), **{axis: where[axis] for axis in kept}}
                holders = _holders(asked, free, source, near, number)
                if home in holders:
                    sent[home] += 1  # who cuts for itself should cut less for others
                    copies.append(Message(home, receiver, part, cut, put))
                else:
                    wanted.append((holders, Message(holders[0], receiver, part, cut, put)))
    messages = []
    for holders, message in wanted:
        sender = min(holders, key=lambda holder: (sent[holder], holders.index(holder)))
        sent[sender] += 1
        messages.append(replace(message, sender=sender))
    return Schedule(tuple(_turns(copies)), tuple(_turns(messages)))


def _parts(source: Layout, target: Layout, shape: Shape, where: Coordinates) -> Iterable[tuple]:
    """The parts of the block wanted at `where`: (coordinates of its holders, shape, offset there, offset here)."""
    wanted = target.block_index(where)
    dims = []
    for d, size in enumerate(shape):
        found, origin = [], 0
        for start, stop, mine, theirs in cuts(size, source.grid[d], target.grid[d]):
            if theirs == wanted[d]:
                low = _start(size, source.grid[d], mine)
                found.append((_coordinates(source, d, mine), stop - start, start - low, origin))
                origin += stop - start
        dims.append(found)
    for cell in product(*dims):
        fixed: Coordinates = {}
        for held, _, _, _ in cell:
            fixed.update(held)
        yield fixed, tuple(c[1] for c in cell), tuple(c[2] for c in cell), tuple(c[3] for c in cell)


def _start(size: int, blocks: int, block: int) -> int:
    return block * (size // blocks) + min(block, size % blocks)


def _coordinates(layout: Layout, dim: int, block: int) -> Coordinates:
    found: Coordinates = {}
    for axis in reversed(layout.dims[dim]):
        block, found[axis] = divmod(block, layout.sizes[axis])
    return found


def _holders(
    asked: Coordinates, free: list[str], source: Layout, near: Coordinates, number: dict[tuple[int, ...], int]
) -> list[int]:
    """The devices at the asked coordinates, whatever their free ones; those that share more of `near`'s come first."""
    choices = []
    for axis, size in source.axes:
        if axis in asked:
            choices.append([asked[axis]])
        elif axis in free:
            choices.append([near[axis], *(i for i in range(size) if i != near[axis])])
        else:
            choices.append([near[axis]])
    return [number[place] for place in product(*choices)]


# -- rounds -----------------------------------------------------------------------------------------------------------


def _turns(messages: list[Message]) -> list[tuple[Message, ...]]:
    """The messages in rounds, each of one shape."""
    by_shape: dict[Shape, list[Message]] = {}
    for message in messages:
        by_shape.setdefault(message.shape, []).append(message)
    turns: list[tuple[Message, ...]] = []
    for shape in sorted(by_shape, key=lambda s: (-_size(s), s)):
        turns += _coloured(by_shape[shape])
    return turns


def _coloured(messages: list[Message]) -> list[tuple[Message, ...]]:
    """An edge colouring: no two messages of a colour share a sender or a receiver."""
    # at[end][colour] is the message of that colour at a sender (0, device) or receiver (1, device).
    at: dict[tuple[int, int], dict[int, Message]] = {}
    colour: dict[Message, int] = {}
    for message in messages:
        ends = ((0, message.sender), (1, message.receiver))
        mine, theirs = at.setdefault(ends[0], {}), at.setdefault(ends[1], {})
        one, other = _first_free(mine), _first_free(theirs)
        if one != other and one in theirs:
            _swap(at, colour, ends[1], one, other)
        at[ends[0]][one] = at[ends[1]][one] = message
        colour[message] = one
    count = 1 + max(colour.values(), default=-1)
    return [tuple(message for message in messages if colour[message] == turn) for turn in range(count)]


def _first_free(used: dict[int, Message]) -> int:
    return next(i for i in range(len(used) + 1) if i not in used)


def _swap(at: dict, colour: dict[Message, int], end: tuple[int, int], one: int, other: int) -> None:
    """Swaps two colours along the path from `end` that alternates between them, so that `one` is free there."""
    path, wanted = [], one
    while wanted in at[end]:
        message = at[end][wanted]
        path.append(message)
        end = (1, message.receiver) if end[0] == 0 else (0, message.sender)
        wanted = other if wanted == one else one
    for message in path:
        for place in ((0, message.sender), (1, message.receiver)):
            if at[place].get(colour[message]) is message:
                del at[place][colour[message]]
    for message in path:
        colour[message] = other if colour[message] == one else one
        at[0, message.sender][colour[message]] = at[1, message.receiver][colour[message]] = message


def _size(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
