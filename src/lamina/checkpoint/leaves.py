"""What may stand in a tree that is saved, and the record that each leaf gets."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from lamina.checkpoint import tree as trees
from lamina.checkpoint.records import ARRAY, KEY, NUMPY, PYTHON, TENSOR, Record, array_record, folders
from lamina.checkpoint.tiles import TILE_BYTES
from lamina.checkpoint.tree import Name
from lamina.engine import compat, watching
from lamina.errors import CheckpointError, ConversionError, LaminaError, Problems, fact_and_fix, with_fix
from lamina.sharding import Layout
from lamina.sharding.dtypes import dtype_name
from lamina.tensors import Tensor, from_jax

# What one process holds of a leaf up to this size is written as one file: files cost more than bytes.
MERGED_BYTES = TILE_BYTES

_PYTHON = (bool, int, float, complex, str)
_SAVED = "a Tensor, an array of numbers, a random key, or a Python bool, int, float, complex or str"


def recorded(tree: Any) -> list[tuple[Record, Any]]:
    """Each leaf's record and its values; an error that names every leaf that can't be saved."""
    pairs, _ = trees.named_leaves(tree, trees.is_tensor)
    names = [name for name, _ in pairs]
    problems, found = Problems(), []
    if twins := sorted({trees.text(name) for name in names if names.count(name) > 1}) if _has_twins(names) else []:
        problems.add(f"several leaves are called {', '.join(twins)}", "give them different keys")
    for (name, leaf), folder in zip(pairs, folders(names), strict=True):
        try:
            found.append(_recorded(name, folder, leaf))
        except (LaminaError, TypeError) as error:
            fact, fix = fact_and_fix(error) if isinstance(error, LaminaError) else (str(error), "")
            problems.add(f"{trees.text(name)}: {fact}", fix or f"a leaf may be {_SAVED}")
    listed(problems)
    return found


def listed(problems: Problems) -> None:
    """One error for all leaves that something is wrong with, one line each."""
    facts = problems.facts
    if facts:
        fact = facts[0] if len(facts) == 1 else "\n  ".join([f"{len(facts)} leaves:", *facts])
        raise CheckpointError(with_fix(fact, "; ".join(problems.fixes)))


def _has_twins(names: list[Name]) -> bool:
    return len(set(names)) < len(names)


def _recorded(name: Name, folder: str, leaf: Any) -> tuple[Record, Any]:
    if compat.is_tracer(leaf._array if isinstance(leaf, Tensor) else leaf):
        raise TypeError("a traced value has no numbers yet; save outside of jax.jit, jax.grad and jax.vmap")
    if isinstance(leaf, Tensor):
        return _of_tensor(name, folder, leaf, TENSOR)
    if isinstance(leaf, jax.Array):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return _of_array(name, folder, jax.random.key_data(leaf), KEY, str(jax.random.key_impl(leaf)))
        return _of_array(name, folder, leaf, ARRAY)
    if isinstance(leaf, (np.ndarray, np.generic)):
        dtype_name(leaf.dtype)  # a TypeError for text, objects, dates
        value = np.asarray(leaf, leaf.dtype.newbyteorder("="))
        return _whole(name, folder, value, NUMPY), value
    if type(leaf) in _PYTHON:
        return Record(name, PYTHON, leaf), leaf
    raise TypeError(f"{leaf!r} of type {type(leaf).__name__} can't be saved")


def _of_array(name: Name, folder: str, array: jax.Array, kind: str, keys: str = "") -> tuple[Record, Any]:
    if array.is_fully_replicated and array.is_fully_addressable:
        return _whole(name, folder, array, kind, keys), array.addressable_data(0)  # one of the copies
    try:
        return _of_tensor(name, folder, from_jax(array), kind, keys)
    except ConversionError:
        if not array.is_fully_addressable:
            raise
        value = np.asarray(array)
        return _whole(name, folder, value, kind, keys), value


def _of_tensor(name: Name, folder: str, t: Tensor, kind: str, keys: str = "") -> tuple[Record, Tensor]:
    held = t._held
    whole = held.layout.replace(dims=((),) * held.rank)
    is_small = held.size * np.dtype(t.dtype).itemsize <= MERGED_BYTES
    stored = whole if held.is_local or (is_small and len(watching.ranks_of(held.mesh)) == 1) else held.layout
    return array_record(name, kind, folder, np.dtype(t.dtype), held.shape, held.layout, stored, keys), t


def _whole(name: Name, folder: str, value: Any, kind: str, keys: str = "") -> Record:
    layout = Layout({"device": 1}, ((),) * value.ndim)
    return array_record(name, kind, folder, np.dtype(value.dtype), tuple(value.shape), layout, layout, keys)
