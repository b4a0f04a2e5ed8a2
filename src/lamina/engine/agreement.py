"""LAMINA_CHECK=1: no program with collectives starts before all of its processes say that it is the same one.

Processes that run different programs hang, or exchange wrong bytes.  With the check each says what it is about to run
(op, plan, shape, dtype), and all of them learn of a difference before anything runs.  It costs one round trip to the
coordinator per op, so it is for tests and for finding the place; without it the watchdog notices when all wait.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Protocol, runtime_checkable

from lamina.engine.hub import group_of
from lamina.engine.watchdog import Ranks, Session
from lamina.errors import ProcessError, with_fix
from lamina.sharding.dtypes import itemsize


def is_wanted() -> bool:
    return os.environ.get("LAMINA_CHECK", "0") not in ("", "0")


def agree(session: Session, ranks: Ranks, words: str, secret: str) -> None:
    """Returns when all of these processes run the same; ProcessError on each of them if they don't.

    `words` are what an error shows; `secret` is all that must be equal.
    """
    digest = hashlib.sha256(secret.encode()).hexdigest()[:16]
    question = {"kind": "check", "group": group_of(ranks), "number": session.counts[ranks]}
    answer = session.ask(ranks, {**question, "digest": digest, "words": words})
    if answer["kind"] == "agreed":
        return
    sides = [f"\n  process {', '.join(map(str, who))}: {what}" for who, what in answer["sides"]]
    same = "" if len(sides) > 1 else "\n  (of layouts or values that print alike)"
    raise ProcessError(
        with_fix(
            f"the processes don't run the same program; about to run were{''.join(sides)}{same}",
            "call the same ops with the same layouts, shapes and dtypes, in the same order, on every process",
        )
    )


Kinds = tuple[tuple[str, tuple[int, ...]], ...]  # dtype and shape of each array


def words(what: Any, kinds: Kinds) -> str:
    """What an error shows."""
    arrays = ", ".join(f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in kinds)
    return f"{what} of {arrays}"


def secret(what: Any, kinds: Kinds) -> str:
    """All that must be equal: what the program is made of, with its plan where it has one."""
    return f"{what!r} {kinds} {what.plan(_itemsize(kinds)) if isinstance(what, Planned) else ''}"


@runtime_checkable
class Planned(Protocol):
    """An action whose program follows a plan."""

    def plan(self, itemsize: float) -> Any:
        """The plan."""


def _itemsize(kinds: Kinds) -> float:
    return itemsize(kinds[0][0])
