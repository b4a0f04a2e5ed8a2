"""LAMINA_CHECK=1: no program with collectives starts before all of its processes say that it is the same one.

Processes that run different programs hang, or exchange wrong bytes.  With the check each says what it is about to run
(op, plan, shape, dtype), and all of them learn of a difference before anything runs.  It costs one round trip to the
coordinator per op, so it is for tests and for finding the place; without it the watchdog notices when all wait.
"""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any

from lamina.engine.hub import group_of
from lamina.engine.watchdog import Ranks, Session
from lamina.errors import ProcessError, with_fix


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


@lru_cache(maxsize=4096)
def described(what: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """An action or a program on an array, for people: the plan's steps where there is one."""
    return f"{getattr(what, 'words', None) or repr(what)} of {dtype}[{','.join(map(str, shape))}]"
