"""What a layout IS: devices, meshes, placements, specs, shapes and types.  Standard library only."""

from lamina.errors import ConversionError
from lamina.sharding.devices import CPU, Accelerator, Device, accelerator_count
from lamina.sharding.dims import AlgebraicDim, Dim, SymbolicDim
from lamina.sharding.layout import Layout
from lamina.sharding.mappings import DeviceMapping, NamedMapping, PlacementMapping, ShardingSpec, parse_mapping
from lamina.sharding.mesh import DeviceMesh
from lamina.sharding.placements import Partial, Placement, ReduceOp, Replicated, Sharded
from lamina.sharding.shapes import global_shape_from_local, local_shard_shape_from_global, shard_shape
from lamina.sharding.specs import DimSpec, P, SpecEntry
from lamina.sharding.tensor_layout import TensorLayout
from lamina.sharding.text import parse_layout, parse_mesh, parse_spec
from lamina.sharding.types import BufferType, DistributedBufferType, DistributedTensorType, DistributedType, TensorType

__all__ = [
    "CPU",
    "Accelerator",
    "AlgebraicDim",
    "BufferType",
    "ConversionError",
    "Device",
    "DeviceMapping",
    "DeviceMesh",
    "Dim",
    "DimSpec",
    "DistributedBufferType",
    "DistributedTensorType",
    "DistributedType",
    "Layout",
    "NamedMapping",
    "P",
    "Partial",
    "Placement",
    "PlacementMapping",
    "ReduceOp",
    "Replicated",
    "Sharded",
    "ShardingSpec",
    "SpecEntry",
    "SymbolicDim",
    "TensorLayout",
    "TensorType",
    "accelerator_count",
    "global_shape_from_local",
    "local_shard_shape_from_global",
    "parse_layout",
    "parse_mapping",
    "parse_mesh",
    "parse_spec",
    "shard_shape",
]
