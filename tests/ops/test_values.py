"""The value of every op in the table, on its operands' layouts, is that of plain jnp on the global values."""

from __future__ import annotations

import pytest

from tests.engine.oracles import KINDS, compiled, mesh_of
from tests.ops.checks import assert_value
from tests.ops.laying import MESHES, layout_tuples, shown, tensor_of
from tests.ops.rows import Row
from tests.ops.table import TABLE
from tests.strategies import Mesh

CASES = [(row, axes, kind) for row in TABLE for axes in MESHES for kind in KINDS]


def case_name(value: object) -> str:
    return "x".join(map(str, value.values())) if isinstance(value, dict) else str(value)


ONLY_WITH_EXHAUSTIVE = pytest.mark.exhaustive(keep=10**9)


def cases(every: int = 1, rows: tuple[Row, ...] = TABLE) -> pytest.MarkDecorator:
    """Each row on each mesh of each kind; without --exhaustive one in `every`, in turn, so that all rows meet some.

    Of two, one is real and one simulated.
    """
    square, uneven = MESHES
    meshes = [(square, KINDS[0]), (square, KINDS[1]), (uneven, KINDS[1]), (uneven, KINDS[0])]
    found = [
        pytest.param(row, axes, kind, marks=() if (i + j) % every == 0 else ONLY_WITH_EXHAUSTIVE)
        for i, row in enumerate(rows)
        for j, (axes, kind) in enumerate(meshes)
    ]
    return pytest.mark.parametrize(("row", "axes", "kind"), found, ids=case_name)


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    """How many layouts of the operands a case tries."""
    return 60 if request.config.getoption("--exhaustive") else 1


@cases(every=2)
def test_values(row: Row, axes: Mesh, kind: str, count: int) -> None:
    mesh, values = mesh_of(axes, kind), row.values()
    expected = row.expected(*values)
    for layouts in layout_tuples(row, axes, count, kind):
        operands = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(values, layouts, strict=True))]
        assert_value(row.run(*operands), expected, row.tolerance, shown(layouts))


@cases(every=8)
def test_values_under_jit(row: Row, axes: Mesh, kind: str, count: int) -> None:
    mesh, values = mesh_of(axes, kind), row.values()
    for layouts in layout_tuples(row, axes, count, f"jit {kind}"):
        operands = [tensor_of(x, mesh, layout, i) for i, (x, layout) in enumerate(zip(values, layouts, strict=True))]
        assert_value(compiled(row.run)(*operands), row.expected(*values), row.tolerance, shown(layouts))
