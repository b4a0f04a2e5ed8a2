"""Pictures of a graph: a lane per device, time downwards, what is between devices drawn across the lanes.

A node stands in the first row below all of its operands in which its lanes are free, so that what can run side by side
is drawn side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from lamina.graph.nodes import Collective, Node
from lamina.sharding import BufferType, Device

if TYPE_CHECKING:
    from lamina.graph.graph import Graph

LANE, ROW, BOX, MARGIN, HEAD = 190, 58, 38, 16, 40
_STYLE = (
    "text{font:12px ui-monospace,monospace;text-anchor:middle;dominant-baseline:middle;fill:#1c2733}"
    ".type{font-size:10px;fill:#5b6b7b}.head{font-weight:bold}.lane{fill:#f3f5f8}.local{fill:#fff;stroke:#7c8da0}"
    ".across{fill:#dbe9ff;stroke:#2f6fd0}.input{fill:#e7f5e4;stroke:#4b9a3c}.output{fill:#fdf0d8;stroke:#c98a1b}"
    ".edge{stroke:#9aa9b8;fill:none}"
)


@dataclass(frozen=True)
class _Box:
    """A drawn node: in `row`, over the lanes `first` to `last`; `results` are the numbers that start at it."""

    kind: str
    title: str
    below: str
    row: int
    lanes: tuple[int, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...]


def svg(graph: Graph) -> str:
    """The picture as a self-contained SVG element."""
    devices = graph.devices
    boxes = _placed(graph, devices)
    height = HEAD + (max((box.row for box in boxes), default=0) + 1) * ROW + MARGIN
    width = max(1, len(devices)) * LANE
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">']
    parts.append(f"<title>{escape(graph.name)}</title><style>{_STYLE}</style>")
    for lane, device in enumerate(devices):
        x = lane * LANE
        parts.append(f'<rect class="lane" x="{x + 4}" y="4" width="{LANE - 8}" height="{height - 8}" rx="6"/>')
        parts.append(f'<text class="head" x="{x + LANE // 2}" y="{HEAD // 2}">{escape(repr(device))}</text>')
    maker = {number: box for box in boxes for number in box.results}
    for box in boxes:
        parts += [_edge(graph, devices, maker[n], box, n) for n in box.inputs if n in maker]
    parts += [_drawn(box) for box in boxes]
    return "\n".join([*parts, "</svg>"])


def _placed(graph: Graph, devices: Sequence[Device]) -> list[_Box]:
    lane = {device: i for i, device in enumerate(devices)}
    free = [0] * len(devices)  # the first free row of every lane
    below: dict[int, int] = {}  # the first row in which a value can be used
    boxes: list[_Box] = []

    def place(
        kind: str, title: str, text: str, lanes: Sequence[int], inputs: tuple[int, ...], results: tuple[int, ...]
    ) -> None:
        span = range(min(lanes), max(lanes) + 1)
        row = max([*(free[i] for i in span), *(below.get(number, 0) for number in inputs)])
        for i in span:
            free[i] = row + 1
        below.update(dict.fromkeys(results, row + 1))
        boxes.append(_Box(kind, title, text, row, tuple(span), inputs, results))

    def lane_of(number: int) -> int:
        device = graph.types[number].device
        assert device is not None
        return lane[device]

    used = {n for node in graph.nodes for n in (*node.inputs, *node.outputs)} | {v.number for v in graph.outputs}
    for numbers, _ in graph.input_groups:
        for number in numbers:
            kind = graph.types[number]
            if number in used:  # signal buffers alone aren't drawn
                title = f"%{number} buffer" if isinstance(kind, BufferType) else f"%{number}"
                place("input", title, f"{kind.dtype}{kind.shape}", [lane_of(number)], (), (number,))
    for node in graph.nodes:
        lanes = [lane_of(n) for n in (*node.inputs, *node.outputs)]
        style = "across" if _is_across(node) else "local"
        place(style, node.op, _result(graph, node), lanes, node.inputs, node.outputs)
    for value in graph.outputs:
        place("output", "output", f"%{value.number}", [lane_of(value.number)], (value.number,), ())
    return boxes


def _is_across(node: Node) -> bool:
    from lamina.graph.ops import OPS

    return isinstance(OPS[node.op], Collective)


def _result(graph: Graph, node: Node) -> str:
    kinds = [graph.types[number] for number in node.outputs]
    shown = list(dict.fromkeys(f"{kind.dtype}{kind.shape}" for kind in kinds))
    return shown[0] + (" …" if len(shown) > 1 else "") if shown else ""


def _middle(lanes: Sequence[int]) -> int:
    return (lanes[0] + lanes[-1] + 1) * LANE // 2


def _edge(graph: Graph, devices: Sequence[Device], start: _Box, end: _Box, number: int) -> str:
    """A line in the lane of the value, from the box that made it to the one that uses it."""
    device = graph.types[number].device
    assert device is not None
    x = devices.index(device) * LANE + LANE // 2
    x1 = x if len(start.lanes) > 1 else _middle(start.lanes)
    x2 = x if len(end.lanes) > 1 else _middle(end.lanes)
    y1, y2 = HEAD + start.row * ROW + BOX, HEAD + end.row * ROW
    bend = (y1 + y2) // 2
    return f'<path class="edge" d="M{x1} {y1}C{x1} {bend} {x2} {bend} {x2} {y2}"/>'


def _drawn(box: _Box) -> str:
    x, y = box.lanes[0] * LANE + MARGIN, HEAD + box.row * ROW
    width, middle = len(box.lanes) * LANE - 2 * MARGIN, _middle(box.lanes)
    frame = f'<rect class="{box.kind}" x="{x}" y="{y}" width="{width}" height="{BOX}" rx="5"/>'
    title = f'<text x="{middle}" y="{y + (13 if box.below else BOX // 2)}">{escape(box.title)}</text>'
    below = f'<text class="type" x="{middle}" y="{y + 28}">{escape(box.below)}</text>' if box.below else ""
    return frame + title + below


def dot(graph: Graph) -> str:
    """The same for Graphviz: a cluster per device, collectives outside of them."""
    lines = [f'digraph "{_plain(graph.name)}" {{', "  node [shape=box, fontname=monospace];"]
    boxes = _placed(graph, graph.devices)
    names = {id(box): f"n{i}" for i, box in enumerate(boxes)}
    for lane, device in enumerate(graph.devices):
        inside = [box for box in boxes if box.lanes == (lane,) and box.kind != "across"]
        lines.append(f'  subgraph "cluster_{lane}" {{ label="{device!r}";')
        lines += [f"    {names[id(box)]} [label={_label(box)}];" for box in inside]
        lines.append("  }")
    across = [box for box in boxes if len(box.lanes) > 1 or box.kind == "across"]
    lines += [f"  {names[id(box)]} [label={_label(box)}, style=filled];" for box in across]
    maker = {number: box for box in boxes for number in box.results}
    for box in boxes:
        lines += [f"  {names[id(maker[n])]} -> {names[id(box)]};" for n in box.inputs if n in maker]
    return "\n".join([*lines, "}"])


def _label(box: _Box) -> str:
    return f'"{_plain(box.title)}\\n{_plain(box.below)}"'


def _plain(text: str) -> str:
    """Without what ends a string in Graphviz's language."""
    return text.replace("\\", "/").replace('"', "'")
