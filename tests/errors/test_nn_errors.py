"""What can be wrong with the ops of networks, and with `out_sharding`."""

from __future__ import annotations

import numpy as np

import lamina
from tests.errors.catalogue import Mistake, check, table

Q = np.ones((2, 4, 3, 8), "float32")


@table(
    Mistake(
        "a scale that is larger than x",
        lambda w: lamina.rms_norm(w.rows, np.ones((3, 8, 8), "float32")),
        where="rms_norm: ",
        says="shapes (8, 8) and (3, 8, 8): the result would be larger than x",
        shows="operand 0: [8, 8] lying as [dp=2,tp=4] dp,-",
        fix="a scale or bias must broadcast to x",
    ),
    Mistake(
        "a dim that isn't there",
        lambda w: lamina.softmax(w.rows, axis=2),
        where="softmax(axis=2): ",
        says="axis=2 is out of range for a tensor of rank 2",
        fix="name a dim from -2 to 1",
    ),
    Mistake(
        "heads that can't be shared",
        lambda w: lamina.attention(Q, Q[:, :, :2], Q[:, :, :2]),
        where="attention: ",
        says="3 heads of q can't share 2 heads of k evenly",
        fix="q needs a multiple of k's heads",
    ),
    Mistake(
        "keys of other channels, and values of another length",
        lambda w: lamina.attention(Q, Q[..., :4], Q[:, :3, :, :4]),
        where="attention: ",
        says=["q (2, 4, 3, 8) and k (2, 4, 3, 4) differ in batch or channels", "have different shapes"],
    ),
    Mistake(
        "queries of another rank",
        lambda w: lamina.attention(Q[0, 0], Q, Q),
        where="attention: ",
        says="q (3, 8) and k (2, 4, 3, 8) must both be of rank 3 or 4",
        fix="dims are (batch, length, heads, channels), the batch may be left out",
    ),
    Mistake(
        "a mask of numbers",
        lambda w: lamina.attention(Q, Q, Q, mask=np.ones((4, 4))),
        where="attention(mask)",
        says="must be of bools, True where a query may see a key, not float64",
        fix="compare: mask > 0",
    ),
    Mistake(
        "a mask that doesn't fit",
        lambda w: lamina.attention(Q, Q, Q, mask=np.ones((4, 5), bool)),
        where="attention: ",
        says="mask (4, 5) doesn't broadcast to (2, 3, 4, 4)",
        fix="its dims are (…, heads, q, k)",
    ),
    Mistake(
        "ids that are no integers",
        lambda w: lamina.embedding(w.rows, np.ones(3, "float32")),
        where="embedding(ids)",
        says="must be integers, not float32",
        fix="cast them: x.astype('int32')",
    ),
    Mistake(
        "a label too few",
        lambda w: lamina.softmax_cross_entropy_with_integer_labels(w.both, np.ones(7, "int32")),
        where="softmax_cross_entropy",
        says="labels of shape (7,) don't fit logits of shape (8, 8)",
        shows="[8, 8] lying as [dp=2,tp=4] dp,tp",
        fix="there must be one label per run along dim 1: (8,)",
    ),
    Mistake(
        "an out_sharding with an unknown axis",
        lambda w: lamina.matmul(w.rows, w.rows, out_sharding=["x"]),
        where="matmul(out_sharding=['x']): ",
        says="'x' is not an axis",
        shows="[dp=2,tp=4]",
        fix="one entry per dim",
    ),
    Mistake(
        "an out_sharding on another mesh",
        lambda w: lamina.matmul(w.rows, w.rows, out_sharding=w.split(w.four, "x")),
        where="matmul: ",
        says="out_sharding=NamedMapping('[x=4] x') is on another mesh than the operands",
        fix="give a mapping on their mesh, or dim specs",
    ),
)
def test_mistakes(mistake):
    check(mistake)
