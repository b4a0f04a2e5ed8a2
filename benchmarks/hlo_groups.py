"""The device groups of a collective, as XLA writes them: lists, an iota, or axes of a mesh."""

from __future__ import annotations

import re
from math import prod

import numpy as np

Groups = list[list[int]]

_IOTA = r"\[(?P<dims>[\d,]+)\](?:T\((?P<order>[\d,]+)\))?"


def groups(written: str, devices: int) -> Groups:
    """The groups at the start of the text, which follows `replica_groups=`; `{}` is all devices in one.

    >>> groups("{{0,2},{1}}, channel_id=1", 4), groups("{}", 2)
    ([[0, 2], [1]], [[0, 1]])
    >>> groups("[2,2]<=[2,2]T(1,0), dimensions={0}", 4), groups("[2,2]<=[4]", 4)
    ([[0, 2], [1, 3]], [[0, 1], [2, 3]])
    >>> groups("mesh['a'=2,'b'=2] {'a'}", 4), groups("mesh['a'=2,'b'=2] {'a','b'}", 4)
    ([[0, 2], [1, 3]], [[0, 1, 2, 3]])
    """
    if written.startswith("{"):
        return _lists(written, devices)
    if grid := re.match(rf"\[(\d+),(\d+)\]<={_IOTA}", written):
        return _iota(grid["dims"], grid["order"]).reshape(int(grid[1]), int(grid[2])).tolist()
    if mesh := re.match(r"mesh\[(?P<axes>.*?)\](?:, device_ids=\((?P<ids>.*?)\)(?=[ ]))? \{(?P<named>.*?)\}", written):
        return _by_axes(mesh["axes"], mesh["ids"], mesh["named"])
    raise ValueError(f"can't read the groups in: {written}")


def _lists(written: str, devices: int) -> Groups:
    inside = re.match(r"\{((?:\{[\d, ]*\},? ?)*)\}", written)
    if not inside:
        raise ValueError(f"can't read the groups in: {written}")
    found = [[int(member) for member in one.split(",")] for one in re.findall(r"\{([\d, ]+)\}", inside[1])]
    return found or [list(range(devices))]


def _iota(dims: str, order: str | None) -> np.ndarray:
    """[2,4]T(1,0): the numbers in order, as a grid, transposed."""
    sizes = [int(size) for size in dims.split(",")]
    grid = np.arange(prod(sizes)).reshape(sizes)
    return grid.transpose([int(axis) for axis in order.split(",")]) if order else grid


def _by_axes(axes: str, ids: str | None, named: str) -> Groups:
    """Groups along some axes of a mesh; `'a':(2)4` is the part of size 4 of axis a that 2 stands before.

    >>> _by_axes("'a'=8", None, "'a':(2)2")
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    >>> _by_axes("'a'=2,'b'=2", "[2,2]T(1,0)", "'b'")
    [[0, 2], [1, 3]]
    """
    sizes = {name: int(size) for name, size in re.findall(r"'(.*?)'=(\d+)", axes)}
    chosen = re.findall(r"'(.*?)'(?::\((\d+)\)(\d+))?", named)
    split: list[tuple[int, bool]] = []  # the mesh with its axes cut where a part of one is named
    for axis, size in sizes.items():
        at = 1
        for before, part in sorted((int(b or 1), int(p or size)) for name, b, p in chosen if name == axis):
            split += [(before // at, False), (part, True)]
            at = before * part
        split.append((size // at, False))
    grid = _ids(ids, prod(sizes.values())).reshape([size for size, _ in split])
    inside = [number for number, (_, is_named) in enumerate(split) if is_named]
    outside = [number for number, (_, is_named) in enumerate(split) if not is_named]
    members = prod(split[number][0] for number in inside)
    return grid.transpose([*outside, *inside]).reshape(-1, members).tolist()


def _ids(written: str | None, devices: int) -> np.ndarray:
    """The devices of a mesh in row-major order: 0, 1, … unless an iota or a list says otherwise."""
    if written is None:
        return np.arange(devices)
    if grid := re.fullmatch(_IOTA, written):
        return _iota(grid["dims"], grid["order"]).reshape(-1)
    return np.array([int(number) for number in re.findall(r"\d+", written)])
