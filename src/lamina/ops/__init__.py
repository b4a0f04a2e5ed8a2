"""Thin user verbs: each turns its arguments into storages, and lets the engine do it."""

from lamina.engine.calibration import calibrate
from lamina.ops import elementwise as _elementwise
from lamina.ops import linalg as _linalg
from lamina.ops import reduction as _reduction
from lamina.ops.elementwise import *  # noqa: F403
from lamina.ops.explain import explain
from lamina.ops.gather import all_gather, all_to_all, distributed_broadcast
from lamina.ops.implicit import on_reshard
from lamina.ops.linalg import *  # noqa: F403
from lamina.ops.permute import ppermute
from lamina.ops.reduce import all_reduce, reduce_scatter
from lamina.ops.reduction import *  # noqa: F403
from lamina.ops.shard import reshard, shard
from lamina.ops.transfer import accelerator, cpu, gpu, to_device, transfer_to

__all__ = [
    "accelerator",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "calibrate",
    "cpu",
    "distributed_broadcast",
    "explain",
    "gpu",
    "on_reshard",
    "ppermute",
    "reduce_scatter",
    "reshard",
    "shard",
    "to_device",
    "transfer_to",
    *_elementwise.__all__,
    *_linalg.__all__,
    *_reduction.__all__,
]
