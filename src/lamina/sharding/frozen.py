"""Values that normalise and check themselves in the constructor, and stay as they are then."""

from __future__ import annotations


class Frozen:
    """Base of values: no attribute can be set or deleted.  Constructors use `object.__setattr__`."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: can't set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: can't delete {name!r}")
