"""`save(..., wait=False)`: the values of the moment of the call, whatever happens to them afterwards."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lamina
from lamina import CheckpointError, DeviceMesh
from lamina.checkpoint.arrays import Stored


@pytest.fixture
def gate(monkeypatch):
    """Nothing is written until the gate is opened."""
    opened = threading.Event()
    plain = Stored.write

    def write(self, where, block):
        assert opened.wait(60)
        return plain(self, where, block)

    monkeypatch.setattr(Stored, "write", write)
    yield opened
    opened.set()


def test_donated_deleted_and_overwritten_values_do_no_harm(tmp_path, gate):
    mesh = DeviceMesh.create((2, 4), ("dp", "tp"))
    big = np.arange(4096.0, dtype="float32").reshape(64, 64)
    tree = {
        "donated": lamina.shard(big, mesh, ["dp", "tp"]),
        "jitted": jnp.asarray(big),
        "deleted": jax.device_put(big, jax.devices()[3]),
        "uneven": lamina.shard(big[:7], mesh, ["tp"]),
        "host": big.copy(),
    }
    saving = lamina.save(tmp_path, tree, wait=False)
    lamina.shard(tree["donated"], mesh, ["tp", "dp"], donate=True)
    for name in ("jitted", "deleted"):
        jax.jit(lambda x: x * 0 - 1, donate_argnums=0)(tree[name]).block_until_ready()
    tree["deleted"].delete() if not tree["deleted"].is_deleted() else None
    del tree["uneven"]
    tree["host"][:] = -1
    assert not saving.done and lamina.latest(tmp_path) is None
    gate.set()
    assert saving.wait() == saving.path and saving.done
    found = lamina.load(tmp_path)
    for name, expected in {**dict.fromkeys(("donated", "jitted", "deleted", "host"), big), "uneven": big[:7]}.items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_the_call_does_not_wait_for_the_disk(tmp_path, gate):
    saving = lamina.save(tmp_path, {"a": np.ones(3)}, step=4, wait=False)
    assert repr(saving) == f"Saving(step 4, being written, '{tmp_path}/step-00000004')"
    gate.set()
    saving.wait()
    assert repr(saving) == f"Saving(step 4, written, '{tmp_path}/step-00000004')"


def failing(monkeypatch):
    def full(*_):
        raise ValueError("RESOURCE_EXHAUSTED: No space left on device")

    monkeypatch.setattr(Stored, "write", full)


def test_a_failure_comes_out_of_wait_each_time(tmp_path, monkeypatch):
    failing(monkeypatch)
    saving = lamina.save(tmp_path, {"a": np.ones(3)}, wait=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="No space left"):
            saving.wait()
    assert repr(saving).startswith("Saving(step 0, failed, ") and lamina.latest(tmp_path) is None


def test_a_failure_that_nobody_heard_of_is_told_by_the_next_save(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch)
        lamina.save(tmp_path, {"a": np.ones(3)}, wait=False)._thread.join()
    with pytest.warns(RuntimeWarning, match=r"Saving\(step 0, failed, .* nobody waited for it: .*No space left"):
        lamina.save(tmp_path, {"a": np.ones(3)})
    assert lamina.latest(tmp_path) == 0


def test_what_is_wrong_with_the_tree_is_said_at_once(tmp_path):
    with pytest.raises(CheckpointError, match="a: <object"):
        lamina.save(tmp_path, {"a": object()}, wait=False)


def test_saves_follow_each_other(tmp_path):
    savings = [lamina.save(tmp_path, {"a": np.full(3, step)}, keep=2, wait=False) for step in range(5)]
    assert [saving.wait().name for saving in savings][-1] == "step-00000004"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_a_program_that_ends_finishes_its_save(tmp_path):
    import os
    import subprocess
    import sys
    from pathlib import Path

    code = "import lamina, numpy, sys; lamina.save(sys.argv[1], {'a': numpy.ones(1000)}, wait=False)"
    source = str(Path(lamina.__file__).parent.parent)
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": source}, check=True)
    np.testing.assert_array_equal(lamina.load(tmp_path)["a"], np.ones(1000))
