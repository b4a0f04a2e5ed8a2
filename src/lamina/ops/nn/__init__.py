"""What neural networks are made of, on Tensors of any layout.

Where what an op looks at together (the dim that softmax normalises) is not split, it is one kernel, plain JAX on each
device's blocks.  Where it is, only reduced results move: a maximum and a sum per row.
"""

from lamina.ops.nn import attending, normalisation, unstacking, vocabulary
from lamina.ops.nn.attending import attention
from lamina.ops.nn.normalisation import layer_norm, log_softmax, rms_norm, softmax
from lamina.ops.nn.unstacking import unstack
from lamina.ops.nn.vocabulary import embedding, softmax_cross_entropy_with_integer_labels

KERNELS = {**normalisation.KERNELS, **attending.KERNELS, **vocabulary.KERNELS, **unstacking.KERNELS}

__all__ = [
    "attention",
    "embedding",
    "layer_norm",
    "log_softmax",
    "rms_norm",
    "softmax",
    "softmax_cross_entropy_with_integer_labels",
    "unstack",
]
