"""The program of docs/cluster.md: nothing in it says where it runs."""

from __future__ import annotations

import os

import numpy as np

import lamina


def main() -> None:
    lamina.initialize()  # joins the other processes; does nothing where there are none
    mesh = lamina.DeviceMesh.create((2, 1), ("dp", "tp"))
    x = lamina.shard(np.ones((8, 8), "float32"), mesh, ["dp", "tp"])
    print(x.sum().item())
    if os.fork() == 0:  # a child mustn't be mistaken for its parent
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    main()
