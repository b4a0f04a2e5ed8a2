"""`picture`: a tensor as a rectangle, cut into its blocks, each labelled with the devices that hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import prod
from operator import index
from typing import Any

from lamina.errors import LayoutError
from lamina.sharding.dims import split_offset, split_sizes
from lamina.sharding.layout import Layout, check_rank
from lamina.sharding.mappings import DeviceMapping
from lamina.sharding.text import parse_layout
from lamina.viz.grid import draw, extents
from lamina.viz.holders import label
from lamina.viz.legend import idle, legend

WIDTH = 100  # columns that a picture takes at most
ROWS = 12  # rows of blocks that are shown
GRIDS = 4  # grids that are shown where dims before the last two are split, too
WIDE, HIGH = 40, 5  # what an undivided square takes
LIMITS = (60, 28, 20, 14, 10, 6)  # characters that a label may take: as many as there is room for
LEFT_OUT = -1  # stands for the blocks that an ellipsis replaces


def picture(x: Any, shape: Sequence[int] | None = None) -> str:
    """Which device holds what of a tensor, drawn.

    `x` is a Tensor, or a layout with its `shape`: a Layout, its text, or any mapping.  Along the edges stand the sizes
    of the blocks (without a shape they are drawn equal, with no sizes).  Inside stand the devices, as flat mesh
    positions, row-major: `0 4` and `0-3` hold copies of the block, `Σ(0, 4)` hold pieces whose sum it is.

    >>> print(picture("[dp=2,tp=4] dp,tp", (8, 10)))
    8×10 as [dp=2,tp=4] dp,tp
             3            3          2        2
       ┌────────────┬────────────┬────────┬────────┐
     4 │     0      │     1      │   2    │   3    │
       │            │            │        │        │
       ├────────────┼────────────┼────────┼────────┤
     4 │     4      │     5      │   6    │   7    │
       │            │            │        │        │
       └────────────┴────────────┴────────┴────────┘
    >>> print(picture("[dp=2,tp=4] tp +sum(dp)", (3,)))
    3 as [dp=2,tp=4] tp +sum(dp)
             1             1             1
      ┌─────────────┬─────────────┬─────────────┐
      │   Σ(0, 4)   │   Σ(1, 5)   │   Σ(2, 6)   │
      └─────────────┴─────────────┴─────────────┘
      Σ(…): the value is the sum of the pieces on these devices
      devices 3 7 hold nothing: more shards than entries
    """
    layout, known = _what(x, shape)
    shape = layout.grid if known is None else known
    title = str(layout) if known is None else f"{'×'.join(map(str, known)) or 'scalar'} as {layout}"
    if 0 in shape:
        return f"{title}\n  empty: every device holds 0 entries"
    below = ["  " + line for line in (*legend(layout), *idle(layout, shape))]
    return "\n".join(line.rstrip() for line in (title, *_grids(layout, shape, known is not None), *below))


def _what(x: Any, shape: Sequence[int] | None) -> tuple[Layout, tuple[int, ...] | None]:
    """The layout, and the shape if there is one."""
    given = getattr(x, "shape", None) if shape is None else shape
    known = None if given is None else tuple(map(index, given))
    match x:
        case Layout():
            layout = x
        case str():
            layout = parse_layout(x)
        case DeviceMapping():
            if known is None:
                raise LayoutError(f"picture(x, shape): {x!r} fits tensors of several ranks: give a shape")
            layout = x.layout(len(known))
        case _:
            held = getattr(x, "layout", None)  # a Tensor has one; this room knows no JAX
            if not isinstance(held, Layout):
                raise TypeError(f"picture takes a Tensor, a layout or a mapping, not {type(x).__name__}")
            layout = held
    if known is not None:
        check_rank(layout, known)
    return layout, known


def _grids(layout: Layout, shape: Sequence[int], with_sizes: bool) -> Iterator[str]:
    """One grid of the last two dims for each block of the dims before them."""
    rank = len(shape)  # what it lacks of two dims is added in front, and drawn without sizes
    layout, shape = layout.replace(dims=((),) * (2 - rank) + layout.dims), (*(1,) * (2 - rank), *shape)
    blocks = [min(n, count) for n, count in zip(shape, layout.grid, strict=True)]  # the others hold nothing
    for front in islice(product(*map(range, blocks[:-2])), GRIDS):
        if prod(blocks[:-2]) > 1:
            yield f"  [{', '.join(map(_slice, front, shape, layout.grid))}, :, :]"
        yield from _grid(layout, shape, front, rank, with_sizes)
    if prod(blocks[:-2]) > GRIDS:
        yield f"  … and {prod(blocks[:-2]) - GRIDS} more of these"


def _slice(block: int, n: int, blocks: int) -> str:
    return ":" if blocks == 1 else f"{split_offset(n, blocks, block)}:{split_offset(n, blocks, block + 1)}"


def _grid(layout: Layout, shape: Sequence[int], front: tuple[int, ...], rank: int, with_sizes: bool) -> Iterator[str]:
    """The grid of the last two dims, with the sizes of its blocks above and beside it."""
    heights, widths = (_filled(n, blocks) for n, blocks in zip(shape[-2:], layout.grid[-2:], strict=True))
    sized_above, sized_beside = with_sizes and rank >= 1, with_sizes and rank >= 2
    margin = 2 + len(str(max(heights))) * sized_beside
    room, longest_size = WIDTH - margin - 1, len(str(widths[0])) * sized_above
    rows = shown(len(heights), ROWS)
    columns, cells = _cells(layout, front, rows, len(widths), room, longest_size)
    row_sizes = [0 if r == LEFT_OUT else heights[r] for r in rows]
    column_sizes = [0 if c == LEFT_OUT else widths[c] for c in columns]
    least, larger = max(longest_size, _longest(cells)) + 2, max(shape[-2:])
    wide = extents(column_sizes, WIDE / larger if rank >= 1 else 0, least)
    if sum(wide) + len(wide) > room:
        wide = [least] * len(wide)
    high = extents(row_sizes, HIGH / larger if rank >= 2 else 0, 1)
    if sized_above:
        yield " " * (margin + 1) + " ".join(
            _size(size).center(width) for size, width in zip(column_sizes, wide, strict=True)
        )
    beside = [_size(size) * sized_beside for size in row_sizes]
    for line, name in draw(cells, wide, high, beside):
        yield f"{name:>{margin - 1}} {line}"


def _filled(n: int, blocks: int) -> list[int]:
    """The sizes of the blocks that hold anything."""
    return [int(size) for size in split_sizes(n, blocks) if size]


def _size(size: int) -> str:
    return str(size or "…")


def _longest(cells: list[list[str]]) -> int:
    return max(len(text) for row in cells for text in row)


def _cells(
    layout: Layout, front: tuple[int, ...], rows: list[int], columns: int, room: int, least: int
) -> tuple[list[int], list[list[str]]]:
    """The columns that are shown, and the labels, with as much detail as there is room for."""

    def width(limit: int) -> int:  # of the last block's column: its devices have the longest numbers
        return max(least, len(_label(layout, front, rows[-1], columns - 1, limit))) + 3

    whole = [(columns, limit) for limit in LIMITS if columns * width(limit) <= room]
    fewer = [(most, 14) for most in range(max(3, room // width(14)), 2, -1) if most < columns]
    for most, limit in [*whole, *fewer, (3, LIMITS[-1])]:
        chosen = shown(columns, most)
        cells = [[_label(layout, front, r, c, limit) for c in chosen] for r in rows]
        if (max(least, _longest(cells)) + 3) * len(chosen) <= room:
            return chosen, cells
    longest = room // len(chosen) - 3
    return chosen, [[t if len(t) <= longest else t[: longest - 1] + "…" for t in row] for row in cells]


def _label(layout: Layout, front: tuple[int, ...], row: int, column: int, limit: int) -> str:
    if column == LEFT_OUT:
        return "…"
    return "⋮" if row == LEFT_OUT else label(layout, (*front, row, column), limit)


def shown(count: int, most: int) -> list[int]:
    """The indices of `count` blocks, with all but `most` - 1 left out if there are more.

    >>> shown(4, 4), shown(9, 4)
    ([0, 1, 2, 3], [0, 1, -1, 8])
    """
    return list(range(count)) if count <= most else [*range(most - 2), LEFT_OUT, count - 1]
