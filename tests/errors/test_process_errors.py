"""What the errors of joining and of reading across processes say; those between processes are in tests/processes."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import lamina
from lamina import DeviceMesh, NamedMapping


@pytest.fixture
def mapping() -> NamedMapping:
    return NamedMapping(DeviceMesh.create((4,), ("x",)), ["x"])


def message(error: type[Exception], call, *arguments, **keywords) -> str:
    with pytest.raises(error) as caught:
        call(*arguments, **keywords)
    return str(caught.value)


def test_the_backend_was_used_already():
    jax.devices()
    said = message(lamina.ProcessError, lamina.initialize, "127.0.0.1:1234", 2, 0)
    assert said == (
        "initialize(): JAX's devices were used already, so no other processes can join them\n"
        "  fix: call lamina.initialize before anything that needs a device: jax.devices(), jnp.ones, "
        "DeviceMesh.create, …"
    )


def test_half_of_what_is_needed(monkeypatch):
    said = message(lamina.ProcessError, lamina.initialize, coordinator="node0:1234")
    assert said == (
        "initialize(): not given and not found: num_processes, process_id\n"
        "  fix: give them as arguments, or set LAMINA_PROCESSES, LAMINA_PROCESS"
    )


def test_a_callback_that_returns_another_part(mapping):
    said = message(lamina.LayoutError, lamina.from_callback, (8,), mapping, lambda part: np.zeros(3))
    assert said == (
        "from_callback(callback): callback((slice(0, 2, None),)) returned shape (3,), not (2,)\n"
        "  fix: return just the part that the slices say"
    )


def test_a_part_that_is_not_this_processs(mapping):
    said = message(lamina.LayoutError, lamina.from_local, np.zeros(3), mapping, (8,))
    assert said == (
        "from_local(part, mapping, shape): part has shape (3,); this process's is [0:8] of (8,), which has shape (8,)\n"
        f"  mapping: {mapping}\n"
        "  fix: give just what the devices of this process hold"
    )


def test_no_mapping():
    said = message(TypeError, lamina.from_local, np.zeros(3), "x", (3,))
    assert said == "from_local(mapping) must be a lamina DeviceMapping such as NamedMapping, not 'x'"


def test_parts_make_the_tensor(mapping):
    value = np.arange(10.0, dtype="float32")
    assert lamina.from_local(value, mapping, (10,)).tolist() == value.tolist()
    asked = []

    def read(part):
        asked.append(part)
        return value[part]

    t = lamina.from_callback((10,), mapping, read)
    assert t.tolist() == value.tolist() and t.layout.dims == (("x",),)
    assert [part[0].indices(10)[:2] for part in asked] == [(0, 3), (3, 6), (6, 8), (8, 10)]  # each block once
    copies = lamina.from_callback((10,), NamedMapping(mapping.mesh, [None]), read, dtype="int32")
    assert copies.dtype == "int32" and len(asked) == 5  # all devices hold one block
    simulated = NamedMapping(DeviceMesh.simulated((3,), ("x",)), ["x"])
    assert lamina.from_callback((10,), simulated, read).tolist() == value.tolist()
    partial = NamedMapping(mapping.mesh, [None], unreduced=["x"])
    assert lamina.from_callback((10,), partial, read).numpy().tolist() == value.tolist()
