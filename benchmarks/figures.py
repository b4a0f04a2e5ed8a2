"""The few statistics that the tables show, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

__all__ = ["bytes_text", "geomean", "median", "number", "percentile", "ratio", "seconds_text", "thinned"]


def ratio(value: float, base: float) -> float:
    """value / base; 1 where both are 0, and infinite where only the base is.

    >>> ratio(3, 2), ratio(0, 0), ratio(3, 0)
    (1.5, 1.0, inf)
    """
    if base:
        return value / base
    return math.inf if value else 1.0


def geomean(values: Iterable[float]) -> float:
    """The geometric mean of the finite ones; 1 of none.

    >>> geomean([1, 4, math.inf])
    2.0
    """
    logs = [math.log(value) for value in values if 0 < value < math.inf]
    return math.exp(math.fsum(logs) / len(logs)) if logs else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all is not above; 1 of none.

    >>> percentile([3, 1, 2, 4], 0.5), percentile([1, 2, 3, 4], 0.9), percentile([5], 0.9)
    (2, 4, 5)
    """
    ordered = sorted(values) or [1.0]
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def thinned(values: Iterable[float], most: int = 200) -> tuple[float, ...]:
    """A sorted curve through at most so many of the finite values, both ends included.

    >>> thinned(range(10), 4)
    (0, 3, 6, 9)
    """
    ordered = sorted(value for value in values if value < math.inf)
    if len(ordered) <= most:
        return tuple(ordered)
    return tuple(ordered[round(i * (len(ordered) - 1) / (most - 1))] for i in range(most))


def number(value: float) -> str:
    """Three digits that mean something.

    >>> number(1.0), number(1.004), number(21.333), number(512.2), number(math.inf), number(0.0123)
    ('1.00', '1.00', '21.3', '512', '∞', '0.0123')
    """
    if math.isinf(value):
        return "∞"
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.3g}"


def seconds_text(seconds: float) -> str:
    """
    >>> seconds_text(1.5), seconds_text(0.0213), seconds_text(3.2e-6)
    ('1.50 s', '21.3 ms', '3.20 µs')
    """
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{number(seconds * factor)} {unit}"
    return f"{number(seconds * 1e6)} µs"


def bytes_text(count: float) -> str:
    """
    >>> bytes_text(96), bytes_text(4096), bytes_text(3 * 2**20)
    ('96 B', '4.00 KiB', '3.00 MiB')
    """
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= factor:
            return f"{number(count / factor)} {unit}"
    return f"{count:.0f} B"
