"""Times that can be compared on a machine that does other things too: contestants take turns, and medians are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any


def interleaved(
    contestants: Mapping[str, Callable[[], Any]],
    repeats: int,
    loops: int = 1,
    wait: Callable[[Any], Any] = lambda result: result,
) -> dict[str, float]:
    """The median seconds of a call of each, over so many repeats of so many calls in a row.

    Every repeat runs all contestants, each time in another order, so that whatever slows the machine down slows all of
    them.  `wait` is part of what is timed; each is called once before.

    >>> sorted(interleaved({"a": lambda: 1, "b": lambda: 2}, repeats=3))
    ['a', 'b']
    """
    for call in contestants.values():
        wait(call())
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats):
        for name, call in turns(list(contestants.items()), repeat):
            start = perf_counter()
            for _ in range(loops):
                wait(call())
            samples[name].append((perf_counter() - start) / loops)
    return {name: median(times) for name, times in samples.items()}


def turns(contestants: Sequence[Any], repeat: int) -> list[Any]:
    """The order of one repeat: another one starts each time, and every other round goes backwards.

    >>> turns("abc", 0), turns("abc", 1), turns("abc", 3)
    (['a', 'b', 'c'], ['b', 'c', 'a'], ['c', 'b', 'a'])
    """
    first = repeat % len(contestants)
    order = [*contestants[first:], *contestants[:first]]
    return order[::-1] if repeat // len(contestants) % 2 else order


def once(call: Callable[[], Any]) -> float:
    """The seconds of one call."""
    start = perf_counter()
    call()
    return perf_counter() - start
