"""`plan_table`: the steps of a plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.planning import Plan
from lamina.planning.units import bytes_text, seconds_text
from lamina.sharding.layout import Layout
from lamina.sharding.specs import DimSpec
from lamina.sharding.text import spec_text

if TYPE_CHECKING:
    from rich.table import Table


def plan_table(plan: Plan) -> Table:
    """The steps of a plan, for `rich.print`: how many devices each joins, what a device receives, how long it takes.

    Where only bytes count (no topology was given) there are no times.

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
        at least                               32 B   ratio 1.00
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    timed = not plan.links.only_bytes
    received, bound = plan.bytes_received.mean, plan.lower_bound.mean
    table = Table(box=box.SIMPLE, show_footer=True, show_edge=False, pad_edge=False)
    table.add_column("", justify="right", style="dim")
    table.add_column("step", footer="in all, per device\nat least")
    table.add_column("group", justify="right")
    table.add_column("receives", justify="right", footer=f"{bytes_text(received)}\n{bytes_text(bound)}")
    if timed:
        table.add_column("time", justify="right", footer=seconds_text(plan.time))
    memory = f"peak {bytes_text(plan.peak_memory)}\nratio {plan.ratio:.2f}"
    table.add_column("layout after", no_wrap=True, footer=memory)
    table.add_row("0", "[dim]from[/dim]", "", "", *[""] * timed, _spec(plan.source))
    rows = zip(plan.steps, plan.step_groups, plan.step_bytes, plan.step_seconds, plan.layouts[1:], strict=True)
    for number, (step, group, moved, time, after) in enumerate(rows, 1):
        size, much = (str(group), bytes_text(moved)) if moved else ("·", "·")
        table.add_row(str(number), escape(str(step)), size, much, *[seconds_text(time)] * timed, _spec(after))
    return table


def _spec(layout: Layout) -> str:
    return spec_text(map(DimSpec, layout.dims), layout.partial)
