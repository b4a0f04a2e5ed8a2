"""What the manifest says of each leaf."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from lamina.checkpoint.arrays import Stored
from lamina.checkpoint.tiles import Tiling, tiling
from lamina.checkpoint.tree import Name
from lamina.sharding import Layout
from lamina.sharding.text import layout_text, parse_layout

TENSOR, ARRAY, NUMPY, KEY, PYTHON = "tensor", "jax array", "numpy array", "random key", "python value"


@dataclass(frozen=True)
class Record:
    """A leaf as it was saved.

    `kind` is what it was in the program.  A Python value stands in `value`; anything else is an array in `folder`, of
    `shape`, laid out as `layout`.  `stored` is the layout of the blocks on the disk: without the dims' axes where one
    device held all of it.  `keys` names the generator of random keys, whose numbers are one dim more.
    """

    name: Name
    kind: str
    value: Any = None
    folder: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    layout: Layout | None = None
    stored: Layout | None = None
    tile: tuple[int, ...] = ()
    keys: str = ""

    @property
    def tiles(self) -> Tiling:
        assert self.stored is not None
        return Tiling(self.shape, self.stored, self.tile)

    @property
    def nbytes(self) -> int:
        """The bytes of the value; pieces count each."""
        if self.kind == PYTHON:
            return 0
        return int(np.prod((*self.tiles.pieces, *self.shape), dtype=np.int64)) * self.element.itemsize

    @property
    def element(self) -> np.dtype:
        return jnp.dtype(self.dtype)

    def array(self, root: Path) -> Stored:
        return Stored(root / ARRAYS / self.folder, self.element, self.tiles)

    def __str__(self) -> str:
        if self.kind == PYTHON:
            return f"{type(self.value).__name__} {self.value!r}"
        kind = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        return f"{kind} as {self.layout}" if self.kind == TENSOR else f"{kind}, a {self.kind}"

    def to_json(self) -> dict[str, Any]:
        if self.kind == PYTHON:
            return {"name": list(self.name), "kind": self.kind, "value": _written(self.value)}
        assert self.layout is not None and self.stored is not None
        return {
            "name": list(self.name),
            "kind": self.kind,
            "folder": self.folder,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "layout": layout_text(self.layout),
            "stored": layout_text(self.stored),
            "tile": list(self.tile),
            "keys": self.keys,
        }

    @staticmethod
    def from_json(entry: dict[str, Any]) -> Record:
        name = tuple(entry["name"])
        if entry["kind"] == PYTHON:
            return Record(name, PYTHON, value=_read(entry["value"]))
        return Record(
            name,
            entry["kind"],
            folder=entry["folder"],
            dtype=entry["dtype"],
            shape=tuple(entry["shape"]),
            layout=parse_layout(entry["layout"]),
            stored=parse_layout(entry["stored"]),
            tile=tuple(entry["tile"]),
            keys=entry["keys"],
        )


def array_record(
    name: Name,
    kind: str,
    folder: str,
    dtype: Any,
    shape: tuple[int, ...],
    layout: Layout,
    stored: Layout,
    keys: str = "",
) -> Record:
    tile = tiling(shape, stored, dtype.itemsize).tile
    return Record(name, kind, None, folder, dtype.name, shape, layout, stored, tile, keys)


def _written(value: Any) -> Any:
    return {"complex": [value.real, value.imag]} if isinstance(value, complex) else value


def _read(value: Any) -> Any:
    return complex(*value["complex"]) if isinstance(value, dict) else value


# -- folders ----------------------------------------------------------------------------------------------------------

ARRAYS = "arrays"
LONGEST = 120  # most file systems take names of 255 bytes


def folders(names: list[Name]) -> list[str]:
    """A folder for each leaf, named after it as far as file systems agree on names; no two alike.

    >>> folders([("params", "w"), ("Params", "W"), (), ("a/b", "ü")])
    ['params.w', 'Params.W~1', 'value', 'a_b._']
    """
    taken: set[str] = set()
    found = []
    for number, name in enumerate(names):
        safe = ".".join(re.sub(r"[^A-Za-z0-9_-]", "_", part) or "_" for part in name)[:LONGEST] or "value"
        if safe.lower() in taken:  # file systems may not tell A from a
            safe = f"{safe}~{number}"
        taken.add(safe.lower())
        found.append(safe)
    return found
