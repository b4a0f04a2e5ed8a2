"""Lamina: sharded tensors for Python.

One algebra says how a tensor lies across a mesh of devices, one planner moves it between any two layouts, and JAX
runs it, from one laptop CPU to a cluster.  This front door only re-exports, and only when a name is asked for: the pure
rooms (`lamina.sharding`, `lamina.planning`) import without JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "lamina.errors": "ConversionError DeviceError LaminaError LayoutError PlanError ProcessError TransformError",
    "lamina.sharding": (
        "CPU Accelerator Device DeviceMapping DeviceMesh Dim DimSpec DistributedBufferType DistributedTensorType "
        "DistributedType NamedMapping P Partial Placement PlacementMapping ReduceOp Replicated Sharded ShardingSpec "
        "SpecEntry SymbolicDim TensorLayout accelerator_count global_shape_from_local local_shard_shape_from_global "
        "shard_shape"
    ),
    "lamina.tensors": "Tensor from_jax from_shards tensor",
    "lamina.engine.processes": "initialize shutdown",
    "lamina.planning": "Topology",
    "lamina.ops": (
        "accelerator all_gather all_reduce all_to_all calibrate cpu distributed_broadcast explain gpu ppermute "
        "reduce_scatter reshard shard to_device transfer_to"
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lamina' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:  # what a type checker and an editor see
    from lamina.errors import *  # noqa: F403
    from lamina.ops import *  # noqa: F403
    from lamina.sharding import *  # noqa: F403
    from lamina.tensors import *  # noqa: F403
