"""Writes docs/benchmarks.md and its plots from benchmarks/results/*.json: nothing on that page is typed by hand.

    python -m benchmarks report            writes them
    python -m benchmarks report --check    exit code 1 if they aren't what the results say

`tests/test_benchmarks.py` checks, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.compiling import ROOT
from benchmarks.plot import plot
from benchmarks.results import load
from benchmarks.settings import Curve
from benchmarks.suites import SUITES

DOCS = ROOT / "docs"
PAGE, PLOTS = "benchmarks.md", "plots"

INTRODUCTION = """\
# Benchmarks

Lamina beside JAX, measured in the same run, and beside what is physically possible. This page is written by
`python -m benchmarks report` from `benchmarks/results/*.json`, which the commands named below wrote; a test compares
them. *Held* says whether a limit that the project has set itself is reached; where it isn't, the notes say why.
"""


def main(arguments: Sequence[str] = ()) -> int:
    files = pages(load())
    if "--check" in arguments:
        stale = [name for name, text in files.items() if not _same(DOCS / name, text)]
        print("\n".join(f"docs/{name} isn't what the results say: run `python -m benchmarks report`" for name in stale))
        return int(bool(stale))
    for name, text in files.items():
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


def pages(results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The page and its plots: texts by the file's name in docs/."""
    order = [name for name in (*SUITES, *sorted(results)) if name in results]
    found = {name: results[name] for name in dict.fromkeys(order)}
    texts = {PAGE: "\n".join([INTRODUCTION, *(_section(name, result) for name, result in found.items())])}
    for name, result in found.items():
        if result["curves"]:
            curves = [Curve(curve["name"], tuple(curve["values"])) for curve in result["curves"]]
            texts[f"{PLOTS}/{name}.svg"] = plot(curves, result["axis"])
    return texts


def _section(name: str, result: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    machine = result["machine"]
    parts = [f"## {name}: {result['what']}\n", f"`{result['command']}`\n"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}"
    if "load" in machine:
        where += f", {machine['load']} other programs that wanted to compute when it began"
    parts.append(f"{result['date']}; {versions}; {where}.\n")
    held = [[*row[:3], "yes" if row[3] else "**no**"] for row in result["limits"]]
    parts.append(_table(("what", "to reach", "found", "held"), held))
    parts += [f"{note}\n" for note in result["notes"]]
    if result["curves"]:
        parts.append(f"![{result['axis']}]({PLOTS}/{name}.svg)\n")
    for table in result["tables"]:
        parts += [f"### {table['title']}\n", _table(table["columns"], table["rows"])]
        parts += [f"{table['note']}\n"] if table["note"] else []
    if result["failures"]:
        parts += ["### Failures\n", "\n".join(f"- {_cell(failure)}" for failure in result["failures"]) + "\n"]
    return "\n".join(parts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """
    >>> print(_table(("pair", "ratio"), [("a|b", 1.5)]), end="")
    | pair | ratio |
    |---|---|
    | a\\|b | 1.5 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    cells = ["|".join(line) if line[0] == "---" else " | ".join(map(_cell, line)) for line in lines]
    return "".join(f"|{row}|\n" if row.startswith("---") else f"| {row} |\n" for row in cells)


def _cell(value: Any) -> str:
    """Text that Markdown shows as it is: a layout's brackets and dashes, a pair's bar."""
    text = str(value).replace("|", "\\|")
    return f"`{text}`" if "→" in text else text


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
