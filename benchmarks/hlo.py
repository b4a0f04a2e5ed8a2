"""What a compiled XLA program makes every device receive, read from the text of its optimised HLO.

One rule per collective, with k devices in the group that a device belongs to:

=====================  =============================================  =====================
op                     a device receives                              from each other member
=====================  =============================================  =====================
all-gather             (k-1)/k of its result                          1/k of the result
all-reduce             2(k-1)/k of its result (a reduce-scatter and   2/k of the result
                       an all-gather)
reduce-scatter         (k-1) times its result                         as much as its result
all-to-all             (k-1)/k of its result (the tuple form's parts  1/k of the result
                       together); its own part stays
collective-permute     its result, if a pair names it as the target   (from its source)
                       of another device
collective-broadcast   its result, unless it is the group's first     (from the first)
=====================  =============================================  =====================

How much a device receives is the least that any algorithm for the collective needs; from whom is an algorithm's
choice, and here it is evenly from all.  An asynchronous collective counts once, where it starts.  A collective in the
body of a loop would count an unknown number of times, and one in a branch perhaps not at all, so both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from benchmarks.hlo_groups import groups

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
_BITS = {"pred": 8, "token": 0, "opaque": 0}  # the dtypes whose name doesn't say it


@dataclass(frozen=True, eq=False)
class Traffic:
    """How many collectives of each kind a program has, and `bytes[i, j]`: what device i receives from device j."""

    kinds: dict[str, int]
    bytes: np.ndarray

    @property
    def received(self) -> tuple[float, ...]:
        """The bytes that each device receives."""
        return tuple(self.bytes.sum(axis=1).tolist())

    @property
    def mean(self) -> float:
        return float(self.bytes.sum()) / len(self.bytes)

    @property
    def max(self) -> float:
        return max(self.received)

    def crossing(self, devices_per_host: int) -> float:
        """The bytes that the devices of a host receive from other hosts together, at the busiest host.

        >>> line = "%p = f32[8] collective-permute(%a), source_target_pairs={{0,1},{1,2},{2,3}}"
        >>> traffic("HloModule m, num_partitions=4\\n" + line).crossing(2)
        32.0
        """
        host = np.arange(len(self.bytes)) // devices_per_host
        outside = np.where(host[:, None] != host[None, :], self.bytes, 0.0).sum(axis=1)
        return float(np.bincount(host, outside).max())


def traffic(text: str) -> Traffic:
    """The collectives in the text of an optimised HLO module.

    >>> line = "%g = f32[8]{0} all-gather(%p), replica_groups={{0,1},{2,3}}, dimensions={0}"
    >>> found = traffic("HloModule m, num_partitions=4\\n" + line)
    >>> found.received, found.kinds
    ((16.0, 16.0, 16.0, 16.0), {'all-gather': 1})
    """
    devices = prod(int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.partition("\n")[0]))
    total, kinds = np.zeros((devices, devices)), dict.fromkeys(COLLECTIVES, 0)
    for kind, result, attributes in _collectives(text):
        total += _bytes(kind, result, attributes, devices)
        kinds[kind] += 1
    if total.any() and (control := re.search(r" (while|conditional)\(", text)):
        raise ValueError(f"collectives beside a {control[1]}: how often they run can't be read from the text")
    return Traffic({kind: count for kind, count in kinds.items() if count}, total)


def _collectives(text: str) -> Iterator[tuple[str, float, str]]:
    """The kind, the bytes of the result, and the attributes of each."""
    for line in text.splitlines():
        if _UNKNOWN.search(line):
            raise ValueError(f"no rule for what this makes a device receive: {line.strip()}")
        if not (match := _INSTRUCTION.match(line)):
            continue
        kind = match["op"].removesuffix("-start")
        if kind in COLLECTIVES:
            yield kind, _result(match["type"], kind, started=match["op"] != kind), match["rest"]


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
    digits = re.match(r"[a-z]+?(\d+)", dtype)
    if not digits and dtype not in _BITS:
        raise ValueError(f"unknown dtype {dtype!r}")
    bits = int(digits[1]) if digits else _BITS[dtype]
    return prod(int(size) for size in re.findall(r"\d+", dims)) * bits / 8


def _bytes(kind: str, result: float, attributes: str, devices: int) -> np.ndarray:
    """bytes[i, j]: what device i receives from device j in one collective."""
    found = np.zeros((devices, devices))
    if kind == "collective-permute":
        for source, target in _pairs(attributes):
            found[target, source] = result
    else:
        for group in groups(attributes.partition("replica_groups=")[2], devices):
            _in_group(found, kind, result, group)
    np.fill_diagonal(found, 0.0)
    return found


def _in_group(found: np.ndarray, kind: str, result: float, group: Sequence[int]) -> None:
    everyone = np.ix_(group, group)
    match kind:
        case "all-gather" | "all-to-all":
            found[everyone] = result / len(group)
        case "all-reduce":
            found[everyone] = 2 * result / len(group)
        case "reduce-scatter":
            found[everyone] = result
        case _:
            found[list(group), group[0]] = result


def _pairs(attributes: str) -> list[tuple[int, int]]:
    """
    >>> _pairs("source_target_pairs={{0,1},{1,0}}, channel_id=1"), _pairs("source_target_pairs={}")
    ([(0, 1), (1, 0)], [])
    """
    written = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", attributes)
    if not written:
        raise ValueError(f"a collective-permute without pairs: {attributes}")
    return [(int(source), int(target)) for source, target in re.findall(r"(\d+),(\d+)", written[1])]
