"""What every suite is told, and what it hands back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    `quick` takes a few cases, seconds in all, to show that a suite works; `full` takes every case where the default
    takes a sample; `workers` is how many compiling processes run at once.
    """

    quick: bool = False
    full: bool = False
    meshes: tuple[tuple[int, ...], ...] | None = None
    topology: str = "bytes"
    workers: int = 1

    def choose(self, quick: Any, usual: Any, full: Any) -> Any:
        """One of three, by how much is to be measured."""
        return quick if self.quick else full if self.full else usual


@dataclass(frozen=True)
class Table:
    """Rows under a title.  `columns` are the headings; each row has one cell per column, a string or a number."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        rows = [list(row) for row in self.rows]
        return {"title": self.title, "columns": list(self.columns), "rows": rows, "note": self.note}


@dataclass(frozen=True)
class Curve:
    """Numbers in ascending order, to be drawn as a line: what share of the cases lies below what ratio."""

    name: str
    values: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "values": list(self.values)}


@dataclass
class Result:
    """What a suite found.

    `limits` are the numbers of DESIGN section 9 that it measures, `notes` say why one isn't held, `failures` are what
    makes the command exit with 1, and `axis` says what the numbers of the curves are.
    """

    tables: list[Table] = field(default_factory=list)
    limits: list[tuple[str, str, str, bool]] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    axis: str = ""

    def limit(self, what: str, target: str, found: str, held: bool) -> None:
        """One line of the table of limits: is it held?"""
        self.limits.append((what, target, found, held))

    def to_dict(self) -> dict[str, Any]:
        return {
            "limits": [list(row) for row in self.limits],
            "tables": [table.to_dict() for table in self.tables],
            "curves": [curve.to_dict() for curve in self.curves],
            "axis": self.axis,
            "notes": self.notes,
            "failures": self.failures,
        }
