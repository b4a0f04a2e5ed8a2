"""The ops of graphs: `OPS` says what each means, the functions of the same names add them to a graph.

Devices to devices: `distributed_broadcast transfer_to allgather shard_and_stack distributed_scatter`,
`allreduce.sum/max/min`, `reducescatter.sum`.  On one device: arithmetic and comparison, `matmul`, reductions (which
keep their axis as a dim of 1), movement, `cast`, `constant`, `call` for any JAX function, and buffers.
"""

from __future__ import annotations

from lamina.graph.nodes import Op
from lamina.graph.ops import algebra, allreduce, buffers, collectives, elementwise, movement, reducescatter, sources
from lamina.graph.ops.algebra import (  # noqa: F401
    argmax,
    argmin,
    cumsum,
    logsoftmax,
    matmul,
    mean,
    prod,
    reduce_max,
    reduce_min,
    softmax,
    sum,
)  # fmt: skip
from lamina.graph.ops.buffers import (  # noqa: F401
    buffer_load,
    buffer_store,
    buffer_store_slice,
)  # fmt: skip
from lamina.graph.ops.collectives import (  # noqa: F401
    allgather,
    distributed_broadcast,
    distributed_scatter,
    shard_and_stack,
    transfer_to,
)  # fmt: skip
from lamina.graph.ops.elementwise import (  # noqa: F401
    abs,
    add,
    cast,
    ceil,
    cos,
    div,
    equal,
    erf,
    exp,
    expm1,
    floor,
    floordiv,
    gelu,
    greater,
    greater_equal,
    is_inf,
    is_nan,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    max,
    min,
    mod,
    mul,
    negate,
    not_equal,
    pow,
    relu,
    round,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sqrt,
    sub,
    tanh,
    trunc,
    where,
)  # fmt: skip
from lamina.graph.ops.movement import (  # noqa: F401
    broadcast_to,
    concat,
    gather,
    permute,
    rebind,
    reshape,
    slice_tensor,
    split,
    squeeze,
    stack,
    transpose,
    unsqueeze,
)  # fmt: skip
from lamina.graph.ops.sources import (  # noqa: F401
    call,
    constant,
    shape_of,
)  # fmt: skip

_ROOMS = (elementwise, algebra, movement, sources, buffers, collectives)

OPS: dict[str, Op] = {name: rule for room in _ROOMS for name, rule in room.RULES.items()}

__all__ = ["OPS", "allreduce", "reducescatter"]
__all__ += [function.__name__ for room in _ROOMS for function in room.FUNCTIONS]
