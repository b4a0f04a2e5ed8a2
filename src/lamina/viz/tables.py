"""`plan_table`: the steps of a plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.planning import Plan
from lamina.sharding.layout import Layout
from lamina.sharding.specs import DimSpec
from lamina.sharding.text import spec_text

if TYPE_CHECKING:
    from rich.table import Table


def plan_table(plan: Plan) -> Table:
    """The steps of a plan, for `rich.print`: how many devices each one joins, what a device receives, where it leads.

    >>> import rich
    >>> from lamina.planning import plan
    >>> from lamina.sharding import parse_layout
    >>> source, target = parse_layout("[dp=2,tp=4] dp,-"), parse_layout("[dp=2,tp=4] -,tp")
    >>> rich.print(plan_table(plan(source, target, (8, 8))))  # doctest: +NORMALIZE_WHITESPACE
        step                       group   receives   layout after
    ──────────────────────────────────────────────────────────────
    0   from                                          dp,-
    1   slice dim 1 over tp            ·          ·   dp,tp
    2   all-gather dim 0 over dp       2       32 B   -,tp
    ──────────────────────────────────────────────────────────────
        in all, per device                     32 B   peak 160 B
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_footer=True, show_edge=False, pad_edge=False)
    table.add_column("", justify="right", style="dim")
    table.add_column("step", footer="in all, per device")
    table.add_column("group", justify="right")
    table.add_column("receives", justify="right", footer=bytes_text(sum(plan.step_bytes)))
    table.add_column("layout after", no_wrap=True, footer=f"peak {bytes_text(plan.peak_memory)}")
    table.add_row("0", "[dim]from[/dim]", "", "", _spec(plan.source))
    for number, (step, received) in enumerate(zip(plan.steps, plan.step_bytes, strict=True), 1):
        before, after = plan.layouts[number - 1 : number + 1]
        group = str(group_size(before, after)) if received else "·"
        table.add_row(str(number), str(step), group, bytes_text(received) if received else "·", _spec(after))
    return table


def group_size(before: Layout, after: Layout) -> int:
    """How many devices a step between these layouts joins: those along every axis that takes another place.

    >>> from lamina.sharding import parse_layout
    >>> group_size(parse_layout("[dp=2,tp=4] (dp,tp),-"), parse_layout("[dp=2,tp=4] dp,tp"))
    4
    """
    return before.count(axis for axis in before.sizes if _place(before, axis) != _place(after, axis))


def _place(layout: Layout, axis: str) -> object:
    for dim, entry in enumerate(layout.dims):
        if axis in entry:
            return dim, entry.index(axis)
    return layout.reduce_op(axis)


def _spec(layout: Layout) -> str:
    return spec_text(map(DimSpec, layout.dims), layout.partial)


def bytes_text(count: float) -> str:
    """A number of bytes to three digits.

    >>> [bytes_text(n) for n in (0, 16, 1536, 98304, 5.5e9)]
    ['0 B', '16 B', '1.54 kB', '98.3 kB', '5.5 GB']
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError
