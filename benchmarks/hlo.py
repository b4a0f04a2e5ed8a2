"""What a compiled XLA program makes every device receive, read from the text of its optimised HLO.

One rule per collective, with k devices in the group that a device belongs to:

=====================  ==============================================================================
op                     a device receives
=====================  ==============================================================================
all-gather             (k-1)/k of its result
all-reduce             2(k-1)/k of its result: a reduce-scatter, then an all-gather
reduce-scatter         (k-1) times its result: a part of it from each other device
all-to-all             (k-1)/k of its result: its own part stays (the tuple form's parts together)
collective-permute     its result, if a pair names it as the target of another device
collective-broadcast   its result, unless it is the first of its group
=====================  ==============================================================================

An asynchronous collective counts once, where it starts.  A collective in the body of a loop would count an unknown
number of times, and one in a branch perhaps not at all, so both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

COLLECTIVES = (
    "all-gather",
    "all-reduce",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)

# `%name = TYPE op(operands), attributes`; XLA prints one instruction per line.
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (?P<type>.+?) (?P<op>[a-z][a-z0-9-]*)\((?P<rest>.*)$")
_UNKNOWN = re.compile(r"ragged-all-to-all|(?:^|\s)(?:send|recv)\(")
_ARRAY = re.compile(r"(?P<dtype>[a-z]+[0-9a-z]*)\[(?P<dims>[0-9,<= ]*)\](?:\{[^{}]*\})?")
# Bits of the dtypes whose name doesn't end with them.
_BITS = {"pred": 8, "token": 0, "opaque": 0}


@dataclass(frozen=True)
class Collective:
    """One collective of a program: its kind, and the bytes that each device receives in it."""

    kind: str
    received: tuple[float, ...]


@dataclass(frozen=True)
class Traffic:
    """All collectives of a program, in the order of the text."""

    collectives: tuple[Collective, ...]
    devices: int

    @property
    def received(self) -> tuple[float, ...]:
        """The bytes that each device receives."""
        return tuple(sum(one.received[device] for one in self.collectives) for device in range(self.devices))

    @property
    def mean(self) -> float:
        return sum(self.received) / self.devices

    @property
    def max(self) -> float:
        return max(self.received)

    @property
    def kinds(self) -> dict[str, int]:
        """How many collectives of each kind there are.

        >>> traffic("HloModule m, num_partitions=2\\n  %p = f32[4]{0} parameter(0)").kinds
        {}
        """
        return {kind: n for kind in COLLECTIVES if (n := sum(one.kind == kind for one in self.collectives))}


def traffic(text: str) -> Traffic:
    """The collectives in the text of an optimised HLO module.

    >>> line = "%g = f32[8]{0} all-gather(%p), replica_groups={{0,1},{2,3}}, dimensions={0}"
    >>> traffic("HloModule m, num_partitions=4\\n" + line).received
    (16.0, 16.0, 16.0, 16.0)
    """
    devices = _devices(text)
    found = tuple(_collectives(text, devices))
    if found and (control := re.search(r" (while|conditional)\(", text)):
        raise ValueError(f"collectives beside a {control[1]}: how often they run can't be read from the text")
    return Traffic(found, devices)


def _devices(text: str) -> int:
    header = text.partition("\n")[0]
    counts = [int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)]
    return prod(counts)


def _collectives(text: str, devices: int) -> Iterator[Collective]:
    for line in text.splitlines():
        if _UNKNOWN.search(line):
            raise ValueError(f"no rule for what this makes a device receive: {line.strip()}")
        if not (match := _INSTRUCTION.match(line)):
            continue
        kind = match["op"].removesuffix("-start")
        if kind in COLLECTIVES:
            result = _result(match["type"], kind, started=match["op"] != kind)
            yield Collective(kind, _received(kind, result, match["rest"], devices))


def _result(written: str, kind: str, started: bool) -> float:
    """The bytes of an op's result; a start's type is (operand, result, …), but for all-reduce just the result."""
    if started and kind != "all-reduce":
        written = _elements(written)[1]
    return sum(_array_bytes(match["dtype"], match["dims"]) for match in _ARRAY.finditer(written))


def _elements(written: str) -> list[str]:
    """The elements of a tuple type: commas in brackets don't separate.

    >>> _elements("((f32[2,3]{1,0}, u32[]), f32[4,3]{1,0})")
    ['(f32[2,3]{1,0}, u32[])', 'f32[4,3]{1,0}']
    """
    found, depth = [""], 0
    for char in written.strip()[1:-1]:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [element.strip() for element in found]


def _array_bytes(dtype: str, dims: str) -> float:
    """
    >>> _array_bytes("bf16", "2,3"), _array_bytes("pred", ""), _array_bytes("s4", "8"), _array_bytes("f8e4m3fn", "8")
    (12.0, 1.0, 4.0, 8.0)
    """
    bits = _BITS.get(dtype)
    if bits is None:
        digits = re.match(r"[a-z]+?(\d+)", dtype)
        if not digits:
            raise ValueError(f"unknown dtype {dtype!r}")
        bits = int(digits[1])
    return prod(int(size) for size in re.findall(r"\d+", dims)) * bits / 8


def _received(kind: str, result: float, rest: str, devices: int) -> tuple[float, ...]:
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
        if not pairs:
            raise ValueError(f"a collective-permute without pairs: {rest}")
        named = re.findall(r"(\d+),(\d+)", pairs[1])
        targets = {int(target) for source, target in named if source != target}
        return tuple(result * (device in targets) for device in range(devices))
    sizes, roots = _groups(rest, devices)
    match kind:
        case "all-gather" | "all-to-all":
            return tuple(result * (k - 1) / k for k in sizes)
        case "all-reduce":
            return tuple(2 * result * (k - 1) / k for k in sizes)
        case "reduce-scatter":
            return tuple(result * (k - 1) for k in sizes)
        case _:
            return tuple(result * (k > 1 and device not in roots) for device, k in enumerate(sizes))


def _groups(rest: str, devices: int) -> tuple[list[int], set[int]]:
    """How many devices each device's group has (1: it is in none), and the first device of each group.

    XLA writes groups as lists, as a grid of an iota, or by the axes (and parts of axes) of a mesh.

    >>> _groups("replica_groups={{0,2},{1}}", 4)[0], _groups("replica_groups={}", 4)[0]
    ([2, 1, 2, 1], [4, 4, 4, 4])
    >>> _groups("replica_groups=[2,4]<=[2,2,2]T(2,1,0)", 8)[0]
    [4, 4, 4, 4, 4, 4, 4, 4]
    >>> _groups("replica_groups=mesh['a'=2,'b'=4], device_ids=([2,4]T(1,0)) {'a','b':(2)2}", 8)[0]
    [4, 4, 4, 4, 4, 4, 4, 4]
    """
    written = rest.partition("replica_groups=")[2]
    if grid := re.match(r"\[(\d+),(\d+)\]<=", written):
        return [int(grid[2])] * devices, set()
    if mesh := re.match(r"mesh\[(.*?)\](?:, device_ids=\(.*?\)+)? \{(.*?)\}", written):
        axes = {name: int(size) for name, size in re.findall(r"'(.*?)'=(\d+)", mesh[1])}
        named = re.findall(r"'(.*?)'(?::\(\d+\)(\d+))?", mesh[2])
        return [prod(int(part) if part else axes[name] for name, part in named)] * devices, set()
    if not written.startswith("{"):
        raise ValueError(f"can't read the groups in: {rest}")
    sizes, roots = [1] * devices, set()
    lists = re.findall(r"\{([\d, ]+)\}", written.partition("}}")[0] + "}")
    for members in lists or [",".join(map(str, range(devices)))]:
        group = [int(member) for member in members.split(",")]
        roots.add(group[0])
        for member in group:
            sizes[member] = len(group)
    return sizes, roots
