"""`plan_table` and `explanation_table`: the steps of a plan, the stages of an op, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.planning import Explanation, Plan
from lamina.planning.explanation import cost
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


def explanation_table(explanation: Explanation, most: int = 5) -> Table:
    """The stages of an op, for `rich.print`: what its operands need, what it makes, and the nearest other ways.

    >>> import lamina, rich
    >>> mesh = lamina.DeviceMesh.abstract((2,), ("tp",))
    >>> x = lamina.TensorLayout("f32", (4, 8), lamina.NamedMapping(mesh, [None, "tp"]))
    >>> w = lamina.TensorLayout("f32", (8, 6), lamina.NamedMapping(mesh, [None, "tp"]))
    >>> rich.print(explanation_table(lamina.explain("matmul", x, w)))  # doctest: +NORMALIZE_WHITESPACE
        matmul      shape   from   to                           receives
    ────────────────────────────────────────────────────────────────────
    1   matmul      4×8     -,tp   -,-                              64 B
        operand 1   8×6     -,tp   -,tp                                ·
        makes       4×6            -,tp
        instead                    -,tp × tp,- → -,- +sum(tp)       96 B
        instead                    -,- × -,- → -,-                 160 B
    ────────────────────────────────────────────────────────────────────
                                   in all, per device               64 B
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_footer=True, show_edge=False, pad_edge=False)
    table.add_column("", justify="right", style="dim")
    table.add_column(escape(explanation.op))
    table.add_column("shape")
    table.add_column("from", no_wrap=True)
    table.add_column("to", footer="in all, per device")
    table.add_column("receives", justify="right", footer=bytes_text(explanation.bytes_received))
    for number, stage in enumerate(explanation.stages, 1):
        for i, operand in enumerate(stage.operands):
            much = bytes_text(operand.bytes_received) if operand.bytes_received else "·"
            name = ("", f"operand {i}") if i else (str(number), escape(stage.name))
            table.add_row(*name, _shape(operand.shape), _spec(operand.source), _spec(operand.required), much)
        if stage.inside:
            table.add_row("", "passes entries on", "", "", "", bytes_text(stage.inside))
        for shape, layout in stage.results:
            table.add_row("", "makes", _shape(shape), "", _spec(layout), "")
        for choice in stage.choices[1 : most + 1]:
            given = " × ".join(map(_spec, choice.way.required))
            way = f"{given} → {', '.join(map(_spec, choice.way.results))}"
            table.add_row("", "[dim]instead[/dim]", "", "", f"[dim]{way}[/dim]", explanation.price(cost(choice)))
    return table


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _spec(layout: Layout) -> str:
    return spec_text(map(DimSpec, layout.dims), layout.partial)
