"""A grid of boxes with a text in the middle of each.  It knows nothing of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def draw(
    cells: Sequence[Sequence[str]], widths: Sequence[int], heights: Sequence[int], beside: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """The lines of a grid whose columns and rows are this wide and high inside, each with what stands beside it.

    >>> for line, name in draw([["0", "1"], ["2 3", "4"]], [5, 3], [1, 2], ["a", "b"]):
    ...     print(f"{name:1} {line}")
      ┌─────┬───┐
    a │  0  │ 1 │
      ├─────┼───┤
    b │ 2 3 │ 4 │
      │     │   │
      └─────┴───┘
    """
    yield _rule(widths, "┌┬┐"), ""
    for number, (row, height, name) in enumerate(zip(cells, heights, beside, strict=True)):
        if number:
            yield _rule(widths, "├┼┤"), ""
        for line in range(height):
            is_middle = line == (height - 1) // 2
            texts = row if is_middle else [""] * len(row)
            inside = "│".join(text.center(width) for text, width in zip(texts, widths, strict=True))
            yield f"│{inside}│", name if is_middle else ""
    yield _rule(widths, "└┴┘"), ""


def _rule(widths: Sequence[int], corners: str) -> str:
    return corners[0] + corners[1].join("─" * width for width in widths) + corners[2]


def extents(sizes: Sequence[int], unit: float, least: int) -> list[int]:
    """How wide (or high) boxes of these sizes are drawn: `unit` per entry, at least `least`, 0 for the smallest box.

    Sizes that differ visibly look different; 8 and 7 don't.

    >>> extents([4, 4], 2.5, 3), extents([3, 3, 2], 1, 3), extents([8, 7], 0.1, 3), extents([2, 0, 2], 4, 3)
    ([10, 10], [5, 5, 3], [3, 3], [8, 3, 8])
    """
    drawn = {size: max(least, round(size * unit)) for size in sizes}
    real = sorted(size for size in drawn if size)
    small, large = real[0], real[-1]
    if small < large <= 4 and unit and drawn[large] == drawn[small]:
        drawn[large] = -(-drawn[small] * large // small)
    return [drawn[size] for size in sizes]
