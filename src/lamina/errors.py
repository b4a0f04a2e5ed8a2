"""Every error that Lamina raises on purpose.

::

    LaminaError
    ├── LayoutError (ValueError)        a mesh, spec, placement or shape that can't be
    │   ├── ConversionError             a conversion between dialects would lose information
    │   └── SpecSyntaxError             a written layout that the parser can't read (knows the column)
    ├── PlanError (ValueError)          no route exists within what was asked for (memory limit, unknown topology)
    ├── DeviceError (ValueError)        a device that this process doesn't have, or devices that don't fit together
    └── TransformError (ValueError)     a use inside jax.jit / jax.vmap that has no meaning

The low layers state the fact with the offending value.  The public function that the user called adds its own name,
the argument, the layout and the mesh, and what would fix it: see `explained`.  Wrong *types* of arguments and unknown
keywords stay Python's own TypeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class LaminaError(Exception):
    """Base of all of Lamina's own errors."""


class LayoutError(LaminaError, ValueError):
    """A mesh, spec, placement or shape that can't be."""


class ConversionError(LayoutError):
    """The conversion would lose information: an order, a reduce op, a priority, a custom placement."""


class SpecSyntaxError(LayoutError):
    """A written layout that can't be read; `text` and `column` say where, `pointer()` draws it.

    >>> print(SpecSyntaxError("expected an axis name", "x,,y", 2).pointer())
    x,,y
      ^
    """

    def __init__(self, fact: str, text: str, column: int):
        Exception.__init__(self, f"{fact} at column {column + 1} of {text!r}")
        self.fact, self.text, self.column = fact, text, column

    def pointer(self) -> str:
        return f"{self.text}\n{' ' * self.column}^"


class PlanError(LaminaError, ValueError):
    """No route exists within what was asked for."""


class DeviceError(LaminaError, ValueError):
    """A device that this process doesn't have, or devices that don't fit together."""


class TransformError(LaminaError, ValueError):
    """A use inside a JAX transformation that has no meaning."""


class Problems:
    """Collects everything that is wrong with one value, so that one error can say all of it.

    >>> problems = Problems()
    >>> problems.add("axis 'a' is unknown")
    >>> problems.add("axis 'b' is used twice")
    >>> problems.check()
    Traceback (most recent call last):
    lamina.errors.LayoutError: axis 'a' is unknown; axis 'b' is used twice
    """

    def __init__(self) -> None:
        self.facts: list[str] = []

    def add(self, fact: str) -> None:
        if fact not in self.facts:
            self.facts.append(fact)

    def check(self, kind: type[LaminaError] = LayoutError) -> None:
        if self.facts:
            raise kind("; ".join(self.facts))


@contextmanager
def explained(where: str, fix: str = "", **context: object) -> Iterator[None]:
    """Adds to a Lamina error what only the public function knows: its name, the values at hand, the way out.

    >>> with explained("shard(dim_specs=['z'])", fix="use one of x, y", mesh="[x=2,y=4]"):
    ...     raise LayoutError("'z' is not an axis of the mesh")
    Traceback (most recent call last):
    lamina.errors.LayoutError: shard(dim_specs=['z']): 'z' is not an axis of the mesh
      mesh: [x=2,y=4]
      fix: use one of x, y
    """
    try:
        yield
    except LaminaError as error:
        if isinstance(error, SpecSyntaxError) or getattr(error, "explained", False):
            raise
        raise _explained(error, where, fix, context) from error.__cause__


def _explained(error: LaminaError, where: str, fix: str, context: dict[str, object]) -> LaminaError:
    lines = [f"{where}: {error}", *(f"  {name}: {value}" for name, value in context.items() if value is not None)]
    if fix:
        lines.append(f"  fix: {fix}")
    full = type(error)("\n".join(lines))
    full.explained = True  # type: ignore[attr-defined]  # an inner public function has already said all of it
    return full
