"""A pytree as named leaves and a description of its containers, and back.

A leaf's name is the path of keys to it, as text: the entry 0 of a list under "layers" is ("layers", "0").  What a leaf
means in the program (a dict's value, a field of a namedtuple or of a dataclass) doesn't matter for it, so a checkpoint
can be read into other containers with the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from lamina.tensors import Tensor

Name = tuple[str, ...]


def text(name: Name) -> str:
    """The name as messages show it.

    >>> text(("layers", "0", "kernel")), text(())
    ('layers/0/kernel', 'the value itself')
    """
    return "/".join(name) or "the value itself"


def named_leaves(tree: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[tuple[Name, Any]], Any]:
    """Every leaf with its name, and the treedef that puts them back.  Tensors are leaves."""
    pairs, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)
    return [(tuple(_key(entry) for entry in path), leaf) for path, leaf in pairs], treedef


def is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _key(entry: Any) -> str:
    match entry:
        case DictKey(key=key) | FlattenedIndexKey(key=key):
            return str(key)
        case SequenceKey(idx=index):
            return str(index)
        case GetAttrKey(name=name):
            return name
    return str(entry)


# -- the containers ---------------------------------------------------------------------------------------------------


def describe(tree: Any) -> Any:
    """The containers of a tree as JSON; each leaf is the number that it has in flattening order.

    >>> describe({"a": [1.0, None], "b": (2.0,)})
    {'dict': [['a', {'list': [0, {'none': []}]}], ['b', {'tuple': [1]}]]}
    """
    return _described(tree, iter(range(len(jax.tree_util.tree_leaves(tree, is_leaf=is_tensor)))))


def _described(node: Any, numbers: Iterator[int]) -> Any:
    children = _children(node)
    if children is None:
        return next(numbers)
    if node is None:
        return {"none": []}
    inside = [(key, _described(child, numbers)) for key, child in children]
    match node:
        case dict():
            return {"dict": [[key, child] for key, child in inside]}
        case list():
            return {"list": [child for _, child in inside]}
        case tuple() if type(node) is tuple:
            return {"tuple": [child for _, child in inside]}
    return {"dict": [[str(key), child] for key, child in inside]}  # namedtuples, dataclasses: their fields by name


def _children(node: Any) -> list[tuple[Any, Any]] | None:
    """What a container holds, by key; None for a leaf."""
    if is_tensor(node):
        return None
    pairs = jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[0]
    if len(pairs) == 1 and not pairs[0][0]:
        return None
    return [(_plain_key(path[0]), child) for path, child in pairs]


def _plain_key(entry: Any) -> Any:
    key = entry.key if isinstance(entry, DictKey) else _key(entry)
    return key if isinstance(key, (str, int, float, bool)) else str(key)


def rebuild(description: Any, leaves: Sequence[Any] | Mapping[int, Any]) -> Any:
    """The tree again, of dicts, lists and tuples; other containers have become dicts of their fields.

    >>> rebuild({"dict": [["a", {"list": [0, {"none": []}]}], ["b", {"tuple": [1]}]]}, [1.0, 2.0])
    {'a': [1.0, None], 'b': (2.0,)}
    """
    match description:
        case int():
            return leaves[description]
        case {"none": _}:
            return None
        case {"dict": pairs}:
            return {key: rebuild(child, leaves) for key, child in pairs}
        case {"list": children}:
            return [rebuild(child, leaves) for child in children]
        case {"tuple": children}:
            return tuple(rebuild(child, leaves) for child in children)
    raise ValueError(f"{description!r} describes no container")


def numbers(description: Any) -> list[int]:
    """The leaves in it.

    >>> numbers({"list": [0, {"none": []}, {"tuple": [2]}]})
    [0, 2]
    """
    match description:
        case int():
            return [description]
        case {"dict": pairs}:
            children = [child for _, child in pairs]
        case {"list": children} | {"tuple": children} | {"none": children}:
            pass
    return [number for child in children for number in numbers(child)]


def inside(description: Any, name: Name) -> Any:
    """The description of what stands under a name; None if nothing does."""
    for key in name:
        match description:
            case {"dict": pairs}:
                description = next((child for found, child in pairs if str(found) == key), None)
            case {"list": children} | {"tuple": children}:
                description = children[int(key)] if key.isdecimal() and int(key) < len(children) else None
            case _:
                return None
    return description
