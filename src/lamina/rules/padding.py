"""The entries of a padded dim, by how it is padded: runs of `rules.rows`."""

from __future__ import annotations

from collections.abc import Callable

from lamina.rules.rows import Run, Runs, new


def _constant(size: int, before: int, after: int) -> Runs:
    return new(before), Run(0, 1, size), new(after)


def _edge(size: int, before: int, after: int) -> Runs:
    return Run(0, 0, before), Run(0, 1, size), Run(size - 1, 0, after)


def _wrap(size: int, before: int, after: int) -> Runs:
    first = -before % size
    return _cut((Run(0, 1, size),) * ((first + before + size + after) // size + 1), first, before + size + after)


def _mirrored(own: int) -> Callable[[int, int, int], Runs]:
    """Back and forth: "symmetric" repeats the ends, "reflect" doesn't."""

    def runs(size: int, before: int, after: int) -> Runs:
        if size == 1:
            return _edge(size, before, after)
        there, back = Run(0, 1, size), Run(size - 1 - own, -1, size - 2 * own)
        period = 2 * (size - own)
        first = -before % period
        return _cut((there, back) * ((first + before + size + after) // period + 1), first, before + size + after)

    return runs


def _cut(runs: Runs, first: int, count: int) -> Runs:
    """So many entries of the runs, from one on."""
    found = []
    for run in runs:
        skipped = min(first, run.count)
        kept = min(run.count - skipped, count)
        if kept:
            found.append(Run(run.start + skipped * run.step, run.step, kept))
        first, count = first - skipped, count - kept
    return tuple(found)


MODES: dict[str, Callable[[int, int, int], Runs]] = {
    "constant": _constant,
    "edge": _edge,
    "wrap": _wrap,
    "symmetric": _mirrored(0),
    "reflect": _mirrored(1),
}
