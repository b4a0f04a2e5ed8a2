"""An Exchange on one device: cut a part, pass it on, put it in its place, once for each round of the schedule.

Where a device cuts and puts is a constant table that it reads at its own position; who doesn't receive in a round
leaves its block as it is.  Pieces are reduced as they arrive, into a block that starts with the op's identity.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from lamina.engine.blocks import combine, identity, valid
from lamina.engine.turns import plan_turns
from lamina.planning.pieces import kept_pieces
from lamina.planning.schedule import Message, Schedule, schedule
from lamina.sharding.layout import Layout
from lamina.sharding.placements import ReduceOp

Shape = tuple[int, ...]


def exchange(x: Any, layout: Layout, after: Layout, shape: Shape, device: Any) -> Any:
    """The padded block in the layout `after`; `device` is this device's flat position in the mesh."""
    kept = kept_pieces(layout, after)
    op = next((op for axis, op in layout.partial if axis not in kept), None)
    turns = schedule(layout, after, shape)
    block, neutral = _start(x.dtype, layout, after, shape, op, device)
    if op is None and not neutral:
        return _placed(x, block, turns, layout, device)
    for turn in turns.copies:
        block = put(block, cut(x, turn, device, layout), turn, op, device, layout)
    for turn in turns.rounds:
        pairs = [(message.sender, message.receiver) for message in turn]
        received = lax.ppermute(cut(x, turn, device, layout), tuple(layout.sizes), pairs)
        block = put(block, received, turn, op, device, layout)
    if neutral and not after.is_even(shape):
        block = jnp.where(valid(block.shape, after, shape), block, jnp.zeros((), x.dtype))  # padding stays zero
    return block


def _placed(x: Any, block: Any, turns: Schedule, layout: Layout, device: Any) -> Any:
    """The block of parts, nothing to be reduced: as few passes over memory as there are parts."""
    for turn in plan_turns(turns, layout.num_devices):
        part = lax.dynamic_slice(x, _table(turn.cut, x.ndim, layout, device), turn.shape)
        if turn.pairs:
            part = lax.ppermute(part, tuple(layout.sizes), turn.pairs)
        offsets = _table(turn.put, block.ndim, layout, device)
        if turn.idle:
            waits = np.isin(np.arange(layout.num_devices), turn.idle)
            part = jnp.where(jnp.asarray(waits)[device], lax.dynamic_slice(block, offsets, turn.shape), part)
        block = lax.dynamic_update_slice(block, part, offsets)
    return block


def _start(
    dtype: Any, layout: Layout, after: Layout, shape: Shape, op: ReduceOp | None, device: Any
) -> tuple[Any, bool]:
    """What a device starts from: the identity of the op that reduces here, or of the pieces that it only completes."""
    kept = kept_pieces(layout, after)
    made = after.replace(partial=[(axis, new) for axis, new in after.partial if axis not in kept])
    marks = [made.keeps_the_value(where) for where in after.positions()]
    ops = [op or ReduceOp.SUM if mark is None else made.reduce_op(mark) for mark in marks]
    values = np.stack([identity(one or ReduceOp.SUM, dtype) for one in ops])
    neutral = bool((values != np.zeros((), dtype)).any())
    start = jnp.asarray(values)[device] if neutral else jnp.zeros((), dtype)
    return jnp.broadcast_to(start, after.padded_block(shape)), neutral


def cut(x: Any, turn: tuple[Message, ...], device: Any, layout: Layout) -> Any:
    """The part of this device's block that it passes on in this turn; of `layout` only the axes matter."""
    offsets = _table({message.sender: message.cut for message in turn}, x.ndim, layout, device)
    return lax.dynamic_slice(x, offsets, turn[0].shape)


def put(block: Any, part: Any, turn: tuple[Message, ...], op: ReduceOp | None, device: Any, layout: Layout) -> Any:
    """The block with the part in its place, on the devices that receive one in this turn."""
    offsets = _table({message.receiver: message.put for message in turn}, block.ndim, layout, device)
    there = lax.dynamic_slice(block, offsets, part.shape)
    new = part if op is None else combine(jnp.stack([there, part]), op)
    if len(turn) < layout.num_devices:
        receives = np.zeros(layout.num_devices, bool)
        receives[[message.receiver for message in turn]] = True
        new = jnp.where(jnp.asarray(receives)[device], new, there)
    return lax.dynamic_update_slice(block, new, offsets)


def _table(offsets: dict[int, tuple[int, ...]], rank: int, layout: Layout, device: Any) -> list[Any]:
    """Each device's own offsets: constants where all agree, else read from a table at the device's position."""
    table = np.zeros((layout.num_devices, rank), np.int32)
    for number, offset in offsets.items():
        table[number] = offset
    same = (table == table[0]).all(axis=0)
    return [table[0, d] if same[d] else jnp.asarray(table[:, d])[device] for d in range(rank)]
