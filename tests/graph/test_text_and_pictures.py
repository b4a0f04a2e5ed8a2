"""The text of a graph reads back as the same graph; the picture has every device, node and value."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina import DeviceMesh, DistributedTensorType, Partial, Replicated, Sharded
from lamina.graph import (
    Buffer,
    BufferType,
    DeviceRef,
    Dim,
    Graph,
    InferenceSession,
    Signals,
    TensorType,
    distributed,
    ops,
    parse_graph,
)
from tests.graph.helpers import ALL, data

A, B, C, D = ALL[:4]
MESH = DeviceMesh((A, B), (2,), ("x",))


def on(device, *shape, dtype="float32"):
    return TensorType(dtype, shape, device)


def everything():
    """One graph with every kind of thing that a text can say."""
    kinds = [
        on(A, "n", Dim("n") + 1, (Dim("n") + 3) // 4),
        DistributedTensorType("bfloat16", ("n", 6), MESH, [Sharded(1)]),
        DistributedTensorType("float32", (6,), MESH, [Partial()]),
        BufferType("int32", (3,), B),
        *Signals([A, B]).input_types(),
    ]
    with Graph("everything", input_types=kinds) as graph:
        x, halves, pieces, buffer, s, t = graph.inputs
        both = ops.allgather(halves, [s, t], axis=-1)
        total = ops.allreduce.sum(pieces, [s, t])
        ops.buffer_store(buffer, buffer[...] + 1)
        ops.buffer_store_slice(buffer, np.zeros(2, "int32"), slice(0, 2))
        picked = x[..., 0, None][: Dim("n") // 2, 1:]
        numbers = [ops.constant(v, device=C) for v in (np.inf, -np.inf, -2.5, True, 1 - 2j, [[1, 2], [3, 4]])]
        graph.output(
            *both,
            distributed(total, MESH, [Replicated()]),
            picked * Dim("n"),
            ops.shape_of(x),
            ops.reshape(x, (-1,)),
            ops.split(x, [1, Dim("n") - 1])[1],
            *numbers,
            x.rebind(["n", "m", "k"]).to(D),
            *ops.distributed_broadcast(x, None, devices=[A, C]),
            *ops.shard_and_stack([np.zeros((4, 100), "float32")] * 2, [A, B], axis=1),
        )
    return graph


def test_everything_reads_back():
    graph = everything()
    again = parse_graph(str(graph), graph.constants, graph.functions)
    assert str(again) == str(graph)
    assert (again.nodes, again.types) == (graph.nodes, graph.types)
    assert (again.input_groups, again.output_groups) == (graph.input_groups, graph.output_groups)
    again.verify()


@pytest.mark.parametrize("name", ["g", "two words", 'it\'s (so) "odd"\n', "", "µ-batch"])
def test_any_name_reads_back(name):
    graph = Graph(name, lambda x: x, [on(A, 2)])
    again = parse_graph(str(graph))
    assert again.name == name and str(again) == str(graph)
    assert ElementTree.fromstring(graph.to_svg()) is not None


def test_what_was_read_runs():
    graph = Graph("f", lambda x: ops.call(jnp.cumsum, x @ data((20, 20))), [on(B, "n", 20)])
    again = parse_graph(str(graph), graph.constants, graph.functions)
    x = data((3, 20))
    first, second = (InferenceSession().load(one).execute(x)[0].numpy() for one in (graph, again))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, np.cumsum(x @ data((20, 20))))


UNARY = ["exp", "tanh", "negate", "relu"]
BINARY = ["add", "mul", "max", "sub"]


@st.composite
def programs(draw):
    """A random program over four devices: what to do with which of the values so far."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=25)
    )
    return steps


def build(steps):
    def forward(*values):
        made = list(values)
        for kind, i, j in steps:
            x, y = made[i % len(made)], made[j % len(made)]
            if kind == 0:
                made.append(getattr(ops, UNARY[j % 4])(x))
            elif kind == 1:
                made.append(getattr(ops, BINARY[j % 4])(x, y.to(x.device)))
            elif kind == 2:
                made.append(x.to(ALL[j % 4]))
            elif kind == 3:
                made += ops.distributed_broadcast(x, None, devices=list(dict.fromkeys([x.device, *ALL[: 2 + j % 3]])))
            else:
                group = list({value.device: value for value in made[::-1]}.values())[: 2 + j % 3]
                made += ops.allreduce.sum(group) if kind == 4 else [g[: x.shape[0]] for g in ops.allgather(group)]
        return made[-4:]

    return forward


@given(steps=programs())
def test_random_programs_read_back_and_run_as_one_device_would(steps):
    """The stages on four devices against the logical meaning under jax.jit, and the text against the graph."""
    import jax

    graph = Graph("random", build(steps), [on(device, 3) for device in (A, B, C, D)])
    again = parse_graph(str(graph))
    assert str(again) == str(graph) and again.nodes == graph.nodes
    model = InferenceSession().load(again)
    inputs = [data((3,), seed=i) / 8 for i in range(4)]
    found = [one.numpy() for one in model.execute(*inputs)]
    with np.errstate(all="ignore"):
        expected = jax.jit(lambda *xs: [one.jax() for one in model(*xs)])(*inputs)
    for one, want, value in zip(found, expected, graph.outputs, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-5)
        assert one.shape == tuple(value.shape)


# -- pictures ---------------------------------------------------------------------------------------------------------


def test_the_picture_has_lanes_and_what_crosses_them():
    graph = everything()
    root = ElementTree.fromstring(graph.to_svg())
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert all(repr(device) in texts for device in graph.devices)
    assert texts.count("allgather") == 1 and texts.count("output") == len(graph.outputs)
    boxes = [element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("class") == "across"]
    assert len(boxes) == sum(node.op in _ACROSS for node in graph.nodes)
    lane = next(e for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("class") == "lane")
    assert any(float(box.get("width")) > float(lane.get("width")) for box in boxes)


_ACROSS = {"allgather", "allreduce.sum", "transfer_to", "distributed_broadcast", "shard_and_stack"}


def test_nothing_in_the_picture_overlaps():
    root = ElementTree.fromstring(everything().to_svg())
    cells = set()
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if box.get("class") == "lane":
            continue
        x, y, width = (float(box.get(name)) for name in ("x", "y", "width"))
        for lane in range(int(x // 190), int((x + width) // 190) + 1):
            assert (lane, y) not in cells
            cells.add((lane, y))


def test_dot_names_every_node():
    graph = everything()
    text = graph.to_dot()
    assert text.count("subgraph") == len(graph.devices) and text.count("{") == text.count("}")
    boxes = len(re.findall(r"^ +n\d+ \[", text, re.M))
    inputs = sum(len(numbers) for numbers, _ in graph.input_groups) - 2  # signal buffers aren't drawn
    assert boxes == inputs + len(graph.nodes) + len(graph.outputs)


def test_a_graph_without_anything():
    graph = Graph("empty", lambda: [], [])
    assert str(parse_graph(str(graph))) == str(graph) == "graph empty() {\n  output()\n}"
    assert ElementTree.fromstring(graph.to_svg()) is not None and "digraph" in graph.to_dot()
    assert InferenceSession().load(graph).execute() == []


def test_reprs():
    graph = Graph("g", lambda x: x + 1, [on(A, "n")])
    assert repr(graph) == "<Graph g: 2 nodes on CPU(0)>"
    assert repr(graph.inputs[0]) == "%0: float32[n] @ CPU(0)"
    assert repr(InferenceSession().load(graph)) == "Model(<Graph g: 2 nodes on CPU(0)>, 0 bindings compiled)"
    assert repr(Buffer(np.zeros(2, "float32"), B)) == "Buffer(float32[2] on CPU(1))"
    assert DeviceRef.GPU(2) == lamina.Accelerator(2)
    assert graph.symbols == {"n"} and [str(kind) for kind in graph.input_types] == ["float32[n] @ CPU(0)"]


@pytest.mark.parametrize("many", [200])
def test_large_graphs_are_quick(many):
    """Building, staging and writing are linear enough: 8 devices, 200 layers."""
    import time

    start = time.perf_counter()
    signals = Signals(ALL)

    def layers(*values):
        xs, meeting = list(values[:8]), list(values[8:])
        for _ in range(many):
            xs = ops.allreduce.sum([ops.tanh(x) * 0.5 for x in xs], meeting)
        return xs

    graph = Graph("deep", layers, [*(on(device, 4) for device in ALL), *signals.input_types()])
    model = InferenceSession().load(graph)
    assert len(model.stages()) == 1
    assert len(graph.nodes) == many * 25 and time.perf_counter() - start < 20
