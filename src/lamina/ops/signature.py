"""Functions made from rows of a table, which look and read like written ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def with_signature(
    function: Callable[..., Any], name: str, operands: Sequence[str], says: str, example: str, module: str
) -> Callable[..., Any]:
    """The function with its name, parameters and docstring."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__signature__ = inspect.Signature([inspect.Parameter(operand, kind) for operand in operands])  # type: ignore[attr-defined]
    function.__doc__ = f"{says[0].upper()}{says[1:]}, element by element.\n\n>>> import lamina\n{example}\n"
    return function
