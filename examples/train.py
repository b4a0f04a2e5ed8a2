"""Train a small transformer, character by character, on Python's own reference manual.

    python examples/train.py                                  on the first accelerator, or the CPU
    python examples/train.py --mesh dp=2,tp=4                 over 8 devices: 2 groups share the batch, 4 the weights
    python examples/train.py --mesh dp=2,tp=4 --simulated     the same numbers from one device
    python examples/train.py --checkpoint run                 goes on where it stopped, on this mesh or another
    lamina launch -n 2 examples/train.py --mesh dp=2          in two processes

The model is written once, for whole tensors. `LAYOUTS` says how each weight lies, `STREAM` how what flows between the
layers does, and that is all there is to parallelism here: data parallel over `dp`, tensor and sequence parallel over
`tp`. The loss is the same, to rounding, on every mesh.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod
from pydoc_data.topics import topics  # 460 KB of English about Python that every Python has
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import lamina

Weights = dict[str, Any]
State = dict[str, Any]

# How each weight lies: one entry per dim. A dim that doesn't divide (characters, say) is split all the same.
LAYOUTS = {
    # weight           dims                             lies
    "characters":      ["tp", None],                  # character × width
    "positions":       ["tp", None],                  # position × width
    "attention_norm":  [None],                        # width
    "qkv":             [None, None, "tp", None],      # which × width × head × channel
    "out":             ["tp", None, None],            # head × channel × width
    "mlp_norm":        [None],                        # width
    "up":              [None, "tp"],                  # width × hidden
    "down":            ["tp", None],                  # hidden × width
    "final_norm":      [None],                        # width
    "logits":          [None, "tp"],                  # width × character
}  # fmt: skip
STREAM = ["dp", "tp", None]  # batch × position × width between layers: norms run on a part of the sequence


@dataclass(frozen=True)
class Config:
    """The size of the model, and how it is trained."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    hidden: int = 512
    length: int = 128
    batch: int = 16
    rate: float = 1e-3
    warmup: int = 20
    decay: float = 0.01


# -- the model --------------------------------------------------------------------------------------------------------


def loss_of(weights: Weights, text: Any) -> jax.Array:
    """The mean cross entropy of each next character. `text` is batch × (length + 1)."""
    given, wanted = text
    x = lamina.embedding(weights["characters"], given, out_sharding=STREAM) + weights["positions"]
    for layer in weights["layers"]:
        x = block(x, layer)
    x = lamina.rms_norm(x, weights["final_norm"])
    logits = lamina.matmul(x, weights["logits"], out_sharding=["dp", None, "tp"])
    loss = lamina.mean(lamina.softmax_cross_entropy_with_integer_labels(logits, wanted))
    return lamina.shard(loss, loss.mesh, []).jax()


def block(x: lamina.Tensor, layer: Weights) -> lamina.Tensor:
    """Attention, then an MLP, each after a norm and added to the stream.

    The two `out_sharding`s of each are all that moves: the normed stream is gathered over `tp`, and the sums over heads
    and hidden are scattered back.
    """
    normed = lamina.rms_norm(x, layer["attention_norm"])
    qkv = lamina.einsum("btd,cdhk->cbthk", normed, layer["qkv"], out_sharding=[None, "dp", None, "tp"])
    seen = lamina.attention(*lamina.unstack(qkv), causal=True)
    x = x + lamina.einsum("bthk,hkd->btd", seen, layer["out"], out_sharding=STREAM)
    normed = lamina.rms_norm(x, layer["mlp_norm"])
    hidden = lamina.gelu(lamina.matmul(normed, layer["up"], out_sharding=["dp", None, "tp"]))
    return x + lamina.matmul(hidden, layer["down"], out_sharding=STREAM)


def initial(config: Config, characters: int, mesh: lamina.DeviceMesh, seed: int = 0) -> Weights:
    """The weights at the start, the same on every mesh, each where `LAYOUTS` says."""
    rng = np.random.default_rng(seed)
    width, channel = config.width, config.width // config.heads

    def weight(name: str, *shape: int, scale: float | None = None) -> lamina.Tensor:
        value = np.ones(shape) if scale is None else rng.normal(0, scale, shape)
        return lamina.shard(value.astype(np.float32), mesh, LAYOUTS[name])

    def layer() -> Weights:
        return {
            "attention_norm": weight("attention_norm", width),
            "qkv": weight("qkv", 3, width, config.heads, channel, scale=width**-0.5),
            "out": weight("out", config.heads, channel, width, scale=(2 * config.layers * width) ** -0.5),
            "mlp_norm": weight("mlp_norm", width),
            "up": weight("up", width, config.hidden, scale=width**-0.5),
            "down": weight("down", config.hidden, width, scale=(2 * config.layers * config.hidden) ** -0.5),
        }

    return {
        "characters": weight("characters", characters, width, scale=0.02),
        "positions": weight("positions", config.length, width, scale=0.02),
        "layers": [layer() for _ in range(config.layers)],
        "final_norm": weight("final_norm", width),
        "logits": weight("logits", width, characters, scale=width**-0.5),
    }


# -- training ---------------------------------------------------------------------------------------------------------


def started(weights: Weights) -> State:
    """Weights, and for each a mean and a mean square of its gradients, which lie as it does."""
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return {
        "step": np.zeros((), np.int32),
        "weights": weights,
        "mean": zeros,
        "square": jax.tree.map(jnp.copy, zeros),
    }


def stepper(config: Config) -> Callable[[State, Any], tuple[State, jax.Array]]:
    """One step of AdamW: `state, loss = step(state, text)`, one program, which reuses the state's memory."""

    @partial(jax.jit, donate_argnums=0)
    def step(state: State, text: Any) -> tuple[State, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(state["weights"], text)
        count = state["step"] + 1
        rate = config.rate * jnp.minimum(1, count / config.warmup)
        # Leaf by leaf, on what each device holds: nothing moves.
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, state["square"], gradients)

        def moved(w: Any, m: Any, s: Any) -> Any:
            direction = m / (1 - 0.9**count) / (jnp.sqrt(s / (1 - 0.99**count)) + 1e-8)
            return w - rate * (direction + config.decay * w)

        weights = jax.tree.map(moved, state["weights"], mean, square)
        return {"step": count, "weights": weights, "mean": mean, "square": square}, loss

    return step


def encoded() -> tuple[np.ndarray, str]:
    """The text as numbers, and the characters that they stand for."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    characters = "".join(sorted(set(text)))
    table = {character: number for number, character in enumerate(characters)}
    return np.array([table[character] for character in text], np.int32), characters


def batches(text: np.ndarray, config: Config, mesh: lamina.DeviceMesh, first: int = 0) -> Iterator[Any]:
    """Pieces of the text and the same one further, from step `first` on; each step's are the same in every run."""
    for step in range(first, 1 << 30):
        rng = np.random.default_rng([7, step])
        starts = rng.integers(0, len(text) - config.length, config.batch)
        pieces = np.stack([text[start : start + config.length + 1] for start in starts])
        yield lamina.shard((pieces[:, :-1], pieces[:, 1:]), mesh, ["dp"])


# -- the command ------------------------------------------------------------------------------------------------------


def mesh_of(sizes: dict[str, int], simulated: bool) -> lamina.DeviceMesh:
    """The devices that the command line asks for; CPUs are split into as many as it takes."""
    shape, names = tuple(sizes.values()), tuple(sizes)
    if simulated:
        device = lamina.Accelerator(0) if lamina.accelerator_count() else lamina.CPU(0)
        return lamina.DeviceMesh.simulated(shape, names, device)
    lamina.initialize()  # joins the other processes, if `lamina launch` has started some
    if not jax.distributed.is_initialized():
        jax.config.update("jax_num_cpu_devices", prod(shape))
    return lamina.DeviceMesh.create(shape, names)


def axes(text: str) -> dict[str, int]:
    """`dp=2,tp=4` as a dict."""
    sizes = {"dp": 1, "tp": 1}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if name not in sizes or not size.isdecimal() or not int(size):
            raise argparse.ArgumentTypeError(f"{part!r} is not dp=N or tp=N")
        sizes[name] = int(size)
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mesh", type=axes, default="dp=1,tp=1", metavar="dp=N,tp=N", help="how many devices")
    parser.add_argument("--simulated", action="store_true", help="one device plays all of them")
    parser.add_argument("--steps", type=int, default=200, help="until when to train (default 200)")
    parser.add_argument("--checkpoint", metavar="DIR", help="save there, and go on from what is there")
    parser.add_argument("--every", type=int, default=50, metavar="N", help="steps between two checkpoints (default 50)")
    arguments = parser.parse_args()

    config, mesh = Config(), mesh_of(arguments.mesh, arguments.simulated)
    text, characters = encoded()
    state = started(initial(config, len(characters), mesh))
    if arguments.checkpoint and lamina.latest(arguments.checkpoint) is not None:
        state = lamina.load(arguments.checkpoint, state)  # each device reads its own blocks
    first, silent = int(state["step"]), jax.process_index() > 0
    if not silent:
        print(f"{weight_count(state):,} weights on {mesh!r}; {len(text):,} characters; from step {first}")
    with Progress(*COLUMNS, TimeRemainingColumn(), console=Console(quiet=silent)) as progress:
        run(state, text, config, mesh, arguments, progress)


COLUMNS = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[says]}")


def run(state: State, text: np.ndarray, config: Config, mesh: Any, arguments: Any, progress: Progress) -> None:
    first, step = int(state["step"]), stepper(config)
    bar = progress.add_task("training", total=arguments.steps, completed=first, says="compiling")
    began, saved = time.perf_counter(), first
    for number, batch in zip(range(first, arguments.steps), batches(text, config, mesh, first), strict=False):
        state, loss = step(state, batch)
        says = f"loss {float(loss):.3f}"
        if number == first:
            began = time.perf_counter()  # compiled now
        else:
            rate = (number - first) * config.batch * config.length / (time.perf_counter() - began)
            says += f"  {rate:,.0f} tokens/s"
        progress.update(bar, advance=1, says=says)
        if arguments.checkpoint and (number + 1 in (saved + arguments.every, arguments.steps)):
            saved = number + 1
            lamina.save(arguments.checkpoint, state, step=saved, keep=2, wait=saved == arguments.steps)


def weight_count(state: State) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(state["weights"], is_leaf=lambda x: isinstance(x, lamina.Tensor)))


if __name__ == "__main__":
    main()
