"""How one leaf lies in one zarr array: the meaning of a checkpoint on the disk.

A leaf of some shape and layout is one array of its Partial axes (one entry per piece) and then its dims.  Each dim is
stored block after block, every block `pitch` long, and each block is cut into tiles of one shape, one file each.  So no
file holds bytes of two blocks, and whoever holds a block writes it without asking anyone.

The pitch is the largest block's size, rounded up to whole tiles; a dim that isn't split needs no pitch.  Therefore an
even layout's array is simply the global tensor, as any reader of zarr sees it; elsewhere what lies between the end of
a block and its pitch is zero, and nobody reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lamina.sharding import Layout
from lamina.sharding.dims import split_offset
from lamina.sharding.layout import Block

# 16 MiB: 3.1 GB/s written with fsync and 2.2 GB/s read on the machine that this was chosen on; one file for a block of
# 256 MiB gave 1.9 and 0.7.  Larger tiles also make who needs a part of a block read more of it.
TILE_BYTES = 16 << 20


@dataclass(frozen=True)
class Tiling:
    """Where the elements of a leaf stand in its array.

    1. One tile size for each dim, at least 1.

    >>> rows = Tiling((10, 4), Layout({"x": 4}, [("x",), ()]), (2, 4))
    >>> rows.array_shape, rows.chunk_shape  # 10 rows over 4 are blocks of 3, 3, 2, 2; each takes two tiles of 2
    ((16, 4), (2, 4))
    >>> rows.spans(0, 2, 7)
    [Span(stored=2, start=2, stop=3), Span(stored=4, start=3, stop=6), Span(stored=8, start=6, stop=7)]
    """

    shape: tuple[int, ...]
    layout: Layout
    tile: tuple[int, ...]

    @property
    def pieces(self) -> tuple[int, ...]:
        """How many pieces there are along each Partial axis."""
        return tuple(self.layout.sizes[axis] for axis in self.layout.partial_axes)

    @property
    def pitch(self) -> tuple[int, ...]:
        block = self.layout.padded_block(self.shape)
        return tuple(-(-size // tile) * tile for size, tile in zip(block, self.tile, strict=True))

    @property
    def array_shape(self) -> tuple[int, ...]:
        dims = zip(self.shape, self.layout.grid, self.pitch, strict=True)
        return (*self.pieces, *(size if blocks == 1 else pitch * blocks for size, blocks, pitch in dims))

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (*(1 for _ in self.pieces), *self.tile)

    def place(self, block: tuple[int, ...]) -> tuple[int, ...]:
        """Where the block with this index in the grid begins."""
        return tuple(index * pitch for index, pitch in zip(block, self.pitch, strict=True))

    def spans(self, dim: int, start: int, stop: int) -> list[Span]:
        """Where the elements start..stop of a dim stand, in as few runs as there are."""
        size, blocks, pitch = self.shape[dim], self.layout.grid[dim], self.pitch[dim]
        found: list[Span] = []
        for block in range(_block_of(start, size, blocks), blocks):
            first, last = split_offset(size, blocks, block), split_offset(size, blocks, block + 1)
            begin, end = max(start, first), min(stop, last)
            if begin >= end:
                break
            stored = block * pitch + begin - first
            if found and found[-1].stored_stop == stored:
                found[-1] = Span(found[-1].stored, found[-1].start, end)
            else:
                found.append(Span(stored, begin, end))
        return found


@dataclass(frozen=True)
class Span:
    """The elements start..stop of a dim stand in the array from `stored` on."""

    stored: int
    start: int
    stop: int

    @property
    def stored_stop(self) -> int:
        return self.stored + self.stop - self.start


def _block_of(element: int, size: int, blocks: int) -> int:
    """Which block an element of a dim is in: the first size % blocks blocks are one longer than the others."""
    small, longer = divmod(size, blocks)
    inside = longer * (small + 1)
    if element < inside:
        return element // (small + 1)
    return longer + (element - inside) // small if small else blocks


def tiling(shape: tuple[int, ...], layout: Layout, itemsize: int, limit: int = TILE_BYTES) -> Tiling:
    """Tiles of at most `limit` bytes, as near to cubes as halving makes them, so that any part of a block is near few.

    >>> tiling((4096, 4096), Layout({"x": 2}, [("x",), ()]), 4).tile
    (2048, 2048)
    """
    tile = [max(size, 1) for size in layout.padded_block(shape)]
    while prod(tile) * itemsize > limit and max(tile) > 1:
        longest = tile.index(max(tile))
        tile[longest] = -(-tile[longest] // 2)
    return Tiling(shape, layout, tuple(tile))


def parts(tiles: Tiling, box: Block) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """A box of the tensor as pairs: where a part of it stands in the array, and where in the box; the dims only."""
    found: list[tuple[tuple[slice, ...], tuple[slice, ...]]] = [((), ())]
    for dim, (start, stop) in enumerate(box):
        runs = [
            (slice(span.stored, span.stored_stop), slice(span.start - start, span.stop - start))
            for span in tiles.spans(dim, start, stop)
        ]
        found = [((*stored, there), (*inside, here)) for stored, inside in found for there, here in runs]
    return found
