"""The pairs of layouts whose plans are kept as golden text: one file per topic, each pair there for a reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.planning import Plan, homes_between, plan, plan_across
from lamina.sharding import CPU, DeviceMesh
from lamina.sharding.text import parse_layout

ITEMSIZE = 4


@dataclass(frozen=True)
class Pair:
    why: str
    source: str  # with the mesh; the target is on the same one
    target: str
    shape: tuple[int, ...]
    topology: str | None = None
    memory_limit: float | None = None
    is_transposed: bool = False

    @property
    def plan(self) -> Plan:
        mesh = self.source[: self.source.index("]") + 1]
        ends = parse_layout(self.source), parse_layout(f"{mesh} {self.target}")
        found = plan(*ends, self.shape, ITEMSIZE, self.memory_limit, self.topology)
        return found.transpose() if self.is_transposed else found


@dataclass(frozen=True)
class Crossing:
    """From devices `here` to devices `there`."""

    why: str
    source: str
    here: range
    target: str
    there: range
    shape: tuple[int, ...]

    @property
    def plan(self) -> Plan:
        ends = parse_layout(self.source), parse_layout(self.target)
        meshes = [
            DeviceMesh([CPU(i) for i in devices], [size for _, size in end.axes], [name for name, _ in end.axes])
            for end, devices in zip(ends, (self.here, self.there), strict=True)
        ]
        return plan_across(*ends, self.shape, homes_between(*meshes), ITEMSIZE)


WIDE, CUBE, ODD = "[dp=2,tp=4]", "[x=2,y=2,z=2]", "[a=2,b=3]"

TOPICS: dict[str, tuple[Pair | Crossing, ...]] = {
    "single_steps": (
        Pair("nothing to do", f"{WIDE} dp,tp", "dp,tp", (8, 16)),
        Pair("a copy is cut", f"{WIDE} dp,-", "dp,tp", (8, 16)),
        Pair("a dim becomes whole", f"{WIDE} dp,tp", "dp,-", (8, 16)),
        Pair("an axis goes to another dim", f"{WIDE} tp,-", "-,tp", (8, 16)),
        Pair("two axes go at once", f"{WIDE} (dp,tp),-", "-,(dp,tp)", (8, 16)),
        Pair("two axes change places", "[x=2,y=2] x,y", "y,x", (8, 8)),
        Pair("the order on one dim turns round", f"{WIDE} (dp,tp),-", "(tp,dp),-", (16, 8)),
    ),
    "several_steps": (
        Pair("4 blocks become 2, on other devices: nobody gathers what it has", f"{WIDE} tp,-", "dp,-", (16, 16)),
        Pair("the first program of the README", f"{WIDE} dp,-", "-,(tp,dp)", (8, 8)),
        Pair("every axis moves on by one dim: whole blocks change places", f"{CUBE} x,y,z", "z,x,y", (8, 8, 8)),
        Pair("scattered, moved, gathered", f"{WIDE} tp,- +sum(dp)", "-,tp", (8, 16)),
        Pair("from one dim to three", f"{CUBE} (x,y,z),-,-", "x,y,z", (8, 8, 8)),
        Pair("an axis of 4 against one of 2", "[x=4,y=2] x,y", "y,x", (8, 8)),
    ),
    "partial": (
        Pair("the value on all devices", f"{WIDE} dp,- +sum(tp)", "dp,-", (8, 16)),
        Pair("each device keeps its part", f"{WIDE} dp,- +sum(tp)", "dp,tp", (8, 16)),
        Pair("a max as a sum is", f"{WIDE} dp,- +max(tp)", "dp,tp", (8, 16)),
        Pair("two ops, the last axis first", f"{WIDE} -,- +sum(dp) +max(tp)", "dp,tp", (8, 16)),
        Pair("pieces stay pieces and move", f"{WIDE} dp,- +sum(tp)", "-,dp +sum(tp)", (8, 16)),
        Pair("a value becomes pieces", f"{WIDE} dp,-", "dp,- +sum(tp)", (8, 16)),
        Pair("one of two is reduced", f"{WIDE} -,- +sum(dp,tp)", "dp,- +sum(tp)", (8, 16)),
    ),
    "uneven": (
        Pair("10 over 4 becomes whole", f"{WIDE} dp,tp", "dp,-", (8, 10)),
        Pair("2 against 3", f"{ODD} a,b", "b,a", (12, 12)),
        Pair("2 against 3, and nothing divides", f"{ODD} a,b", "b,a", (7, 11)),
        Pair("nested blocks that don't lie inside each other", f"{WIDE} (dp,tp)", "dp", (10,)),
        Pair("fewer entries than devices", "[x=8] x,-", "-,x", (3, 5)),
        Pair("nothing at all", "[x=8] x,-", "-,x", (0, 5)),
        Pair("pieces into uneven parts", f"{ODD} -,- +sum(b)", "b,a", (7, 11)),
    ),
    "gradients": (
        Pair("of a gather: its transpose scatters", f"{WIDE} dp,tp", "dp,-", (8, 16), is_transposed=True),
        Pair("of a sum over pieces: copies", f"{WIDE} dp,- +sum(tp)", "dp,-", (8, 16), is_transposed=True),
        Pair("of an exchange: backwards", f"{WIDE} tp,-", "dp,-", (16, 16), is_transposed=True),
    ),
    "links": (
        Pair("fast links: two collectives", "[x=2,y=4] -,(y,x)", "y,x", (2048, 2048), "h100"),
        Pair("slow links: fewer bytes in one exchange", "[x=2,y=4] -,(y,x)", "y,x", (2048, 2048), "ethernet"),
        Pair("only bytes count", "[x=2,y=4] y,- +sum(x)", "-,-", (16, 16), "bytes"),
        Pair("time counts: the gather shares the reduction", "[x=2,y=4] y,- +sum(x)", "-,-", (16, 16), "h100"),
        Pair("hosts of 8 over a network", "[host=4,gpu=8] (gpu,host),-", "host,gpu", (1024, 1024), "ethernet"),
        Pair("a memory limit", "[x=8] x,-", "-,x", (64, 64), memory_limit=2 * 64 * 64 / 8 * ITEMSIZE),
    ),
    "other_meshes": (
        Crossing("other devices", "[x=4] x,-", range(4), "[y=4] -,y", range(4, 8), (8, 8)),
        Crossing("half of the devices", "[x=4] x,-", range(4), "[y=2] y,-", range(2), (8, 8)),
        Crossing("more devices, copied there", "[x=2] x,-", range(2), "[x=2,y=2] x,-", range(4), (8, 8)),
        Crossing("reduced before it leaves", "[x=4] -,- +sum(x)", range(4), "[y=4] y,-", range(4, 8), (8, 8)),
        Crossing("the same devices backwards", "[x=4] x,-", range(4), "[x=4] x,-", range(3, -1, -1), (8, 8)),
    ),
}


def written(topic: str) -> str:
    """The golden text of a topic: each pair's reason, then its plan as it prints itself."""
    return "\n".join(_sections(topic))


def _sections(topic: str) -> Iterator[str]:
    for pair in TOPICS[topic]:
        yield f"# {pair.why}\n{pair.plan}\n"
