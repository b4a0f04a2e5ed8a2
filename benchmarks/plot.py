"""Curves as an SVG, drawn here: what share of the cases (up) lies at or below which ratio (across, logarithmic)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from benchmarks.figures import number
from benchmarks.settings import Curve

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 48
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind eyes, too
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#444}.grid{stroke:#8884}.one{stroke:#888}"
    "@media(prefers-color-scheme:dark){text{fill:#ccc}}"
)


def plot(curves: Sequence[Curve], axis: str) -> str:
    """The SVG of all curves; `axis` says what the ratio is.

    >>> plot([Curve("a", (1.0, 2.0, 4.0))], "ratio").count("<polyline")
    1
    """
    values = [value for curve in curves for value in curve.values]
    scale = _Scale(min([1.0, *values]), max([2.0, *values]))
    parts = [*_grid(scale), *(part for i, curve in enumerate(curves) for part in _curve(curve, i, scale))]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, axis, "middle"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">'
    title = f"<title>{escape(axis)}</title><style>{STYLE}</style>"
    return "\n".join([head, title, *parts, "</svg>"]) + "\n"


class _Scale:
    """Where a ratio lies across, and a share up."""

    def __init__(self, least: float, most: float):
        self.least, self.most = least / 1.02, most * 1.02

    def x(self, ratio: float) -> float:
        share = math.log(ratio / self.least) / math.log(self.most / self.least)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> Iterator[float]:
        """1, 2 and 5 times the powers of ten in between."""
        for power in range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1):
            yield from (
                tick for tick in (10.0**power * digit for digit in (1, 2, 5)) if self.least <= tick <= self.most
            )

    @staticmethod
    def y(share: float) -> float:
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _grid(scale: _Scale) -> Iterator[str]:
    for percent in range(0, 101, 25):
        y = scale.y(percent / 100)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield _text(LEFT - 6, y + 4, f"{percent} %", "end")
    for tick in scale.ticks():
        x, kind = scale.x(tick), "one" if tick == 1 else "grid"
        yield f'<line class="{kind}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'
        yield _text(x, HEIGHT - BOTTOM + 16, f"{number(tick)}×", "middle")


def _curve(curve: Curve, place: int, scale: _Scale) -> Iterator[str]:
    colour, count = COLOURS[place % len(COLOURS)], len(curve.values)
    # Each value lifts the curve by its share, so that it starts at 0 and ends at 100 %.
    points = [(scale.x(value), scale.y(share)) for value, share in _stairs(curve.values, count)]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{drawn}" fill="none" stroke="{colour}" stroke-width="2"/>'
    y = HEIGHT - BOTTOM - 12 - 18 * place
    yield f'<rect x="{WIDTH - RIGHT - 300}" y="{y - 9}" width="14" height="4" fill="{colour}"/>'
    yield _text(WIDTH - RIGHT - 280, y - 2, curve.name, "start")


def _stairs(values: Sequence[float], count: int) -> Iterator[tuple[float, float]]:
    for place, value in enumerate(values):
        yield value, place / count
        yield value, (place + 1) / count


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
