"""What models communicate: the collectives of the lowered programs, forward and backward, and their bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest

import lamina
from tests.engine.stablehlo import counted, received

DP, TP = 2, 4
BATCH, LENGTH, WIDTH, HIDDEN = 8, 16, 32, 64
FLOAT = 4


def mesh() -> lamina.DeviceMesh:
    return lamina.DeviceMesh.create((DP, TP), ("dp", "tp"))


def ones(specs: Any, *shape: int) -> lamina.Tensor:
    return lamina.shard(np.ones(shape, "float32"), mesh(), specs)


def moved(function: Callable[..., Any], *operands: Any) -> tuple[dict[str, int], dict[str, float]]:
    text = jax.jit(function).lower(*operands).as_text()
    return dict(counted(text)), received(text)


def there_and_back(function: Callable[..., Any]) -> Callable[..., Any]:
    """The result, and the operands' gradients from its cotangent."""

    def run(cotangent: Any, *operands: Any) -> tuple[Any, Any]:
        result, back = jax.vjp(function, *operands)
        return result, back(cotangent)

    return run


def less(more: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    left = {kind: more.get(kind, 0) - part.get(kind, 0) for kind in {*more, *part}}
    return {kind: count for kind, count in left.items() if count}


def both_ways(function: Callable[..., Any], *operands: Any) -> tuple[tuple, tuple]:
    """What the forward pass moves, and what the backward pass moves beside it."""
    ahead = moved(function, *operands)
    total = moved(there_and_back(function), jax.eval_shape(function, *operands), *operands)
    return ahead, (less(total[0], ahead[0]), less(total[1], ahead[1]))


def mlp(x: Any, up: Any, down: Any) -> Any:
    return lamina.shard(lamina.gelu(x @ up) @ down, mesh(), ["dp"])


def sequence_mlp(x: Any, up: Any, down: Any) -> Any:
    hidden = lamina.gelu(lamina.matmul(x, up, out_sharding=["dp", None, "tp"]))
    return lamina.matmul(hidden, down, out_sharding=["dp", "tp"])


WEIGHTS = [([None, "tp"], WIDTH, HIDDEN), (["tp"], HIDDEN, WIDTH)]
STREAM = BATCH // DP * LENGTH * WIDTH * FLOAT  # the bytes of the activations of one dp group


def test_tensor_parallel_mlp_reduces_once_each_way():
    x, weights = ones(["dp"], BATCH, LENGTH, WIDTH), [ones(*weight) for weight in WEIGHTS]
    ahead, back = both_ways(lambda x: mlp(x, *weights), x)
    once = {"all_reduce": 1}, {"all_reduce": 2 * STREAM * (TP - 1) / TP}
    assert ahead == once
    assert back == once


def test_gradients_of_its_weights_are_reduced_over_the_batch_only():
    x, weights = ones(["dp"], BATCH, LENGTH, WIDTH), [ones(*weight) for weight in WEIGHTS]
    _, back = both_ways(lambda up, down: mlp(x, up, down), *weights)
    assert back == ({"all_reduce": 2}, {"all_reduce": 2 * 2 * (WIDTH * HIDDEN // TP * FLOAT) * (DP - 1) / DP})


def test_sequence_parallel_mlp_gathers_and_scatters_once_each_way():
    x, weights = ones(["dp", "tp"], BATCH, LENGTH, WIDTH), [ones(*weight) for weight in WEIGHTS]
    ahead, back = both_ways(lambda x: sequence_mlp(x, *weights), x)
    part = STREAM * (TP - 1) / TP
    once = {"all_gather": 1, "reduce_scatter": 1}, {"all_gather": part, "reduce_scatter": part}
    assert ahead == once
    assert back == once


def test_fully_sharded_weights_are_gathered_and_their_gradients_scattered():
    everywhere = [("dp", "tp")]
    x = ones(everywhere, 64 * BATCH, WIDTH)
    weights = ones(everywhere, WIDTH, HIDDEN), ones(everywhere, HIDDEN, WIDTH)
    ahead, back = both_ways(lambda up, down: lamina.gelu(x @ up) @ down, *weights)
    part = 2 * WIDTH * HIDDEN * FLOAT * (DP * TP - 1) / (DP * TP)
    assert ahead == ({"all_gather": 2}, {"all_gather": part})
    assert back == ({"reduce_scatter": 2}, {"reduce_scatter": part})


def test_attention_with_split_heads_moves_nothing():
    q, k, v = (ones(["dp", None, "tp"], BATCH, LENGTH, TP, 8) for _ in range(3))
    ahead, back = both_ways(lambda q, k, v: lamina.attention(q, k, v, causal=True), q, k, v)
    assert ahead == back == ({}, {})


def test_attention_with_split_queries_gathers_keys_and_values_only():
    q = ones([None, "tp"], 1, LENGTH, 1, 8)  # neither batch nor heads to split instead
    ahead, back = both_ways(lambda q, k, v: lamina.attention(q, k, v, causal=True), q, q, q)
    part = 2 * (LENGTH * 8 * FLOAT) * (TP - 1) / TP
    assert ahead == ({"all_gather": 2}, {"all_gather": part})
    assert back == ({"reduce_scatter": 2}, {"reduce_scatter": part})


def test_attention_with_a_split_sequence_and_enough_heads_exchanges_them():
    q = ones(["dp", "tp"], BATCH, LENGTH, TP, 8)
    (kinds, total), _ = both_ways(lambda q, k, v: lamina.attention(q, k, v, causal=True), q, q, q)
    assert kinds == {"all_to_all": 3}
    assert total == {"all_to_all": 3 * (BATCH // DP * LENGTH * 8 * FLOAT) * (TP - 1) / TP}


ROWS = BATCH // DP * LENGTH * FLOAT * 2 * (TP - 1) / TP  # a number per row, all-reduced


@pytest.mark.parametrize(
    ("op", "ahead", "back"),
    [
        (lamina.softmax, 2, 1),
        (lamina.log_softmax, 2, 1),
        (lamina.rms_norm, 1, 1),
        (lamina.layer_norm, 2, 2),
        (partial(lamina.logsumexp, axis=-1), 2, 0),
    ],
)
def test_over_a_split_dim_only_reduced_results_move(op, ahead, back):
    x = ones(["dp", None, "tp"], BATCH, LENGTH, WIDTH)
    there, again = both_ways(op, x)
    assert there == ({"all_reduce": ahead}, {"all_reduce": ahead * ROWS})
    assert again == (({"all_reduce": back}, {"all_reduce": back * ROWS}) if back else ({}, {}))


def test_cross_entropy_of_a_split_vocabulary_moves_a_maximum_and_two_sums():
    logits = ones(["dp", None, "tp"], BATCH, LENGTH, WIDTH)
    labels = lamina.shard(np.zeros((BATCH, LENGTH), "int32"), mesh(), ["dp"])
    loss = partial(lamina.softmax_cross_entropy_with_integer_labels, labels=labels)
    ahead, back = both_ways(loss, logits)
    assert ahead == ({"all_reduce": 2}, {"all_reduce": 3 * ROWS})
    assert back == ({}, {})


def test_looking_up_in_a_split_vocabulary_moves_looked_up_rows_once():
    table = ones(["tp"], 370, WIDTH)
    ids = lamina.shard(np.zeros((BATCH, LENGTH), "int32"), mesh(), ["dp"])
    ahead, _ = both_ways(lambda table: lamina.embedding(table, ids, out_sharding=["dp", "tp"]), table)
    assert ahead == ({"reduce_scatter": 1}, {"reduce_scatter": STREAM * (TP - 1) / TP})
