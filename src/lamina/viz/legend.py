"""What stands below a picture: how pieces make up the value, and who holds nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from lamina.sharding.layout import Layout
from lamina.sharding.mesh import DeviceMesh, positions
from lamina.sharding.placements import ReduceOp
from lamina.viz.holders import SIGNS, compact

WORDS = {
    ReduceOp.SUM: ("sum", "sums"),
    ReduceOp.AVG: ("mean", "means"),
    ReduceOp.MIN: ("minimum", "minima"),
    ReduceOp.MAX: ("maximum", "maxima"),
    ReduceOp.PROD: ("product", "products"),
}


def legend(layout: Layout) -> Iterator[str]:
    """What `Σ(max(…))` says, in words: the reductions from the outermost to the innermost.

    >>> for line in legend(Layout({"x": 2, "y": 2}, [()], {"x": ReduceOp.SUM, "y": ReduceOp.MAX})):
    ...     print(line)
    Σ(max(…)): the value is the sum of the maxima of the pieces on these devices
    """
    ops = [op for op, _ in groupby(op for _, op in layout.partial)]
    if ops:
        signs = "(".join(SIGNS[op] for op in ops) + "(…" + ")" * len(ops)
        words = [WORDS[ops[0]][0], *(WORDS[op][1] for op in ops[1:])]
        yield f"{signs}: the value is the {' of the '.join(words)} of the pieces on these devices"


def idle(layout: Layout, shape: Sequence[int]) -> Iterator[str]:
    """The devices that hold nothing, because a dim has fewer entries than shards.

    >>> for line in idle(Layout({"x": 4}, [("x",)]), (2,)):
    ...     print(line)
    devices 2 3 hold nothing: more shards than entries
    """
    short = [d for d, n in enumerate(shape) if n < layout.grid[d]]
    if short:
        mesh = DeviceMesh.abstract([size for _, size in layout.axes], [axis for axis, _ in layout.axes])
        held = map(layout.block_index, positions(mesh))
        devices = [device for device, block in enumerate(held) if any(block[d] >= shape[d] for d in short)]
        noun, verb = ("device", "holds") if len(devices) == 1 else ("devices", "hold")
        yield f"{noun} {compact(devices, 40)} {verb} nothing: more shards than entries"
