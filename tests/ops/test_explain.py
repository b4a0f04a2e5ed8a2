"""`explain(op, ...)` and `infer`: what they say is what the op then does, and it is said without devices."""

from __future__ import annotations

import json

import pytest

import lamina
from lamina import DimSpec, NamedMapping, TensorLayout
from lamina.errors import LayoutError, ReshardError
from lamina.planning import Explanation
from tests.engine.oracles import mapping_of, mesh_of
from tests.ops.laying import MESHES, layout_tuples, tensor_of
from tests.ops.rows import Row
from tests.ops.table import TABLE
from tests.ops.test_values import case_name
from tests.strategies import Mesh

POD = lamina.DeviceMesh.abstract((8, 4), ("dp", "tp"))
N, M = lamina.SymbolicDim("n"), lamina.SymbolicDim("m")


def layout(shape: tuple, *spec: object, mesh: lamina.DeviceMesh = POD, **more: object) -> TensorLayout:
    return TensorLayout("float32", shape, NamedMapping(mesh, spec, **more))


@pytest.mark.parametrize("axes", MESHES, ids=case_name)
@pytest.mark.parametrize("row", TABLE, ids=str)
@pytest.mark.exhaustive(keep=8)
def test_the_explanation_is_what_happens(row: Row, axes: Mesh) -> None:
    """On an abstract mesh, from shapes alone: the same result layouts, and bytes just where on_reshard sees some."""
    mesh, there = mesh_of(axes, "simulated"), lamina.DeviceMesh.abstract(tuple(axes.values()), tuple(axes))
    (layouts,) = layout_tuples(row, axes, 1, "explain")
    tensors = [tensor_of(x, mesh, one, i) for i, (x, one) in enumerate(zip(row.values(), layouts, strict=True))]
    known = [TensorLayout(t.dtype, t.shape, mapping_of(there, t.layout)) for t in tensors]
    told = lamina.explain(row.run, *known)
    assert isinstance(told, Explanation)
    made = row.run(*tensors)
    made = made if isinstance(made, (tuple, list)) else [made]
    assert told.results == tuple((t.shape, t.layout) for t in made)
    assert {stage.name for stage in told.stages}
    try:
        with lamina.on_reshard("raise"):
            row.run(*tensors)
    except ReshardError:
        moves = True
    else:
        moves = False
    first = [stage for stage in told.stages if stage.name != "shard"]
    assert any(stage.bytes_received for stage in first) or not moves


def test_the_text_names_what_moves_and_what_else_there_was() -> None:
    mesh = lamina.DeviceMesh.abstract((2, 2), ("x", "y"))
    told = lamina.explain(
        lamina.matmul, layout((8, 4), "x", mesh=mesh), layout((4, 8), "x", "y", mesh=mesh), topology="h100"
    )
    lines = str(told).splitlines()
    assert lines[:5] == [
        "matmul: receives 32 B per device, 8 µs on h100",
        "1. matmul",
        "   operand 0, [8, 4] lying as [x=2,y=2] x,-: stays",
        "   operand 1, [4, 8] lying as [x=2,y=2] x,y: all-gather dim 0 over x, 32 B",
        "   makes [8, 8] lying as [x=2,y=2] x,y",
    ]
    assert all(line.startswith("   instead: [x=2,y=2] ") for line in lines[5:]) and len(lines) > 6
    assert told.stages[0].choices[0].rank <= told.stages[0].choices[1].rank


def test_it_is_plain_data_and_html_too() -> None:
    told = lamina.explain("mean", layout((64, 64), "dp", "tp"), axis=1)
    data = json.loads(json.dumps(told.to_dict()))
    assert data["op"] == "mean" and [stage["name"] for stage in data["stages"]] == ["sum", "divide", "astype"]
    assert data["stages"][0]["choices"][0]["seconds"] == pytest.approx(told.stages[0].choices[0].reducing)
    assert told._repr_html_().startswith("<table><caption>mean: receives 0 B per device</caption>")


def test_any_function_of_tensors_can_be_explained() -> None:
    x, w = layout((4096, 512), "dp"), layout((512, 2048), None, "tp")
    told = lamina.explain(lambda x, w: lamina.relu(x @ w).sum(), x, w)
    assert [stage.name for stage in told.stages] == ["matmul", "relu", "sum"]
    assert told.bytes_received == 0
    assert str(told.results[0][1]) == "[dp=8,tp=4] () +sum(dp,tp)"


OPEN = DimSpec((), is_open=True)


@pytest.mark.parametrize(
    "op, operands, required, result",
    [
        ("matmul", [layout((N, 512), "dp"), layout((512, M), None, "tp")], ["dp,-", "-,tp"], "[n,m] dp,tp"),
        ("matmul", [layout((N, M), None, "tp"), layout((M, 8), "tp")], ["-,tp", "tp,-"], "[n,8] -,- +sum(tp)"),
        ("add", [layout((N, M), "dp"), layout((M,))], ["dp,-", "-"], "[n,m] dp,-"),
        ("add", [layout((N, M), "dp", "tp"), layout((M,))], ["dp,tp", "tp"], "[n,m] dp,tp"),
        ("sum", [layout((N, M), "dp", "tp")], ["dp,tp"], "[] () +sum(dp,tp)"),
        ("concatenate", [[layout((N, 4), None, "tp"), layout((M, 4), None, "tp")]], None, "[m + n,4] -,tp"),
        # open dims are split further, closed ones are not
        ("add", [layout((N,), "dp"), layout((N,), OPEN)], ["dp", "dp"], "[n] dp"),
        ("add", [layout((N,), None), layout((N,), DimSpec("dp", is_open=True))], ["-", "-"], "[n] -"),
        # of two that want different axes on one factor, the smaller number wins, though more has to move
        (
            "add",
            [layout((N,), DimSpec("dp", priority=1)), layout((1000, N), None, DimSpec("tp", priority=2))],
            ["dp", "-,dp"],
            "[1000,n] -,dp",
        ),
        (
            "add",
            [layout((N,), DimSpec("dp", priority=2)), layout((1000, N), None, DimSpec("tp", priority=1))],
            ["tp", "-,tp"],
            "[1000,n] -,tp",
        ),
    ],
)
def test_infer(op: str, operands: list, required: list[str] | None, result: str) -> None:
    if op == "concatenate":
        found = lamina.infer(lambda *parts: lamina.concatenate(parts), *operands[0])
    else:
        found = lamina.infer(op, *operands)
        assert [str(one.mapping).partition("] ")[2] for one in found.required] == required
        assert [one.shape for one in found.required] == [x.shape for x in operands]
    (made,) = found.results
    text = f"[{','.join(map(str, made.shape))}] {str(made.mapping.to_named_sharding(made.rank)).partition('] ')[2]}"
    assert text == result


def test_what_cannot_be_is_said() -> None:
    x = layout((8, 4), "dp")
    with pytest.raises(LayoutError, match=r"^explain\(op='matmull'\): Lamina has no such op\n  fix: did you mean "):
        lamina.explain("matmull", x, x)
    with pytest.raises(LayoutError, match=r"^matmul: shapes \(8, 4\) and \(8, 4\): the last dim"):
        lamina.explain("matmul", x, x)
    with pytest.raises(LayoutError, match=r"^explain\(sin\): bytes need sizes, but n of the shapes are symbols"):
        lamina.explain("sin", layout((N,)))
    with pytest.raises(LayoutError, match=r"^explain\(sin\): no operand says how it lies"):
        lamina.infer("sin", 1.0)
    other = layout((8, 4), mesh=lamina.DeviceMesh.abstract((2,), ("x",)))
    with pytest.raises(LayoutError, match=r"^explain\(add\): the operands lie on different meshes: "):
        lamina.explain("add", x, other)
