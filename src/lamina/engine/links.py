"""Which links the devices of a mesh have, when the user doesn't say."""

from __future__ import annotations

import os
from functools import lru_cache

import jax

from lamina.engine import inventory
from lamina.planning.topology import PRESETS, Topology, topology
from lamina.sharding import DeviceMesh

_BY_KIND = {"H100": "h100", "H200": "h200", "B200": "b200", "v5p": "tpu_v5p"}


@lru_cache(maxsize=256)
def default_links(mesh: DeviceMesh) -> Topology:
    """The preset for the mesh's devices; only bytes count where nothing is known, or nothing really moves.

    LAMINA_TOPOLOGY names another preset, or a file that `calibrate` saved; it must be the same in every process.
    """
    if mesh.is_abstract or mesh.is_simulated or mesh.is_single:
        return PRESETS["bytes"]
    if chosen := os.environ.get("LAMINA_TOPOLOGY"):
        return Topology.load(chosen) if chosen.endswith(".json") else topology(chosen)
    device = inventory.resolve(mesh.devices[0])
    if device.platform == "cpu":
        return PRESETS["cpu" if jax.process_count() == 1 else "gloo"]
    kinds = [name for kind, name in _BY_KIND.items() if kind in device.device_kind]
    return PRESETS[kinds[0] if kinds else "bytes"]
