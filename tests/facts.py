"""What an error says is wrong, without what stands around it: so that a test of the fact needs nothing else."""

from __future__ import annotations

import re

from lamina.errors import LaminaError, fact_and_fix

_FUNCTION = re.compile(r"\A\w+\([^\n]*?\): ")


def fact_of(error: Exception) -> str:
    """The first line without the function's name; the lines `  name: value` and `  fix: …` are the catalogue's.

    >>> fact_of(LaminaError("shard(mesh): there is none\\n  mesh: []\\n  fix: make one"))
    'there is none'
    """
    if not isinstance(error, LaminaError):
        return str(error)
    return _FUNCTION.sub("", fact_and_fix(error)[0].splitlines()[0])
