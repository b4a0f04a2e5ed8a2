"""Prints a result: tables, the limits, and what failed."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from benchmarks.settings import Result, Table

SHOWN_FAILURES = 40


def show(name: str, result: Result) -> None:
    # Piped output has no width of its own; a table cut at 80 columns would be worth little in a log.
    console = Console(width=None if sys.stdout.isatty() else 200)
    for table in result.tables:
        _print(console, table)
    limits = tuple((what, target, found, "yes" if held else "NO") for what, target, found, held in result.limits)
    _print(console, Table(f"{name}: limits", ("what", "to reach", "found", "held"), limits))
    for note in result.notes:
        console.print(escape(note), soft_wrap=True, highlight=False)
    for failure in result.failures[:SHOWN_FAILURES]:
        console.print(f"[red]FAILED[/red] {escape(failure)}", soft_wrap=True, highlight=False)
    if len(result.failures) > SHOWN_FAILURES:
        console.print(f"... and {len(result.failures) - SHOWN_FAILURES} more")


def _print(console: Console, table: Table) -> None:
    drawn = RichTable(title=table.title, title_justify="left", caption=table.note or None, caption_justify="left")
    for column in table.columns:
        drawn.add_column(escape(column), overflow="fold")
    for row in table.rows:
        drawn.add_row(*(escape(str(cell)) for cell in row))
    console.print(drawn)
    console.print()
