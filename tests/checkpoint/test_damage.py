"""Any damage to the files of a step is found, and named by file and leaf; other steps stay readable."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

import lamina
from lamina import CheckpointError, DeviceMesh
from tests.strategies import values

VALUE = values((7, 10), "float32")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    tree = {
        "params": {"w": lamina.shard(VALUE, mesh, ["x", "y"]), "b": np.arange(5)},
        "p": lamina.shard(VALUE, mesh, [], partial=["x"]),
        "step": 3,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lamina.checkpoint.leaves.MERGED_BYTES", 0)  # a file for each block, as large leaves have
        for step in (1, 2):
            lamina.save(path, tree, step=step)
    return path


@pytest.fixture
def damaged(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def files(path):
    return sorted(file for file in (path / "step-00000002").rglob("*") if file.is_file() and file.name != "zarr.json")


def leaf_of(file):
    return {"params.w": "params/w", "params.b": "params/b", "p": "p"}[file.parts[file.parts.index("arrays") + 1]]


def check_named(path, file):
    """The load fails and says which file, which leaf and which step still is there."""
    with pytest.raises(CheckpointError) as caught:
        lamina.load(path)
    message = str(caught.value)
    assert message.startswith(f"load('{path}'): ") and str(file) in message, message
    assert any(word in message for word in ("corrupted", "truncated", "missing")), message
    assert message.endswith("\n  fix: load step 1, the latest one beside it"), message
    if file.name != "manifest.json":
        assert f"{leaf_of(file)}: the file " in message, message
    np.testing.assert_array_equal(lamina.load(path, step=1)["params"]["w"], VALUE)


def test_there_is_a_file_for_each_block(saved):
    assert [leaf_of(file) for file in files(saved)[:-1]] == ["p"] * 2 + ["params/b"] + ["params/w"] * 4


@pytest.mark.parametrize("number", range(8))
def test_a_missing_or_shorter_file(damaged, number):
    file = files(damaged)[number]
    content = file.read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 2):
        file.write_bytes(content[:length])
        check_named(damaged, file)
    file.unlink()
    check_named(damaged, file)


def is_as_saved(path):
    found = lamina.load(path)
    np.testing.assert_array_equal(found["params"]["w"], VALUE)
    np.testing.assert_array_equal(found["p"], VALUE)
    return found["step"] == 3 and found["params"]["b"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", range(8))
def test_flipped_bits(damaged, number):
    """Every byte of a tile is under its checksum; in the manifest, some of the space between words isn't."""
    file = files(damaged)[number]
    content = file.read_bytes()
    random.seed(number)
    for position in random.sample(range(len(content)), 12):
        flipped = bytearray(content)
        flipped[position] ^= 1 << random.randrange(8)
        file.write_bytes(flipped)
        try:
            check_named(damaged, file)
        except pytest.fail.Exception:
            assert file.name == "manifest.json" and is_as_saved(damaged)


def test_only_what_is_asked_for_must_be_whole(damaged):
    for file in files(damaged)[:3]:
        file.unlink()
    np.testing.assert_array_equal(lamina.load(damaged, {"params": {"w": VALUE}})["params"]["w"], VALUE)


def test_all_damaged_leaves_are_named(damaged):
    for file in files(damaged)[:-1]:
        file.unlink()
    with pytest.raises(CheckpointError, match=r"(?s)3 leaves:\n  p: .*\n  params/b: .*\n  params/w: .*"):
        lamina.load(damaged)


def test_zarrs_own_metadata_is_not_needed(damaged):
    for file in (damaged / "step-00000002").rglob("zarr.json"):
        file.unlink()
    assert is_as_saved(damaged)


def test_a_format_of_the_future(damaged):
    file = files(damaged)[-1]
    file.write_text(file.read_text().replace('"lamina checkpoint": 1', '"lamina checkpoint": 2'))
    with pytest.raises(CheckpointError, match=r"(?s)manifest.json is in format 2, and this version .* reads format 1"):
        lamina.load(damaged)


@pytest.mark.parametrize(
    ("spec", "runs"),
    [(["x", "y"], 4), ([None, "y"], 4), (["y"], 4), ([None, None], 4), ([("x", "y")], 7)],
)
def test_every_element_is_read_once(saved, monkeypatch, spec, runs):
    """Blocks of 4 and 3 rows and of 5 and 5 columns: what several devices hold is read for all of them."""
    from lamina.checkpoint.arrays import Stored

    read = []
    plain = Stored.read
    monkeypatch.setattr(Stored, "read", lambda self, where: read.append(where) or plain(self, where))
    mesh = DeviceMesh.create((2, 2), ("x", "y"))
    found = lamina.load(saved, {"params": {"w": lamina.NamedMapping(mesh, spec)}})["params"]["w"]
    np.testing.assert_array_equal(found.numpy(), VALUE)
    assert sum((row.stop - row.start) * (column.stop - column.start) for row, column in read) == VALUE.size
    assert len(read) <= runs
