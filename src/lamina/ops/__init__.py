"""Thin user verbs: each turns its arguments into storages, and lets the engine do it."""

from lamina.engine.calibration import calibrate
from lamina.ops import elementwise as _elementwise
from lamina.ops import getitem as _getitem
from lamina.ops import indexing as _indexing
from lamina.ops import joining as _joining
from lamina.ops import linalg as _linalg
from lamina.ops import movement as _movement
from lamina.ops import nn as _nn
from lamina.ops import random as random
from lamina.ops import rearranging as _rearranging
from lamina.ops import reduction as _reduction
from lamina.ops import scans as _scans
from lamina.ops import sorting as _sorting
from lamina.ops.applying import apply
from lamina.ops.elementwise import *  # noqa: F403
from lamina.ops.explaining import explain
from lamina.ops.gather import all_gather, all_to_all, distributed_broadcast
from lamina.ops.getitem import *  # noqa: F403
from lamina.ops.getitem import getitem  # noqa: F401  # behind x[...]
from lamina.ops.implicit import on_reshard
from lamina.ops.indexing import *  # noqa: F403
from lamina.ops.inferring import infer
from lamina.ops.joining import *  # noqa: F403
from lamina.ops.linalg import *  # noqa: F403
from lamina.ops.local import here, spmd
from lamina.ops.movement import *  # noqa: F403
from lamina.ops.nn import *  # noqa: F403
from lamina.ops.permute import ppermute
from lamina.ops.rearranging import *  # noqa: F403
from lamina.ops.reduce import all_reduce, reduce_scatter
from lamina.ops.reduction import *  # noqa: F403
from lamina.ops.scans import *  # noqa: F403
from lamina.ops.shard import reshard, shard
from lamina.ops.sorting import *  # noqa: F403
from lamina.ops.transfer import accelerator, cpu, gpu, to_device, transfer_to
from lamina.ops.updates import At  # noqa: F401  # behind x.at

__all__ = [
    "accelerator",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "apply",
    "calibrate",
    "cpu",
    "distributed_broadcast",
    "explain",
    "gpu",
    "here",
    "infer",
    "on_reshard",
    "ppermute",
    "random",
    "reduce_scatter",
    "reshard",
    "shard",
    "spmd",
    "to_device",
    "transfer_to",
    *_elementwise.__all__,
    *_linalg.__all__,
    *_nn.__all__,
    *_getitem.__all__,
    *_indexing.__all__,
    *_joining.__all__,
    *_movement.__all__,
    *_rearranging.__all__,
    *_reduction.__all__,
    *_scans.__all__,
    *_sorting.__all__,
]
