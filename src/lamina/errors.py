"""Every error that Lamina raises on purpose.

::

    LaminaError
    ├── LayoutError (ValueError)        a mesh, spec, placement or shape that can't be
    │   ├── ConversionError             a conversion between dialects would lose information
    │   ├── SpecSyntaxError             a written layout that the parser can't read (knows the column)
    │   └── ReshardError                an op would have to move an operand, and `on_reshard("raise")` forbids it
    ├── PlanError (ValueError)          no route exists within what was asked for (memory limit, unknown topology)
    ├── DeviceError (ValueError)        a device that this process doesn't have, or devices that don't fit together
    ├── CheckpointError (ValueError)    a checkpoint that isn't there, is damaged, or doesn't fit what is asked of it
    ├── TransformError (ValueError)     a use inside jax.jit / jax.vmap that has no meaning
    └── ProcessError (RuntimeError)     another process died, stopped, doesn't come, or runs another program

The low layers state the fact with the offending value.  The public function that the user called adds its own name,
the argument, the layout and the mesh, and what would fix it: see `explained`.  Where the low layer knows the way out
itself, its message ends with the line `  fix: …` (see `with_fix`), and nobody adds another.  Wrong *types* of arguments
and unknown keywords stay Python's own TypeError.
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

    def __reduce__(self) -> tuple:
        return SpecSyntaxError, (self.fact, self.text, self.column)

    def pointer(self) -> str:
        return f"{self.text}\n{' ' * self.column}^"


class ReshardError(LayoutError):
    """An op would have to move an operand, and `lamina.on_reshard("raise")` forbids it."""


class ImplicitReshard(UserWarning):
    """An op moved an operand, which `lamina.on_reshard("warn")` wants to know."""


class PlanError(LaminaError, ValueError):
    """No route exists within what was asked for."""


class DeviceError(LaminaError, ValueError):
    """A device that this process doesn't have, or devices that don't fit together."""


class CheckpointError(LaminaError, ValueError):
    """A checkpoint that isn't there, is damaged, or doesn't fit what is asked of it."""


class TransformError(LaminaError, ValueError):
    """A use inside a JAX transformation that has no meaning."""


class ProcessError(LaminaError, RuntimeError):
    """Another process died, stopped, raised, doesn't come, or runs another program; or the processes can't join."""


_FIX = "\n  fix: "


def with_fix(fact: str, fix: str) -> str:
    """A message that says the way out on its last line; `fix` may be empty.

    >>> print(with_fix("axis 'a' is unknown", "use 'x' or 'y'"))
    axis 'a' is unknown
      fix: use 'x' or 'y'
    """
    return f"{fact}{_FIX}{fix}" if fix else fact


def fact_and_fix(error: LaminaError) -> tuple[str, str]:
    fact, _, fix = str(error).partition(_FIX)
    return fact, fix


class Problems:
    """Collects everything that is wrong with one value, so that one error can say all of it.

    >>> problems = Problems()
    >>> problems.add("axis 'a' is unknown", fix="use 'x'")
    >>> with problems.caught():
    ...     raise LayoutError("axis 'b' is used twice")
    >>> problems.check()
    Traceback (most recent call last):
    lamina.errors.LayoutError: axis 'a' is unknown; axis 'b' is used twice
      fix: use 'x'
    """

    def __init__(self) -> None:
        self.facts: list[str] = []
        self.fixes: list[str] = []

    def add(self, fact: str, fix: str = "") -> None:
        if fact not in self.facts:
            self.facts.append(fact)
        if fix and fix not in self.fixes:
            self.fixes.append(fix)

    @contextmanager
    def caught(self, fix: str = "") -> Iterator[None]:
        """Goes on after a LayoutError, which becomes one problem of several; `fix` where it has none of its own."""
        try:
            yield
        except LayoutError as error:
            fact, own = fact_and_fix(error)
            self.add(fact, own or fix)

    def check(self, kind: type[LaminaError] = LayoutError) -> None:
        if self.facts:
            raise kind(with_fix("; ".join(self.facts), "; ".join(self.fixes)))


@contextmanager
def explained(where: str, fix: str = "", only: type[LaminaError] = LaminaError, **context: object) -> Iterator[None]:
    """Adds to a Lamina error what only the public function knows: its name, the values at hand, the way out.

    `fix` is for errors that don't know their own; `only` leaves other kinds of errors to the next one outside.

    >>> with explained("shard(dim_specs=['z'])", fix="use one of x, y", mesh="[x=2,y=4]"):
    ...     raise LayoutError("'z' is not an axis of the mesh")
    Traceback (most recent call last):
    lamina.errors.LayoutError: shard(dim_specs=['z']): 'z' is not an axis of the mesh
      mesh: [x=2,y=4]
      fix: use one of x, y
    """
    try:
        yield
    except only as error:
        if isinstance(error, SpecSyntaxError) or getattr(error, "explained", False):
            raise
        raise _explained(error, where, fix, context) from error.__cause__


def _explained(error: LaminaError, where: str, fix: str, context: dict[str, object]) -> LaminaError:
    fact, own = fact_and_fix(error)
    lines = [f"{where}: {fact}", *(f"  {name}: {value}" for name, value in context.items() if value is not None)]
    full = type(error)(with_fix("\n".join(lines), own or fix))
    full.explained = True  # type: ignore[attr-defined]  # an inner public function has already said all of it
    return full
