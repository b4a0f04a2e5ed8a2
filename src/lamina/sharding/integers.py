"""Integers as users pass them: Python's, numpy's, JAX's; but no bools, which count as 0 and 1 by accident only."""

from __future__ import annotations

from operator import index
from typing import Any


def as_integer(value: Any) -> int | None:
    """The int that the value is, or None.

    >>> as_integer(3), as_integer(True), as_integer(3.0), as_integer("3"), as_integer(None)
    (3, None, None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None
