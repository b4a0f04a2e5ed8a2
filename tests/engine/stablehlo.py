"""The collectives of a lowered program and what each makes a device receive, read from its StableHLO text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

KINDS = ("all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter")
_BYTES = {"f32": 4, "i32": 4, "f64": 8, "bf16": 2, "i1": 1, "i8": 1, "ui8": 1}

_OP = re.compile(r'"stablehlo\.(' + "|".join(KINDS) + r')"\((.*?)\) <\{(.*?)\}>', re.DOTALL)
_SIGNATURE = re.compile(r": \(tensor<([^>]*)>\) -> tensor<([^>]*)>")
_GROUPS = re.compile(r"replica_groups = dense<.*?> : tensor<(\d+)x(\d+)xi64>", re.DOTALL)
# JAX 0.12 names axes of a mesh instead.
_GROUP_AXES = re.compile(r"replica_group_mesh_axes<mesh = (@\w+), axes = \[(.*?)\]>", re.DOTALL)
_PAIRS = re.compile(r"source_target_pairs = dense<(.*?)> : tensor", re.DOTALL)


def collectives(text: str) -> Iterator[tuple[str, float]]:
    """Each collective's kind, and the bytes that a device receives in it, on the mean."""
    for found in _OP.finditer(text):
        kind, attributes = found[1], found[3]
        signature = _SIGNATURE.search(text, found.end())
        assert signature, text[found.start() : found.end()]
        before, after = (_size(kind) for kind in signature.groups())
        if kind == "collective_permute":
            ends = [int(number) for number in re.findall(r"\d+", _PAIRS.search(attributes)[1])]  # type: ignore[index]
            sent = sum(source != target for source, target in zip(ends[::2], ends[1::2], strict=True))
            devices = int(re.search(r"mhlo.num_partitions = (\d+)", text)[1])  # type: ignore[index]
            yield kind, before * sent / devices
            continue
        k = _group_size(attributes, text)
        match kind:
            case "all_gather":
                yield kind, after - before
            case "all_to_all":
                yield kind, before * (k - 1) / k
            case "reduce_scatter":
                yield kind, after * (k - 1)
            case "all_reduce":
                yield kind, 2 * before * (k - 1) / k


def _group_size(attributes: str, text: str) -> int:
    """How many devices stand in one group of a collective."""
    if groups := _GROUPS.search(attributes):
        return int(groups[2])
    named = _GROUP_AXES.search(attributes)
    assert named, attributes
    mesh = re.search(re.escape(f"sdy.mesh {named[1]} = <") + r"\[(.*?)\]>", text)
    assert mesh, named[1]
    sizes = dict(re.findall(r'"(\w+)"=(\d+)', mesh[1]))
    return prod(int(sizes[axis]) for axis in re.findall(r'name = "(\w+)"', named[2]))


def _size(tensor: str) -> float:
    *dims, kind = tensor.split("x")
    return prod(map(int, dims)) * _BYTES[kind]


def counted(text: str) -> Counter:
    """How many of each kind."""
    return Counter(kind for kind, _ in collectives(text))


def received(text: str) -> dict[str, float]:
    """The bytes that a device receives, by kind."""
    total: dict[str, float] = {}
    for kind, count in collectives(text):
        total[kind] = total.get(kind, 0.0) + count
    return total
