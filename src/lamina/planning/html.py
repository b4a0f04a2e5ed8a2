"""Plans and explanations as HTML tables: what a notebook shows of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from lamina.planning.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from lamina.planning.explanation import Explanation
    from lamina.planning.plan import Plan


def plan_html(plan: Plan) -> str:
    """One row per step, and what it comes to.

    >>> from lamina.planning import plan
    >>> from lamina.sharding import parse_layout
    >>> plan(parse_layout("[x=2] x"), parse_layout("[x=2] -"), (8,))._repr_html_().count("<tr>")
    4
    """
    title = f"{plan.source} → {plan.target}, shape {'×'.join(map(str, plan.shape)) or 'scalar'}"
    head = _row("th", "", "step", "group", "receives", "time", "layout after")
    first = _row("td", "0", "from", "", "", "", str(plan.source))
    rows = [
        _row("td", str(number), str(step), str(group), bytes_text(received), seconds_text(time), str(after))
        for number, (step, group, received, time, after) in enumerate(
            zip(plan.steps, plan.step_groups, plan.step_bytes, plan.step_seconds, plan.layouts[1:], strict=True), 1
        )
    ]
    received, bound = plan.bytes_received, plan.lower_bound
    total = (
        f"per device {bytes_text(received.mean)} (at most {bytes_text(received.max)}); "
        f"bound {bytes_text(bound.mean)}, ratio {plan.ratio:.2f}; peak {bytes_text(plan.peak_memory)}; "
        f"{seconds_text(plan.time)} on {plan.links.name}"
    )
    body = "".join([head, first, *rows])
    last = f'<tr><td></td><td colspan="5">{escape(total)}</td></tr>'
    return f"<table><caption>{escape(title)}</caption>{body}{last}</table>"


def explanation_html(explanation: Explanation) -> str:
    """One row per operand, result and way not taken of each stage."""
    from lamina.planning.explanation import cost  # it prints itself with this

    rows = [_row("th", "", "", "shape", "from", "to", "receives")]
    for number, stage in enumerate(explanation.stages, 1):
        for i, operand in enumerate(stage.operands):
            name = (str(number), stage.name) if not i else ("", "")
            moved = bytes_text(operand.bytes_received) if operand.bytes_received else "·"
            rows.append(_row("td", *name, _shape(operand.shape), str(operand.source), str(operand.required), moved))
        if stage.inside:
            rows.append(_row("td", "", "passes entries on", "", "", "", bytes_text(stage.inside)))
        for shape, layout in stage.results:
            rows.append(_row("td", "", "makes", _shape(shape), "", str(layout), ""))
        for choice in stage.choices[1:]:
            rows.append(_row("td", "", "instead", "", "", str(choice.way), explanation.price(cost(choice))))
    title = f"{explanation.op}: receives {bytes_text(explanation.bytes_received)} per device"
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _row(kind: str, *cells: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in cells) + "</tr>"
