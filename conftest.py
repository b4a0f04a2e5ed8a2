"""Settings of the whole suite: the devices, the hypothesis profiles, and which exhaustive cases run."""

import contextlib
import os
import zlib

import pytest
from hypothesis import HealthCheck, settings

VIRTUAL_DEVICES = 8


def use_virtual_cpu_devices(count: int) -> None:
    """Give JAX `count` CPU devices. It must happen before JAX's first computation, hence here and not in a fixture."""
    try:
        import jax
    except ModuleNotFoundError:  # the rooms without JAX, and tests/pure, need none
        return
    with contextlib.suppress(RuntimeError):  # whoever initialised JAX already has chosen its devices
        jax.config.update("jax_num_cpu_devices", count)
        if "JAX_PLATFORMS" not in os.environ:  # on a machine with a GPU that one device would be the default mesh
            jax.config.update("jax_platforms", "cpu")


use_virtual_cpu_devices(VIRTUAL_DEVICES)

# No deadline: the first example of a shape compiles, the others don't. `pytest --hypothesis-profile NAME` chooses too.
_common = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=int(os.environ.get("LAMINA_EXAMPLES", "50")), derandomize=True, **_common)
settings.register_profile("dev", max_examples=int(os.environ.get("LAMINA_EXAMPLES", "25")), **_common)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="run every test marked `exhaustive`, not a sample")
    parser.addoption("--update-golden", action="store_true", help="write the golden texts of tests/golden anew")


def pytest_report_header(config: pytest.Config) -> str:
    which = "all" if config.getoption("--exhaustive") else "a sample; all of them with --exhaustive"
    return f"exhaustive tests: {which}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of every exhaustive family keep the first member and one in `keep` of the others, chosen by name, not by chance.

    By name: each xdist worker must choose the same ones, and a stride through the list would meet only some of the
    values of the inner parameter.
    """
    if config.getoption("--exhaustive"):
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    families: set[str] = set()
    for item in items:
        marker = item.get_closest_marker("exhaustive")
        family = item.nodeid.partition("[")[0]
        first = family not in families
        if marker is None or first or zlib.crc32(item.nodeid.encode()) % marker.kwargs.get("keep", 8) == 0:
            kept.append(item)
        else:
            left_out.append(item)
        if marker is not None:
            families.add(family)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
