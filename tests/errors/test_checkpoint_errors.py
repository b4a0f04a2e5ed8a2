"""What can be wrong with a call of `save`, `load` and `latest`."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest

import lamina
from lamina import CheckpointError, DimSpec, NamedMapping, TensorLayout, load, save
from tests.errors.catalogue import Mistake, check, table, the_world


@pytest.fixture(scope="module", autouse=True)
def run(tmp_path_factory):
    """The checkpoint that the mistakes are made with: two steps in `run` below the working directory."""
    world, _ = the_world()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("checkpoints"))
        tree = {
            "w": world.both,
            "layers": [world.rows, world.uneven],
            "key": jax.random.key(0),
            "step": 3,
            "n": np.arange(4),
        }
        for step in (3, 5):
            save("run", tree, step=step)
        yield


@table(
    Mistake(
        "leaves that are no numbers",
        lambda w: save("new", {"a": object(), "b": np.array(["x"]), "ok": 1, "c": [np.array([None])]}),
        error=CheckpointError,
        where="save('new'): 3 leaves:\n  a: <object object at ",
        says=["b: dtype('<U1') is not a dtype that Lamina knows", "c/0: dtype('O') is not a dtype that Lamina knows"],
        fix="a leaf may be a Tensor, an array of numbers, a random key, or a Python bool, int, float, complex or str",
    ),
    Mistake(
        "a traced value",
        lambda w: jax.jit(lambda x: save("new", {"w": x}).step)(w.both),
        error=CheckpointError,
        where="save('new'): w: a traced value has no numbers yet; save outside of jax.jit, jax.grad and jax.vmap",
        says="",
    ),
    Mistake(
        "a step that is there",
        lambda w: save("run", {}, step=3),
        error=CheckpointError,
        where="save('run'): step 3 is there already: ",
        says="run/step-00000003",
        fix="save another step, or delete that folder first",
    ),
    Mistake(
        "a negative step",
        lambda w: save("run", {}, step=-1),
        error=CheckpointError,
        where="save(step=-1): steps count from 0",
        says="",
    ),
    Mistake(
        "a step that is no integer",
        lambda w: save("run", {}, step=1.0),
        error=TypeError,
        where="save(step) must be an integer, not 1.0",
        says="",
        fix=None,
    ),
    Mistake(
        "keep nothing",
        lambda w: save("run", {}, keep=0),
        error=TypeError,
        where="save(keep) must be how many steps to keep (>= 1), a function from the steps to those to keep, or None ",
        says="not 0",
        fix=None,
    ),
    Mistake(
        "a file for a directory",
        lambda w: save(__file__, {}),
        error=CheckpointError,
        says="test_checkpoint_errors.py' is a file",
        fix="name a directory; it may be a new one",
    ),
)
def test_save(mistake):
    check(mistake)
    assert lamina.latest("new") is None and lamina.latest("run") == 5


@table(
    Mistake(
        "no such directory",
        lambda w: load("elsewhere"),
        error=CheckpointError,
        where="load('elsewhere'): '",
        says="elsewhere': there is no such directory",
        fix="lamina.save('",
    ),
    Mistake(
        "no checkpoint in it",
        lambda w: load("/"),
        error=CheckpointError,
        where="load('/'): '/': there is no checkpoint in it",
        says="",
    ),
    Mistake(
        "no such step",
        lambda w: load("run", step=4),
        error=CheckpointError,
        where="load('run'): '",
        says="run' has no step 4, only 3, 5",
        fix="name one of these, or none for the latest",
    ),
    Mistake(
        "another shape and dtype, each leaf named, with its layout",
        lambda w: load(
            "run", {"w": w.even, "layers": [lamina.shard(np.zeros((8, 8), int), w.mesh, ["tp"]), np.ones(10)]}
        ),
        error=CheckpointError,
        where="load('run'): 3 leaves:\n",
        says=[
            "\n  layers/0: asked for int32[8,8] as [dp=2,tp=4] tp,-, but saved is float32[8,8] as [dp=2,tp=4] dp,-\n",
            "\n  layers/1: asked for float64[10], a numpy array, but saved is float32[10] as [x=4] x\n",
            "\n  w: asked for float32[8] as [x=4] x, but saved is float32[8,8] as [dp=2,tp=4] dp,tp\n",
        ],
        fix="ask for the shape and the dtype that were saved, and change them afterwards",
    ),
    Mistake(
        "names that were not saved",
        lambda w: load("run", {"W": w.both, "layer": [w.rows], "step": 0}),
        error=CheckpointError,
        where="load('run'): 2 leaves:\n",
        says=["\n  W was not saved; there is ", "\n  layer/0 was not saved; there is layers/0, layers/1"],
        fix="ask by the names of what was saved; load(path) shows all",
    ),
    Mistake(
        "a mapping of more dims than a leaf below it has",
        lambda w: load("run", {"layers": w.split(w.mesh, "dp", "tp")}),
        error=CheckpointError,
        where="load('run'): layers/1: ",
        says="the spec [dp=2,tp=4] dp,tp has 2 entries for a tensor of rank 1",
    ),
    Mistake(
        "a mapping that isn't resolved",
        lambda w: load("run", {"w": NamedMapping(w.mesh, [DimSpec("dp", is_open=True)])}),
        error=CheckpointError,
        where="load('run'): w: NamedMapping('[dp=2,tp=4] dp?') leaves dims open or to propagation",
        says="",
        fix="close its dims",
    ),
    Mistake(
        "a layout of another shape",
        lambda w: load("run", {"w": TensorLayout("float32", (8, 4), w.split(w.mesh, "dp"))}),
        error=CheckpointError,
        where="load('run'): w: asked for float32[8,4] as [dp=2,tp=4] dp,-, but saved is float32[8,8] as ",
        says="",
    ),
    Mistake(
        "a mesh that has no devices",
        lambda w: load("run", {"w": w.split(w.abstract, "dp")}),
        error=CheckpointError,
        where="load('run'): w: ",
        says="DeviceMesh([dp=2,tp=4], abstract) has no devices: it can be planned for, but can't hold a tensor",
    ),
    Mistake(
        "numbers of another kind",
        lambda w: load("run", {"step": 1.5, "n": 3, "key": np.zeros(2, "uint32")}),
        error=CheckpointError,
        where="load('run'): 3 leaves:\n",
        says=[
            "\n  step: asked for a Python float, but saved is int 3\n",
            "\n  n: asked for a Python int, but saved is int64[4], a numpy array\n",
            "\n  key: asked for uint32[2], a numpy array, but saved is uint32[2], a random key\n",
        ],
    ),
    Mistake(
        "random keys of another generator",
        lambda w: load("run", {"key": jax.random.key(0, impl="rbg")}),
        error=CheckpointError,
        where="load('run'): key: asked for key<rbg>[], but saved is uint32[2], a random key",
        says="",
    ),
    Mistake(
        "something to load into that is no place",
        lambda w: load("run", {"w": object}),
        error=CheckpointError,
        where="load('run'): w: can't be loaded into <class 'object'> of type type: ask for a Tensor, a mapping,",
        says="",
        fix=None,
    ),
)
def test_load(mistake):
    check(mistake)


@pytest.mark.parametrize("call", [lambda: save("new", {}), lambda: load("run")])
def test_without_tensorstore_it_says_what_to_install(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(
        CheckpointError, match=r"(?s)^(save|load): .*tensorstore.*\n  fix: pip install 'lamina\[checkpoint\]'$"
    ):
        call()


def test_latest_needs_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    assert lamina.latest("run") == 5 and lamina.latest("elsewhere") is None
