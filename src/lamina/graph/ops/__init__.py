"""The ops of graphs: `OPS` says what each means, the functions of the same names add them to a graph.

Devices to devices: `distributed_broadcast transfer_to allgather shard_and_stack distributed_scatter`,
`allreduce.sum/max/min`, `reducescatter.sum`.  On one device: arithmetic and comparison, `matmul`, reductions (which
keep their axis as a dim of 1), movement, `cast`, `constant`, `call` for any JAX function, and buffers.
"""

from __future__ import annotations

from typing import Any

from lamina.graph.nodes import Op
from lamina.graph.ops import algebra, allreduce, buffers, collectives, elementwise, movement, reducescatter, sources

_ROOMS = (elementwise, algebra, movement, sources, buffers, collectives)

OPS: dict[str, Op] = {name: rule for room in _ROOMS for name, rule in room.RULES.items()}
FUNCTIONS: dict[str, Any] = {name: function for room in _ROOMS for name, function in room.FUNCTIONS.items()}

globals().update(FUNCTIONS)
__all__ = ["OPS", "allreduce", "reducescatter", *FUNCTIONS]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"lamina.graph.ops has no op {name!r}; there are {', '.join(sorted(FUNCTIONS))}")
