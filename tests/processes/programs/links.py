"""Bandwidths between processes, and inside of one, as `calibrate` measures them: two numbers, in bytes per second."""

from __future__ import annotations

import jax

import lamina


def main() -> None:
    mesh = lamina.DeviceMesh.create((jax.process_count(), jax.local_device_count()), ("process", "device"))
    links = lamina.calibrate(mesh)
    print(links.link("process").bandwidth, links.link("device").bandwidth)


if __name__ == "__main__":
    main()
