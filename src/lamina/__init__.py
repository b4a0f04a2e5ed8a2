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
    "lamina.errors": (
        "CheckpointError ConversionError DeviceError ImplicitReshard LaminaError LayoutError PlanError ProcessError "
        "ReshardError TransformError"
    ),
    "lamina.sharding": (
        "CPU Accelerator Device DeviceMapping DeviceMesh Dim DimSpec DistributedBufferType DistributedTensorType "
        "DistributedType NamedMapping P Partial Placement PlacementMapping ReduceOp Replicated Sharded ShardingSpec "
        "SpecEntry SymbolicDim TensorLayout accelerator_count global_shape_from_local local_shard_shape_from_global "
        "shard_shape"
    ),
    "lamina.tensors": "Tensor from_jax from_shards tensor",
    "lamina.engine.processes": "initialize shutdown",
    "lamina.planning": "Topology",
    "lamina.checkpoint": "latest load save",
    "lamina.ops": (
        "accelerator all_gather all_reduce all_to_all calibrate cpu distributed_broadcast explain gpu on_reshard "
        "infer ppermute random reduce_scatter reshard shard to_device transfer_to"
    ),
    "lamina.ops.elementwise": (
        "absolute add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh astype bitwise_and "
        "bitwise_or bitwise_xor cbrt ceil clip conjugate copysign cos cosh divide equal erf exp exp2 expm1 "
        "float_power floor floor_divide fmax fmin fmod gelu greater greater_equal hypot imag invert isfinite "
        "isinf isnan left_shift less less_equal log log10 log1p log2 log_sigmoid logaddexp logical_and "
        "logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive power real "
        "reciprocal relu remainder right_shift rint rsqrt sigmoid sign signbit silu sin sinh softplus sqrt "
        "square subtract tan tanh trunc where"
    ),
    "lamina.ops.applying": "apply",
    "lamina.ops.local": "here spmd",
    "lamina.ops.linalg": "dot einsum matmul outer tensordot",
    "lamina.ops.parts": "from_callback from_local",
    "lamina.ops.nn": (
        "attention embedding layer_norm log_softmax rms_norm softmax softmax_cross_entropy_with_integer_labels unstack"
    ),
    "lamina.ops.getitem": "nonzero",
    "lamina.ops.indexing": "dynamic_update_slice one_hot take take_along_axis",
    "lamina.ops.joining": "array_split concatenate split",
    "lamina.ops.movement": (
        "broadcast_to expand_dims matrix_transpose moveaxis ravel reshape squeeze stack swapaxes transpose tril triu"
    ),
    "lamina.ops.rearranging": "diff flip pad repeat roll tile",
    "lamina.ops.reduction": "all any argmax argmin logsumexp max mean min prod std sum var",
    "lamina.ops.scans": "cummax cummin cumprod cumsum",
    "lamina.ops.sorting": "argsort searchsorted sort top_k",
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
    from lamina.checkpoint import *  # noqa: F403
    from lamina.engine.processes import initialize as initialize
    from lamina.engine.processes import shutdown as shutdown
    from lamina.errors import *  # noqa: F403
    from lamina.ops import *  # noqa: F403
    from lamina.ops.applying import *  # noqa: F403
    from lamina.ops.elementwise import *  # noqa: F403
    from lamina.ops.getitem import *  # noqa: F403
    from lamina.ops.indexing import *  # noqa: F403
    from lamina.ops.joining import *  # noqa: F403
    from lamina.ops.linalg import *  # noqa: F403
    from lamina.ops.local import *  # noqa: F403
    from lamina.ops.movement import *  # noqa: F403
    from lamina.ops.nn import *  # noqa: F403
    from lamina.ops.parts import from_callback as from_callback
    from lamina.ops.parts import from_local as from_local
    from lamina.ops.rearranging import *  # noqa: F403
    from lamina.ops.reduction import *  # noqa: F403
    from lamina.ops.scans import *  # noqa: F403
    from lamina.ops.sorting import *  # noqa: F403
    from lamina.planning import Topology as Topology
    from lamina.sharding import *  # noqa: F403
    from lamina.tensors import *  # noqa: F403
