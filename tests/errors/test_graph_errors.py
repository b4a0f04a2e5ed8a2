"""What can be wrong with a graph: said when it is built, when its text is read, and when it is run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import (
    CPU,
    Accelerator,
    DeviceError,
    DeviceMesh,
    DistributedTensorType,
    LayoutError,
    Sharded,
    TransformError,
)
from lamina.errors import SpecSyntaxError
from lamina.graph import (
    Buffer,
    BufferType,
    Dim,
    Graph,
    InferenceSession,
    Signals,
    TensorType,
    distributed,
    ops,
    parse_graph,
)
from tests.errors.catalogue import Mistake, check, table

A, B, C = CPU(0), CPU(1), CPU(2)


def build(what, *kinds):
    """Traces `what(*inputs)`; all inputs are float32[4, 6] on CPU(0), CPU(1), … unless `kinds` says otherwise."""
    given = kinds or [TensorType("float32", (4, 6), CPU(i)) for i in range(3)]
    return lambda _: Graph("g", lambda *xs: [ops.constant(0), what(*xs)][:1], given)


def on(device, *shape, dtype="float32"):
    return TensorType(dtype, shape, device)


def signalled(what, *devices, kinds=()):
    """Likewise, with signal buffers on these devices behind three inputs."""
    inputs = list(kinds) or [on(CPU(i), 4, 6) for i in range(3)]
    return build(lambda *xs: what(list(xs[: len(inputs)]), list(xs[len(inputs) :])), *inputs, *_buffers(devices))


def _buffers(devices):
    return [BufferType("uint8", (1,), device) for device in devices]


@table(
    Mistake(
        "broadcast: the root isn't among the buffers",
        signalled(lambda xs, s: ops.distributed_broadcast(xs[0], s), B, C),
        where="distributed_broadcast: ",
        says="the input is on CPU(0), which is not among the devices of the signal buffers: CPU(1), CPU(2)",
        fix="ops.transfer_to it to one of them, or add that device's signal buffer",
    ),
    Mistake(
        "broadcast: devices not unique",
        signalled(lambda xs, s: ops.distributed_broadcast(xs[0], s), A, B, A),
        where="distributed_broadcast: ",
        says="the signal buffers are not on devices of their own: CPU(0) stands twice",
        fix="use each device once",
    ),
    Mistake(
        "broadcast: one buffer, and elsewhere",
        signalled(lambda xs, s: ops.distributed_broadcast(xs[0], s), B),
        where="distributed_broadcast: ",
        says=["1 signal buffer; a broadcast needs at least 2", "the input is on CPU(0), which is not among"],
        fix="give a signal buffer per device; ops.transfer_to it",
    ),
    Mistake(
        "broadcast: no buffers",
        signalled(lambda xs, s: ops.distributed_broadcast(xs[0], s)),
        where="distributed_broadcast: ",
        says="0 signal buffers; a broadcast needs at least 2",
        fix="give a signal buffer per device",
    ),
    Mistake(
        "broadcast: nothing says to whom",
        build(lambda x, *_: ops.distributed_broadcast(x, None)),
        where="distributed_broadcast(signal_buffers=None): ",
        says="nothing says which devices take part",
        fix="give signal_buffers, or devices=[...]",
    ),
    Mistake(
        "allgather: more inputs than buffers",
        signalled(lambda xs, s: ops.allgather(xs, s), A, B),
        where="allgather: ",
        says="3 inputs and 2 signal buffers",
        fix="give one signal buffer per input, or none at all",
    ),
    Mistake(
        "allgather: the buffers of other devices",
        signalled(lambda xs, s: ops.allgather(xs, s), B, A, C),
        where="allgather: ",
        says=["input 0 is on CPU(0), its signal buffer on CPU(1)", "input 1 is on CPU(1), its signal buffer on CPU(0)"],
        fix="list the signal buffers in the order of the inputs",
    ),
    Mistake(
        "allgather: no inputs",
        build(lambda *_: ops.allgather([])),
        where="allgather: ",
        says="the list of inputs is empty",
        fix="give one input per device",
    ),
    Mistake(
        "allgather: ranks",
        build(lambda x, y: ops.allgather([x, y]), on(A, 4, 6), on(B, 4)),
        where="allgather: ",
        says="input 1 has rank 1, input 0 has rank 2",
        fix="give them one rank",
    ),
    Mistake(
        "allgather: dtypes and other dims, both said",
        build(lambda x, y: ops.allgather([x, y]), on(A, 4, "n"), on(B, 5, "m", dtype="int32")),
        where="allgather: ",
        says=["input 1 is int32, input 0 is float32", "dim 1 is m in input 1 and n in input 0"],
        fix="ops.cast one of them; only the dims along the axis may differ",
    ),
    Mistake(
        "allgather: devices twice",
        build(lambda x, y: ops.allgather([x, y]), on(A, 4, 6), on(A, 4, 6)),
        where="allgather: ",
        says="the inputs are not on devices of their own: CPU(0) stands twice",
        fix="use each device once",
    ),
    Mistake(
        "allgather: axis",
        build(lambda *xs: ops.allgather(xs, axis=-3)),
        where="allgather(axis=-3)",
        says="is out of bounds for a value of rank 2",
        fix="name an axis from -2 to 1",
    ),
    Mistake(
        "allreduce: shapes",
        build(lambda x, y: ops.allreduce.sum([x, y]), on(A, 4, 6), on(B, 4, 5)),
        where="allreduce.sum: ",
        says="dim 1 is 5 in input 1 and 6 in input 0",
        fix="the shapes must be equal",
    ),
    Mistake(
        "allreduce: complex numbers",
        build(lambda x, y: ops.allreduce.max([x, y]), on(A, 4, dtype="complex64"), on(B, 4, dtype="complex64")),
        where="allreduce.max: ",
        says="complex numbers have no order",
        fix="reduce their absolute values",
    ),
    Mistake(
        "reducescatter: axis",
        build(lambda *xs: ops.reducescatter.sum(xs, axis=2)),
        where="reducescatter.sum(axis=2)",
        says="is out of bounds for a value of rank 2",
        fix="name an axis from -2 to 1",
    ),
    Mistake(
        "scatter: chunks and devices",
        build(lambda *xs: ops.distributed_scatter(xs[:2], None, devices=[A, B, C]), *[on(A, 2)] * 2),
        where="distributed_scatter: ",
        says="2 chunks for 3 devices",
        fix="the number of devices is a multiple of the number of chunks",
    ),
    Mistake(
        "scatter: chunks on several devices",
        build(lambda x, y: ops.distributed_scatter([x, y], None, devices=[A, B]), on(A, 2), on(B, 2)),
        where="distributed_scatter: ",
        says="the chunks are on different devices: float32[2] @ CPU(0), float32[2] @ CPU(1)",
        fix="put all chunks on one device, the root",
    ),
    Mistake(
        "shard_and_stack: nothing at all",
        build(lambda *_: ops.shard_and_stack([], [])),
        where="shard_and_stack: ",
        says=["the list of inputs is empty", "the list of devices is empty"],
        fix="give at least one input; name at least one device",
    ),
    Mistake(
        "shard_and_stack: shapes, dtypes",
        build(lambda x, y: ops.shard_and_stack([x, y], [A, B]), on(A, 4, 6), on(A, 4, 8, dtype="int8")),
        where="shard_and_stack: ",
        says=["input 1 is int8, input 0 is float32", "dim 1 is 8 in input 1 and 6 in input 0"],
        fix="the shapes must be equal",
    ),
    Mistake(
        "shard_and_stack: devices",
        build(lambda x, y: ops.shard_and_stack([x, y], [A, B]), on(A, 4), on(B, 4)),
        where="shard_and_stack: ",
        says="the inputs are on different devices: float32[4] @ CPU(0), float32[4] @ CPU(1)",
        fix="ops.transfer_to the others",
    ),
    Mistake(
        "shard_and_stack: not divisible",
        build(lambda x, *_: ops.shard_and_stack([x], [A, B, C], axis=0)),
        where="shard_and_stack(axis=0): ",
        says="4 of [4, 6] is not evenly divisible by 3 devices",
        fix="pad the inputs, or take a number of devices that divides it",
    ),
    Mistake(
        "shard_and_stack: axis",
        build(lambda x, *_: ops.shard_and_stack([x], [A, B], axis=2)),
        where="shard_and_stack(axis=2)",
        says="is out of bounds for a value of rank 2",
        fix="name an axis from -2 to 1",
    ),
)
def test_collectives(mistake):
    check(mistake)


@table(
    Mistake(
        "operands on different devices",
        build(lambda x, y, _: x + y),
        where="add: ",
        says="its operands are on different devices: %0: float32[4, 6] @ CPU(0), %1: float32[4, 6] @ CPU(1)",
        fix="ops.transfer_to(x, CPU(0)) the others first",
    ),
    Mistake(
        "shapes that don't broadcast",
        build(lambda x, y: x * y, on(A, "n", 6), on(A, "m", 6)),
        where="mul: ",
        says="the shapes [n, 6] and [m, 6] don't broadcast: dim -2 is n and m",
        fix="ops.rebind(x, shape) says that two symbolic dims are the same",
    ),
    Mistake(
        "matmul",
        build(lambda x, *_: x @ x),
        where="matmul: ",
        says="the shapes [4, 6] and [4, 6] don't fit: 6 columns, 4 rows",
        fix="transpose one",
    ),
    Mistake(
        "a dtype that an op isn't for",
        build(lambda x: ops.erf(x), on(A, 4, dtype="complex64")),
        where="erf: not for complex64",
        says="",
        fix="ops.cast(x, dtype) first",
    ),
    Mistake(
        "reshape",
        build(lambda x: x.reshape([7]), on(A, "n", 6)),
        where="reshape: ",
        says="[n, 6] has 6*n elements, [7] has 7",
        fix="keep the number of elements",
    ),
    Mistake(
        "reshape with two open dims",
        build(lambda x, *_: x.reshape([-1, -1])),
        where="reshape(shape=(-1, -1)): ",
        says="-1 stands twice",
        fix="leave one dim open at most",
    ),
    Mistake(
        "rebind",
        build(lambda x: x.rebind(["n", 5]), on(A, "k", 6)),
        where="rebind: ",
        says="[k, 6] is not [n, 5]",
        fix="give the dims that the value has",
    ),
    Mistake(
        "broadcast_to",
        build(lambda x, *_: ops.broadcast_to(x, [6, 4, 1])),
        where="broadcast_to: ",
        says="[4, 6] doesn't broadcast to [6, 4, 1]",
        fix="a dim stays, or grows from 1",
    ),
    Mistake(
        "permute",
        build(lambda x, *_: ops.permute(x, [0, 0])),
        where="permute(dims=(0, 0))",
        says="is no order of the 2 dims of [4, 6]",
        fix="name each dim once",
    ),
    Mistake(
        "squeeze",
        build(lambda x, *_: ops.squeeze(x, 1)),
        where="squeeze(axis=1): ",
        says="that dim of [4, 6] is 6, not 1",
        fix="only dims of 1 can go",
    ),
    Mistake(
        "concat",
        build(lambda x, y: ops.concat([x, y], 1), on(A, 4, 6), on(A, 5, 6)),
        where="concat(axis=1): ",
        says="[4, 6] and [5, 6] differ in other dims than that axis",
        fix="only the dim along the axis may differ",
    ),
    Mistake(
        "stack nothing",
        build(lambda *_: ops.stack([])),
        where="stack: ",
        says="the list of values is empty",
        fix="give at least one",
    ),
    Mistake(
        "split",
        build(lambda x: ops.split(x, ["n", 1]), on(A, "n", 6)),
        where="split(axis=0): ",
        says="the sizes ('n', '1') add up to n + 1, not to n",
        fix="give sizes that make up the dim",
    ),
    Mistake(
        "gather by floats",
        build(lambda x, *_: ops.gather(x, x)),
        where="gather: ",
        says="indices are integers, not float32",
        fix="ops.cast(indices, 'int32')",
    ),
    Mistake(
        "an index out of bounds",
        build(lambda x, *_: x[4]),
        where="slice_tensor: ",
        says="index 4 is out of bounds for a dim of 4 in [4, 6]",
        fix="use -4 to 3",
    ),
    Mistake(
        "too many indices",
        build(lambda x, *_: x[0, 0, 0]),
        where="slice_tensor: ",
        says="the index (0, 0, 0) doesn't fit the shape [4, 6]",
        fix="name at most 2 dims",
    ),
    Mistake(
        "a store of another shape",
        build(lambda b: ops.buffer_store(b, np.zeros(3, "float32")), BufferType("float32", (4,), A)),
        where="buffer_store: ",
        says="float32[3] doesn't fit float32[4] of the buffer",
        fix="ops.cast, ops.broadcast_to or ops.rebind the value first",
    ),
    Mistake(
        "a store from another device",
        build(lambda b, x: ops.buffer_store(b, x), BufferType("float32", (4,), A), on(B, 4)),
        where="buffer_store: ",
        says="its operands are on different devices",
        fix="ops.transfer_to",
    ),
    Mistake(
        "local values that make up no tensor",
        build(
            lambda x, y: distributed([x, y], DeviceMesh([A, B], (2,), ("x",)), [Sharded(0)]), on(A, 2, 3), on(B, 5, 3)
        ),
        says="the local shapes [(2, 3), (5, 3)] are not those of any tensor",
        fix=None,
    ),
    Mistake(
        "local values of other devices",
        build(lambda x, y, _: distributed([y, x], DeviceMesh([A, B], (2,), ("x",)), [Sharded(0)])),
        where="distributed(values): ",
        says="they are on [CPU(1), CPU(0)], not as DeviceMesh(",
        fix="give one value per position of the mesh, row-major",
    ),
    Mistake(
        "a buffer where a value is meant",
        build(lambda b: b + 1 if False else ops.exp(b), BufferType("float32", (4,), A)),
        error=TypeError,
        where="exp: ",
        says="%0: float32[4] @ CPU(0) is a buffer; ops.buffer_load(buffer) is its value",
        fix=None,
    ),
    Mistake(
        "a value where a buffer is meant",
        build(lambda x, *_: ops.buffer_load(x)),
        error=TypeError,
        where="buffer_load: ",
        says="%0: float32[4, 6] @ CPU(0) is no buffer",
        fix=None,
    ),
    Mistake(
        "a truth value",
        build(lambda x, *_: bool(x > 0)),
        error=TypeError,
        says="is a value of a graph: it has no truth value until the graph runs; see ops.where",
        fix=None,
    ),
    Mistake(
        "no device",
        build(lambda x, *_: x.to("cuda:0")),
        error=TypeError,
        where="transfer_to(device) must be a device such as DeviceRef.CPU(0)",
        says="not 'cuda:0'",
        fix=None,
    ),
)
def test_ops(mistake):
    check(mistake)


def _elsewhere(_):
    other = Graph("other", lambda x: x, [on(A, 4)])
    Graph("g", lambda x: x + other.outputs[0], [on(A, 4)])


def _after_the_end(_):
    with Graph("g", input_types=[on(A, 4)]) as graph:
        graph.output(graph.inputs[0])
        ops.exp(graph.inputs[0])


def _without_an_end(_):
    with Graph("g", input_types=[on(A, 4)]) as graph:
        ops.exp(graph.inputs[0])


def _twice(_):
    with Graph("g", input_types=[on(A, 4)]) as graph:
        graph.output()
        graph.output()


@table(
    Mistake(
        "a value of another graph",
        _elsewhere,
        where="add: ",
        says="%0: float32[4] @ CPU(0) belongs to graph 'other', not to 'g'",
        fix="pass it in as an input",
    ),
    Mistake(
        "an op after the output",
        _after_the_end,
        where="graph 'g' is finished",
        says="",
        fix="call output(...) after the last op",
    ),
    Mistake(
        "no output", _without_an_end, where="graph 'g' has no output", says="", fix="call graph.output(...) as the last"
    ),
    Mistake("two outputs", _twice, where="graph 'g' has an output already", says="", fix="call output(...) once"),
    Mistake(
        "no graph",
        lambda _: ops.constant(1),
        where="there is no current graph",
        says="",
        fix="call ops inside of `with Graph(...) as graph:`",
    ),
    Mistake(
        "an input that is no type",
        lambda _: Graph("g", [np.float32]),
        error=TypeError,
        where="Graph(input_types[0]) must be a TensorType, a BufferType or a distributed type, not ",
        says="float32",
        fix=None,
    ),
    Mistake(
        "an abstract mesh",
        lambda _: Graph("g", [DistributedTensorType("float32", (4,), DeviceMesh.abstract((2,), ("x",)), [Sharded(0)])]),
        where="Graph(input_types[0]): ",
        says="float32[2] has no device",
        fix="name one: an abstract mesh has none",
    ),
    Mistake(
        "signals twice",
        lambda _: Signals([A, A]),
        where="Signals(devices=[CPU(0), CPU(0)]): ",
        says="a device stands twice",
        fix="name each once",
    ),
    Mistake(
        "a session without the graph's devices",
        lambda _: InferenceSession([A]).load(Graph("g", lambda x: x.to(B), [on(A, 4)])),
        where="load(graph): ",
        says="it uses CPU(1), the session has CPU(0)",
        fix="InferenceSession(devices) with all of them, or without any",
    ),
    Mistake(
        "a graph for devices that aren't there",
        lambda _: InferenceSession().load(Graph("g", lambda x: x, [on(CPU(99), 4)])),
        error=DeviceError,
        where="CPU(99): ",
        says="there is no such device, only CPU(0)..CPU(7)",
        fix="jax_num_cpu_devices",
    ),
)
def test_graphs(mistake):
    check(mistake)


# -- the order of collectives -----------------------------------------------------------------------------------------


def _two_orders(xs, signals):
    ops.allreduce.sum(xs, signals)
    ops.allgather(xs[::-1], signals[::-1])


TWO = [on(A, 4), on(B, 4)]
DEADLOCK = """
graph g(%0: float32[4] @ CPU(0), %1: float32[4] @ CPU(1), %2: buffer uint8[1] @ CPU(0), %3: buffer uint8[1] @ CPU(1)) {
  %4, %5 = allreduce.sum(%0, %1; %2#0, %3#1) : float32[4] @ CPU(0), float32[4] @ CPU(1)
  %6, %7 = allreduce.max(%0, %1; %2#1, %3#0) : float32[4] @ CPU(0), float32[4] @ CPU(1)
  output(%4, %7)
}
"""


@table(
    Mistake(
        "the same buffers under other ranks",
        signalled(_two_orders, A, B, kinds=TWO),
        where="allgather lists the signal buffers %3, %2 in another order than allreduce.sum before it, %2, %3",
        says="each device would meet the others under another rank",
        fix="list them as %2, %3, or take buffers of their own",
    ),
    Mistake(
        "a deadlock, as a text can say it",
        lambda _: parse_graph(DEADLOCK),
        where="line 4 (allreduce.max): ",
        says=[
            "two collectives use the same signal buffers in different order on different devices",
            "allreduce.sum of %4, %5 takes turns 0 on %2, 1 on %3",
            "allreduce.max of %6, %7 takes turns 1 on %2, 0 on %3",
        ],
        fix="let every device take its turns in one order, or give each collective its own buffers",
    ),
    Mistake(
        "one turn taken twice",
        lambda _: parse_graph(DEADLOCK.replace("%2#1, %3#0", "%2#0, %3#0")),
        where="line 4 (allreduce.max): ",
        says="allreduce.sum and allreduce.max both take turn 0 on %2",
        fix="number the turns on each buffer 0, 1, 2, …",
    ),
)
def test_the_order_of_collectives(mistake):
    check(mistake)


def test_a_chain_of_groups_in_one_order_is_fine():
    """Turns that interleave over three buffers, and a later first turn, are no deadlock."""
    text = DEADLOCK.replace("%2#0, %3#1", "%2#1, %3#1").replace("%2#1, %3#0", "%2#0, %3#0", 1)
    assert "%2#0, %3#0" in text
    graph = parse_graph(text)
    assert [node.turns for node in graph.nodes] == [(1, 1), (0, 0)]


def test_a_failed_op_leaves_the_graph_as_it_was():
    with Graph("g", input_types=[*TWO, *_buffers([A, B])]) as graph:
        x, y, s, t = graph.inputs
        first = ops.allreduce.sum([x, y], [s, t])
        before = str(graph)
        for wrong in (
            lambda: ops.allgather([y, x], [t, s]),
            lambda: ops.matmul(x, y.to(A)[:3]),
            lambda: ops.distributed_broadcast(x, [t]),
        ):
            with pytest.raises(LayoutError):
                wrong()
        added = str(graph).splitlines()
        assert before.splitlines()[:-1] == added[: len(before.splitlines()) - 1]
        assert all("transfer_to" in line or "slice_tensor" in line for line in added[len(before.splitlines()) - 1 : -1])
        graph.output(*first)
    found = (
        InferenceSession().load(graph).execute(np.ones(4, "float32"), np.ones(4, "float32"), *Signals([A, B]).buffers())
    )
    assert found[1].tolist() == [2.0] * 4


# -- running ----------------------------------------------------------------------------------------------------------


def model(what, *kinds):
    return InferenceSession().load(Graph("g", what, kinds))


MESH = DeviceMesh([A, B], (2,), ("x",))
ROWS = DistributedTensorType("float32", ("n", 4), MESH, [Sharded(0)])


@table(
    Mistake(
        "too few inputs",
        lambda _: model(lambda x, y: x, on(A, 4), on(B, "n"))(np.zeros(4, "float32")),
        where="execute(g): ",
        says="1 inputs are missing: float32[n] @ CPU(1)",
        fix="the inputs are float32[4] @ CPU(0), float32[n] @ CPU(1)",
    ),
    Mistake(
        "too many inputs",
        lambda _: model(lambda x: x, on(A, 4))(np.zeros(4, "float32"), 1),
        where="execute(g): ",
        says="2 inputs were given, the graph takes 1",
        fix="the inputs are float32[4] @ CPU(0)",
    ),
    Mistake(
        "shape and dtype, of both inputs",
        lambda _: model(lambda x, y: x, on(A, 4), on(B, 4))(np.zeros(5, "float32"), np.zeros(4, "int32")),
        where="execute(g): ",
        says=["input 0 has shape (5,), the graph takes [4]", "input 1 is int32, the graph takes float32[4] @ CPU(1)"],
        fix="give it the sizes of the input type; cast it to float32",
    ),
    Mistake(
        "rank",
        lambda _: model(lambda x: x, on(A, "n"))(np.zeros((2, 2), "float32")),
        where="execute(g): ",
        says="input 0 has shape (2, 2), the graph takes [n]",
        fix="give it the rank of the input type",
    ),
    Mistake(
        "one name, two sizes",
        lambda _: model(lambda x, y: x, on(A, "n"), on(B, "n"))(np.zeros(2, "float32"), np.zeros(3, "float32")),
        where="execute(g): ",
        says="input 1 has shape (3,) for [n], but n is 2 elsewhere",
        fix="give every dim called n one size",
    ),
    Mistake(
        "a size that doesn't follow",
        lambda _: model(lambda x, y: x, on(A, "n"), on(B, Dim("n") + 1))(
            np.zeros(2, "float32"), np.zeros(2, "float32")
        ),
        where="execute(g): ",
        says="an input of shape (2,) for [n + 1], where n + 1 is 3",
        fix="give it the sizes of the input type",
    ),
    Mistake(
        "a size that nothing says",
        lambda _: model(lambda xs: list(xs), ROWS)([np.zeros((2, 4), "float32")] * 2),
        where="execute(g): ",
        says="nothing says how large (n + 1) // 2 is, of float32[(n + 1) // 2, 4] @ CPU(0)",
        fix="pass the Tensor itself",
    ),
    Mistake(
        "a Tensor that lies otherwise",
        lambda _: model(lambda xs: list(xs), ROWS)(lamina.shard(np.zeros((4, 4), "float32"), MESH, [None, "x"])),
        where="execute(g): ",
        says="and the Tensor lies as [x=2] -,x",
        fix="lamina.shard(x, mesh, [['x'], None]) it first",
    ),
    Mistake(
        "a Tensor on more devices than inputs",
        lambda _: model(lambda x: x, on(A, "n", 4))(lamina.shard(np.zeros((4, 4), "float32"), MESH, ["x"])),
        where="execute(g): ",
        says="input 0 is a Tensor on 2 devices, for 1 inputs",
        fix="lamina.to_device(x, device) it",
    ),
    Mistake(
        "an array for a buffer",
        lambda _: model(lambda b: b[...], BufferType("float32", (4,), A))(jnp.zeros(4)),
        where="execute(g): ",
        says="input 0 is the buffer float32[4] @ CPU(0), not ",
        fix="pass a lamina.graph.Buffer(x, device) or a writable numpy array, or call model.functional(...)",
    ),
    Mistake(
        "a slice that is longer than the value now",
        lambda _: model(lambda x: x[:4] + 1, on(A, "n"))(np.zeros(3, "float32")),
        where="slice_tensor with n=3: ",
        says="the result was to be [4], but it is [3]",
        fix="run the graph with sizes that fit",
    ),
    Mistake(
        "a rebind that doesn't hold",
        lambda _: model(lambda x: x.rebind(["n", Dim("n") * 2]), on(A, "n", "m"))(np.zeros((3, 5), "float32")),
        where="rebind with m=5, n=3: ",
        says="[3, 5] is not [3, 6]",
        fix="give the dims that the value has",
    ),
)
def test_running(mistake):
    check(mistake)


def test_a_buffer_inside_of_jit():
    counter = model(lambda b, x: ops.buffer_store(b, x) or x, BufferType("float32", (4,), A), on(A, 4))
    with pytest.raises(TransformError, match="can't be updated inside of jax.jit(?s:.)*model.functional"):
        jax.jit(lambda x: counter(Buffer(np.zeros(4, "float32")), x)[0].jax())(jnp.ones(4))


@pytest.mark.parametrize(("text", "fact"), [
    ("graph g() {", "expected the name of an op"),
    ("graph g(%0: float32[4] @ TPU(0)) {}", "expected a device, CPU(i) or Accelerator(i)"),
    ("graph g() { %0 = nonsense() : float32[] @ CPU(0)\n}", "there is no op 'nonsense'"),
    ("graph g() { %1 = exp(%0) : float32[] @ CPU(0)\n}", "%0 is not there yet"),
    ("graph g() { %0 = constant() {value=open('x')} : float32[] @ CPU(0)\n}", "are no attributes"),
    ("graph g() { output() } and more", "did not expect anything after the graph"),
    ("graph g(%0: float32[4 @ CPU(0)) {}", "expected ']'"),
])  # fmt: skip
def test_texts_that_can_not_be_read(text, fact):
    with pytest.raises(SpecSyntaxError) as caught:
        parse_graph(text)
    assert fact in str(caught.value) and "column" in str(caught.value)
    assert "^" in caught.value.pointer()


@table(
    Mistake(
        "a text whose results aren't those of the op",
        lambda _: parse_graph(
            "graph g(%0: float32[4] @ CPU(0)) {\n  %1 = exp(%0) : float32[5] @ CPU(0)\n  output(%1)\n}"
        ),
        where="line 2 (exp): ",
        says="its results are %1: float32[4] @ CPU(0), not %1: float32[5] @ CPU(0)",
        fix="write what the op makes of its operands",
    ),
    Mistake(
        "a text with a function of its own",
        lambda _: parse_graph(str(Graph("g", lambda x: ops.call(jnp.sort, x), [on(A, 4)]))),
        where="parse_graph: ",
        says="the text names 'sort#0', which is not among the functions []",
        fix="parse_graph(text, functions=graph.functions)",
    ),
    Mistake(
        "a text with data of its own",
        lambda _: parse_graph(str(Graph("g", lambda x: x + np.zeros((10, 10), "float32"), [on(A, 10)]))),
        where="parse_graph: ",
        says="the text names 'c0', which is not among the constants []",
        fix="parse_graph(text, constants=graph.constants)",
    ),
)
def test_texts(mistake):
    check(mistake)


def test_an_accelerator_that_is_not_there():
    if lamina.accelerator_count():
        pytest.skip("there is one")
    with pytest.raises(DeviceError, match="this process sees no accelerator"):
        InferenceSession().load(Graph("g", lambda x: x, [on(Accelerator(0), 4)]))
