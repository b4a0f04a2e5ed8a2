"""What was asked for beside what was saved: a target for each leaf, or everything that doesn't fit."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from lamina.checkpoint import tree as trees
from lamina.checkpoint.asked import PLACES, host_target, target_of
from lamina.checkpoint.leaves import listed
from lamina.checkpoint.manifest import Manifest
from lamina.checkpoint.records import Record
from lamina.checkpoint.targets import Target
from lamina.checkpoint.tree import Name
from lamina.errors import LaminaError, Problems, fact_and_fix

Wanted = dict[int, Target]  # by the number of the leaf in the manifest
Rebuild = Callable[[dict[int, Any]], Any]


def as_saved(manifest: Manifest) -> tuple[Wanted, Rebuild]:
    """Everything on the host, in the containers that were saved."""
    wanted = {number: host_target(record) for number, record in enumerate(manifest.records)}
    return wanted, lambda values: trees.rebuild(manifest.containers, values)


def like(manifest: Manifest, asked: Any) -> tuple[Wanted, Rebuild]:
    """A target for each leaf of `asked`, and what puts the values into its containers."""
    numbers = {record.name: number for number, record in enumerate(manifest.records)}
    pairs, put_back = trees.named_leaves(asked, trees.is_tensor)
    wanted: Wanted = {}
    found: list[Any] = []
    problems = Problems()
    for name, leaf in pairs:
        described = numbers.get(name)
        if described is None and isinstance(leaf, PLACES):  # one place for all that stands below
            described = trees.inside(manifest.containers, name)
        if described is None:
            problems.add(_missing(name, manifest.records), "ask by the names of what was saved; load(path) shows all")
            continue
        for number in trees.numbers(described):
            try:
                wanted[number] = target_of(leaf, manifest.records[number])
            except (LaminaError, TypeError) as error:
                fact, fix = fact_and_fix(error) if isinstance(error, LaminaError) else (str(error), "")
                problems.add(f"{trees.text(manifest.records[number].name)}: {fact}", fix)
        found.append(described)
    listed(problems)
    return wanted, lambda values: put_back.unflatten([trees.rebuild(described, values) for described in found])


def _missing(name: Name, records: tuple[Record, ...]) -> str:
    there = [trees.text(record.name) for record in records]
    near = get_close_matches(trees.text(name), there, 3) or there[:3]
    more = f" ({len(there)} leaves)" if len(there) > len(near) else ""
    return f"{trees.text(name)} was not saved; there is {', '.join(near) or 'nothing'}{more}"
