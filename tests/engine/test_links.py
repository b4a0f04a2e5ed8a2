"""Which links a plan reckons with, and what `calibrate` measures."""

from __future__ import annotations

import numpy as np
import pytest

import lamina
from lamina.engine.links import default_links
from lamina.errors import LayoutError
from lamina.planning import Link, Topology

MESH = lamina.DeviceMesh.create((2, 4), ("dp", "tp"))


@pytest.fixture
def fresh_links():
    default_links.cache_clear()
    yield
    default_links.cache_clear()


def test_what_is_measured_is_positive_and_saved(tmp_path):
    links = lamina.calibrate(MESH, tmp_path / "links.json")
    assert set(links.axes) == {"dp", "tp"}
    assert all(0 < link.latency < 10 and 1e3 < link.bandwidth < 1e15 for link in [links.default, *links.axes.values()])
    assert links.copy > 1e3
    assert Topology.load(tmp_path / "links.json") == links
    plan = lamina.explain(lamina.shard(np.ones(8), MESH, ["dp"]), MESH, ["tp"], topology=links)
    assert plan.links is links and plan.time > 0


@pytest.mark.parametrize(
    "mesh", [lamina.DeviceMesh.simulated((2,), ("x",)), lamina.DeviceMesh.abstract((2,), ("x",))], ids=str
)
def test_where_nothing_is_sent_there_is_nothing_to_measure(mesh):
    with pytest.raises(LayoutError) as error:
        lamina.calibrate(mesh)
    assert str(error.value) == (
        f"calibrate(mesh={mesh!r}): between these positions nothing is sent, so there is nothing to measure\n"
        "  fix: give a mesh over several real devices"
    )


def test_virtual_cpu_devices_have_links_of_their_own(fresh_links):
    assert default_links(MESH).name == "cpu"
    assert default_links(lamina.DeviceMesh.simulated((2,), ("x",))).only_bytes


def test_the_environment_may_name_others(fresh_links, monkeypatch, tmp_path):
    monkeypatch.setenv("LAMINA_TOPOLOGY", "h100")
    assert default_links(MESH).name == "h100"
    default_links.cache_clear()
    Topology("mine", Link(1.0, 2.0)).save(tmp_path / "mine.json")
    monkeypatch.setenv("LAMINA_TOPOLOGY", str(tmp_path / "mine.json"))
    assert default_links(MESH).name == "mine"
