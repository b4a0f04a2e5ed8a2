"""The turns of an Exchange, played in numpy: every device ends with its block, and few must be selected."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lamina.engine.turns import plan_turns
from lamina.planning.schedule import schedule
from lamina.planning.simulate import scatter
from lamina.sharding import Layout, parse_layout
from tests.strategies import layout_pairs


def slices(offset, shape):
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))


def played(source: Layout, target: Layout, shape: tuple[int, ...]) -> list[np.ndarray]:
    """What each device holds in the end: cut, pass on, put, as `engine.exchange` does, on padded blocks."""
    value = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape)
    held = [padded(block, source, shape) for block in scatter(value, source).values()]
    blocks = [np.zeros(target.padded_block(shape), value.dtype) for _ in held]
    nowhere = (0,) * len(shape)
    for turn in plan_turns(schedule(source, target, shape), len(held)):
        parts = [block[slices(turn.cut.get(device, nowhere), turn.shape)] for device, block in enumerate(held)]
        if turn.pairs:
            sent = {receiver: parts[sender] for sender, receiver in turn.pairs}
            assert len(sent) == len(turn.pairs) == len({sender for sender, _ in turn.pairs})
            parts = [sent.get(device, np.zeros(turn.shape, value.dtype)) for device in range(len(held))]
        for device, part in enumerate(parts):
            if device not in turn.idle:
                blocks[device][slices(turn.put[device], turn.shape)] = part
    return blocks


def padded(block: np.ndarray, layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    full = layout.padded_block(shape)
    return (
        block if not shape else np.pad(block, [(0, size - held) for size, held in zip(full, block.shape, strict=True)])
    )


@given(layout_pairs(partial=False))
def test_every_device_ends_with_its_block(pair):
    source, target, shape = pair
    value = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape)
    wanted = [padded(block, target, shape) for block in scatter(value, target).values()]
    for found, block in zip(played(source, target, shape), wanted, strict=True):
        np.testing.assert_array_equal(found, block)


@pytest.mark.parametrize(
    ("source", "target", "turns"),
    [
        ("(x,z),-", "(y,z),x", 1),  # half of the devices keep what the others are sent
        ("(z,x),-", "(x,z),y", 1),
        ("y,x", "(z,x,y),-", 2),
    ],
)
def test_nobody_is_idle_and_copies_ride_along(source, target, turns):
    layouts = parse_layout(f"[x=2,y=2,z=2] {source}"), parse_layout(f"[x=2,y=2,z=2] {target}")
    found = plan_turns(schedule(*layouts, (64, 64)), 8)
    assert not any(turn.idle for turn in found)
    assert len(found) == turns
