"""Numbers of bytes and seconds, to three digits."""

from __future__ import annotations


def bytes_text(count: float) -> str:
    """A number of bytes.

    >>> [bytes_text(n) for n in (0, 16, 1536, 98304, 5.5e9)]
    ['0 B', '16 B', '1.54 kB', '98.3 kB', '5.5 GB']
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def seconds_text(time: float) -> str:
    """A time.

    >>> [seconds_text(t) for t in (0, 8e-6, 1.234e-3, 2.5, 90)]
    ['0 s', '8 µs', '1.23 ms', '2.5 s', '90 s']
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if not time or time * scale >= 1 or unit == "µs":
            return f"{time * scale:.3g} {unit}"
    raise AssertionError
