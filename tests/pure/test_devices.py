"""Devices are plain values: naming one asks nothing of the machine."""

from __future__ import annotations

import pickle
import re

import pytest

from lamina.errors import LayoutError
from lamina.sharding import CPU, Accelerator, Device


@pytest.mark.parametrize("kind", [CPU, Accelerator])
def test_a_device_is_its_kind_and_its_id(kind):
    assert kind() == kind(0) == kind(id=0)
    assert hash(kind(3)) == hash(kind(3))
    assert kind(1) != kind(2)
    assert isinstance(kind(), Device)
    assert len({kind(0), kind(0), kind(1)}) == 2


def test_kinds_differ():
    assert CPU(0) != Accelerator(0)
    assert len({CPU(0), Accelerator(0)}) == 2


def test_repr_is_the_call_that_makes_it():
    for device in (CPU(0), CPU(7), Accelerator(12)):
        assert eval(repr(device)) == device


@pytest.mark.parametrize("kind", [CPU, Accelerator])
@pytest.mark.parametrize("bad", [-1, "0", 1.0, True, None])
def test_the_id_is_an_integer_from_0(kind, bad):
    expected = f"{kind.__name__}(id={bad!r}): the id must be an integer >= 0"
    with pytest.raises(LayoutError, match=f"^{re.escape(expected)}$"):
        kind(bad)


def test_any_integer_type_will_do():
    numpy = pytest.importorskip("numpy")
    assert CPU(numpy.int64(1)) == CPU(1)
    assert type(CPU(numpy.int64(1)).id) is int


@pytest.mark.parametrize("device", [CPU(3), Accelerator(1)])
def test_a_value(device):
    assert pickle.loads(pickle.dumps(device)) == device
    with pytest.raises(AttributeError):
        device.id = 5
    with pytest.raises(AttributeError):
        del device.id
    with pytest.raises((AttributeError, TypeError)):
        device.other = 5
