"""Every op has a row."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

import lamina.ops
from tests.ops.table import TABLE


def compute_modules() -> list[ModuleType]:
    """The modules of lamina.ops whose ops compute: those with kernels."""
    found = [import_module(f"lamina.ops.{module.name}") for module in pkgutil.iter_modules(lamina.ops.__path__)]
    return [module for module in found if "KERNELS" in vars(module)]


@pytest.mark.parametrize("module", compute_modules(), ids=lambda module: module.__name__)
def test_every_op_has_a_row(module: ModuleType) -> None:
    missing = set(module.__all__) - {row.name for row in TABLE}
    assert not missing, f"{module.__name__}: add rows for {sorted(missing)} (see tests/ops/table.py)"


def test_rows_are_told_apart() -> None:
    names = [str(row) for row in TABLE]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
