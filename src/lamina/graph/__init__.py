"""Graphs of values on devices: every value names its device, every step between devices is an op.

The other way to write a program for several devices.  With Tensors one says how a value lies over a mesh and Lamina
finds the communication; here one writes what each device does, and the communication, oneself: MAX's graphs, on any
devices that JAX has, with gradients.

A graph goes through five stages, each a noun with a file; the verbs lead from one to the next:

=============  =====================  ===============================================================================
stage          file                   what it is
=============  =====================  ===============================================================================
`Graph`        graph nodes values     nodes over typed values; grows by `ops`, checked as it grows; prints itself as
               ordering arguments     text (`text`, read back by `reader`) and as a picture (`picture`)
`Lowered`      lower                  instructions over static values: symbols bound, buffers turned into values
stages         stages                 what is one program and what moves: `Segment`, `Region`, `Move`
programs       programs held          the same compiled: a jitted function on a device, one under `shard_map` over
                                      all devices that work in lock-step, transfers from device to device
`Executable`   session binding        inputs in, programs started one after the other without waiting, Tensors out
               results buffers
=============  =====================  ===============================================================================

`ops/` has one file per kind of op: a rule of types, the JAX function, a thin function for users, one table.  What a
collective means is said once, by who sends which part to whom and what is made of the parts; that all devices can often
do it at once with a collective of the machine is its second, faster form, tested against the first.

Three ways to run, one meaning: eagerly as programs on devices; the same under `jax.grad` and `jax.vmap`; and inside of
`jax.jit`, where the graph is one function of traced arrays, spread over the mesh if Tensors on it come in.
"""

from lamina.graph import ops
from lamina.graph.buffers import Buffer
from lamina.graph.devices import DeviceRef
from lamina.graph.graph import Graph, distributed
from lamina.graph.reader import parse_graph
from lamina.graph.session import InferenceSession, Model
from lamina.graph.signals import Signals
from lamina.graph.stages import Move, Region, Segment
from lamina.graph.values import BufferValue, DistributedValue, TensorValue, Value
from lamina.sharding import BufferType, Dim, SymbolicDim, TensorType
from lamina.sharding.shape import Shape

__all__ = [
    "Buffer",
    "BufferType",
    "BufferValue",
    "DeviceRef",
    "Dim",
    "DistributedValue",
    "Graph",
    "InferenceSession",
    "Model",
    "Move",
    "Region",
    "Segment",
    "Shape",
    "Signals",
    "SymbolicDim",
    "TensorType",
    "TensorValue",
    "Value",
    "distributed",
    "ops",
    "parse_graph",
]
