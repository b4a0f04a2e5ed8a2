"""Which room of the house may import which, as a table, proven on the source tree (DESIGN section 10).

The proof reads every `import` of every file under src/lamina, those inside functions and under TYPE_CHECKING too, and
counts `import_module("a.b")` as an import of a.b. That the proof can fail is tested below on trees made for it.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
FRONT_DOOR = "__init__"  # lamina/__init__.py; a room that imports `lamina` itself imports this one

# room -> the rooms that it may import. A row names only rows above it, so imports go in one direction.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "sharding": {"errors"},
    "rules": {"errors", "sharding"},
    "planning": {"errors", "sharding", "rules"},
    "engine": {"errors", "sharding", "rules", "planning"},
    "operators": {"errors"},
    "tensors": {"errors", "sharding", "planning", "engine", "operators"},
    "ops": {"errors", "sharding", "rules", "planning", "engine", "tensors"},
    "graph": {"errors", "sharding", "planning", "engine", "tensors"},
    "interop": {"errors", "sharding", "engine", "tensors"},
    "checkpoint": {"errors", "sharding", "planning", "engine", "tensors", "ops"},
    "viz": {"errors", "sharding", "planning"},
    FRONT_DOOR: {
        "errors",
        "sharding",
        "rules",
        "planning",
        "engine",
        "tensors",
        "ops",
        "graph",
        "interop",
        "checkpoint",
        "viz",
    },
    "cli": {
        "errors",
        "sharding",
        "rules",
        "planning",
        "engine",
        "tensors",
        "ops",
        "graph",
        "interop",
        "checkpoint",
        "viz",
        FRONT_DOOR,
    },
    "__main__": {"cli"},
}

# room -> what it may import besides the standard library.
THIRD_PARTY: dict[str, set[str]] = {
    "engine": {"jax", "numpy"},
    "tensors": {"jax", "numpy"},
    "ops": {"jax", "numpy"},
    "graph": {"jax", "numpy"},
    "interop": {"jax", "numpy", "torch"},
    "checkpoint": {"jax", "numpy", "tensorstore", "rich"},
    "viz": {"rich"},
    "cli": {"rich"},
}

# (file, what it imports) -> why it may all the same. Only inside a function, so that importing the file loads nothing.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("sharding/devices.py", "lamina.engine.inventory"): "only JAX knows which real devices exist; asked when called",
    (
        "planning/simulate.py",
        "numpy",
    ): "the interpreter of plans is a reference for tests, nothing on the way to a plan",
    ("planning/simulate.py", "ml_dtypes"): "likewise",
    ("engine/compat_service.py", "jaxlib"): "JAX's coordination service in a process that doesn't load jax",
    ("operators.py", "lamina.ops"): "an operator of a Tensor is one of the verbs above it, looked up when used",
}

# Files that load modules by names of a table of theirs, when they are asked for them.
BY_NAME = {"__init__.py": "the front door's names", "cli/__init__.py": "COMMANDS, all of them in lamina.cli (tested)"}


@dataclass(frozen=True)
class Import:
    line: int
    module: str  # absolute; "?" if only running the code could tell
    in_function: bool


def imports_of(path: Path, source: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = list(path.relative_to(source).parent.parts)

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for module in modules_of(node, package):
            yield Import(node.lineno, module, in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(tree, False)


def modules_of(node: ast.AST, package: list[str]) -> list[str]:
    """The absolute names of the modules that this one node imports. `from lamina import x` is lamina.x."""
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = package[: len(package) + 1 - level] if level else []
            full = ".".join([*base, *([module] if module else [])])
            return [f"{full}.{name.name}" for name in names] if full == "lamina" else [full or "?"]
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"), args=args
        ):
            match args:
                case [ast.Constant(value=str(name))] if not name.startswith("."):
                    return [name]
            return ["?"]
    return []


def violations(source: Path) -> list[str]:
    """Every import below source/lamina that the tables above don't allow, one line each."""
    found = []
    for path in sorted((source / "lamina").rglob("*.py")):
        name = path.relative_to(source / "lamina").as_posix()
        room = name.partition("/")[0].removesuffix(".py")
        if room not in ROOMS:
            found.append(f"{name}: no row for {room!r} in ROOMS")
            continue
        for imported in imports_of(path, source):
            complaint = complain(name, room, imported)
            if complaint:
                found.append(f"{name}:{imported.line} {complaint}")
    return found


def complain(name: str, room: str, imported: Import) -> str | None:
    if (name, imported.module) in EXCEPTIONS:
        return None if imported.in_function else f"may import {imported.module} only inside a function"
    if imported.module == "?":
        return None if name in BY_NAME else "imports by a name that can't be read here"
    root, _, rest = imported.module.partition(".")
    if root == "lamina":
        target = rest.partition(".")[0]
        # `from lamina import shard`: a name and not a room, so it comes through the front door.
        target = target if target in ROOMS else FRONT_DOOR
        allowed = ROOMS[room] | {room}
        return None if target in allowed else f"imports {imported.module}; {room} may import {sorted(ROOMS[room])}"
    allowed = THIRD_PARTY.get(room, set())
    if root in sys.stdlib_module_names or root in allowed:
        return None
    return f"imports {imported.module}; {room} may import the standard library and {sorted(allowed)}"


def test_the_tree_keeps_to_the_table() -> None:
    assert (SOURCE / "lamina" / "sharding" / "__init__.py").exists()
    assert violations(SOURCE) == []


def test_the_commands_are_modules_of_their_room() -> None:
    from lamina.cli import COMMANDS

    assert all(module == f"lamina.cli.{name}" for name, module in COMMANDS.items())


def test_the_table_goes_in_one_direction() -> None:
    above: set[str] = set()
    for room, allowed in ROOMS.items():
        assert allowed <= above, f"{room} may import {sorted(allowed - above)}, which come later"
        above.add(room)
    assert THIRD_PARTY.keys() <= ROOMS.keys()


# --- the proof can fail: file, its text, and what must be said about it (None: it is allowed)

CASES = [
    ("sharding/a.py", "import jax", "imports jax; sharding may import the standard library and []"),
    ("sharding/a.py", "import numpy.linalg as la", "imports numpy.linalg; sharding may"),
    ("sharding/a.py", "from lamina.planning.plan import Plan", "imports lamina.planning.plan; sharding may"),
    ("sharding/a.py", "from lamina import engine", "imports lamina.engine; sharding may"),
    ("sharding/a.py", "import lamina", "imports lamina; sharding may"),
    ("sharding/a.py", "from lamina import shard", "imports lamina.shard; sharding may"),
    ("sharding/a.py", "from ..planning import Plan", "imports lamina.planning; sharding may"),
    ("sharding/a.py", "from .. import tensors", "imports lamina.tensors; sharding may"),
    ("sharding/__init__.py", "from ..ops import shard", "imports lamina.ops; sharding may"),
    ("sharding/deep/a.py", "from ...engine.lower import lower", "imports lamina.engine.lower; sharding may"),
    ("sharding/a.py", "from ... import secrets", "imports by a name that can't be read here"),
    ("errors.py", "from .sharding import Device", "imports lamina.sharding; errors may import []"),
    ("planning/a.py", "def f():\n    import jax", "planning/a.py:2 imports jax; planning may"),
    (
        "planning/a.py",
        "class A:\n    async def f(self):\n        from ..engine import x",
        "imports lamina.engine; planning",
    ),
    (
        "planning/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy",
        "imports numpy; planning",
    ),
    ("planning/simulate.py", "import numpy", "may import numpy only inside a function"),
    ("planning/plan.py", "def f():\n    import numpy", "imports numpy; planning may"),
    (
        "sharding/devices.py",
        "import importlib\nimportlib.import_module('lamina.engine.inventory')",
        "only inside a function",
    ),
    (
        "sharding/mesh.py",
        "import importlib\ndef f(): importlib.import_module('lamina.engine.inventory')",
        "imports lamina.e",
    ),
    (
        "sharding/devices.py",
        "import importlib\ndef f(): importlib.import_module('lamina.engine.lower')",
        "imports lamina.e",
    ),
    (
        "planning/a.py",
        "from importlib import import_module\ndef f(name): import_module(name)",
        "by a name that can't be",
    ),
    (
        "planning/a.py",
        "from importlib import import_module\nimport_module('.engine', 'lamina')",
        "by a name that can't be",
    ),
    ("planning/a.py", "x = __import__('jax')", "imports jax; planning may"),
    ("engine/a.py", "import torch", "imports torch; engine may import the standard library and ['jax', 'numpy']"),
    ("ops/a.py", "from lamina.viz import draw", "imports lamina.viz; ops may"),
    ("viz/a.py", "from lamina.tensors import Tensor", "imports lamina.tensors; viz may"),
    ("extra/a.py", "", "extra/a.py: no row for 'extra' in ROOMS"),
    ("sharding/a.py", "import enum, math\nfrom . import b\nfrom .b import c\nfrom ..errors import E", None),
    ("sharding/devices.py", "import importlib\ndef f(): importlib.import_module('lamina.engine.inventory')", None),
    ("planning/simulate.py", "def f():\n    import numpy", None),
    ("engine/a.py", "import jax.numpy as jnp\nfrom lamina.planning import plan\nfrom .b import c", None),
    ("tensors.py", "from . import errors\nfrom .engine import lower\nimport numpy", None),
    ("__init__.py", "from importlib import import_module\ndef __getattr__(n): return import_module(n)", None),
    ("cli/__init__.py", "import lamina\nfrom rich.table import Table", None),
]


@pytest.mark.parametrize(("name", "text", "complaint"), CASES)
def test_the_proof_can_fail(tmp_path: Path, name: str, text: str, complaint: str | None) -> None:
    path = tmp_path / "lamina" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    match violations(tmp_path):
        case []:
            assert complaint is None
        case [line]:
            assert complaint is not None and line.startswith(f"{name}:") and complaint in line, line
        case several:
            pytest.fail(f"one complaint expected: {several}")


# --- what importing loads, and how long it takes, in an interpreter of its own

PROBE = """
import json, sys, time
before = set(sys.modules)
start = time.process_time()  # on a busy machine the clock counts what others do: 118 ms where this says 37
import {modules}
seconds = time.process_time() - start
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps([seconds, sorted(loaded - sys.stdlib_module_names - {{"lamina"}})]))
"""


def probe(modules: str) -> tuple[float, list[str]]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(SOURCE)
    command = [sys.executable, "-c", PROBE.format(modules=modules)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    seconds, loaded = json.loads(process.stdout)
    return seconds, loaded


@pytest.mark.parametrize("modules", ["lamina", "lamina.errors", "lamina.sharding, lamina.planning"])
def test_the_pure_rooms_load_only_the_standard_library(modules: str) -> None:
    assert probe(modules)[1] == []


def test_the_pure_rooms_import_within_60_ms() -> None:
    assert min(probe("lamina.sharding, lamina.planning")[0] for _ in range(5)) <= 0.060


def test_the_probe_sees_what_is_loaded() -> None:
    assert "numpy" in probe("numpy")[1]
