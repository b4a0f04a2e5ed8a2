"""`save`: a tree of values as one step of a directory of checkpoints."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from lamina.checkpoint import versions
from lamina.checkpoint.arrays import tensorstore
from lamina.checkpoint.blocks import snapshot
from lamina.checkpoint.together import Meeting
from lamina.checkpoint.versions import Keep
from lamina.checkpoint.writing import prepared, write
from lamina.errors import explained


class Saving:
    """A checkpoint that is being written, or has been: what `lamina.save` returns.

    >>> import lamina, tempfile
    >>> saving = lamina.save(tempfile.mkdtemp(), {"a": 1.5}, wait=False)
    >>> saving.wait().name, saving.done
    ('step-00000000', True)
    """

    def __init__(self, path: Path, step: int, work: Callable[[], None]):
        self.path, self.step = path, step
        self._work, self._heard = work, False
        self._error: BaseException | None = None
        # Not a daemon: a program that ends while this runs ends when this has ended.
        self._thread = threading.Thread(target=self._run, name=f"lamina.save step {step}")

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
        del self._work  # and with it, the copies of the values

    @property
    def done(self) -> bool:
        """Is it over, well or not?"""
        return not self._thread.is_alive()

    def wait(self) -> Path:
        """Waits until the checkpoint is on the disk, and returns its folder; raises what went wrong."""
        if self._thread.ident is not None:  # it was started: the save is one in the background
            self._thread.join()
        self._heard = True
        if self._error is not None:
            raise self._error
        return self.path

    def __repr__(self) -> str:
        state = "being written" if not self.done else "failed" if self._error else "written"
        return f"Saving(step {self.step}, {state}, {str(self.path)!r})"


_in_background: Saving | None = None


def save(
    path: str | PathLike[str], tree: Any, *, step: int | None = None, keep: Keep = None, wait: bool = True
) -> Saving:
    """Writes a pytree of values as one step of the directory `path`.

    The leaves may be Tensors of any layout, jax.Arrays, numpy arrays, random keys, and Python's numbers and texts.
    Each process writes the blocks that it is the first to hold; nothing is moved or reduced, and the pieces of a
    Partial tensor are saved as they are.  A crash at any moment leaves the steps that were there whole.

    `step` numbers it (by default, the one after the latest).  `keep` is how many of the latest steps stay, or a
    function from the list of steps to those that stay; by default all do.  With `wait=False` the call returns when the
    values are copied to the host: the checkpoint has the values of the moment of the call, and `.wait()` of what is
    returned waits for the disk and raises what went wrong.  Every process must call it.

    >>> import numpy as np, lamina, tempfile
    >>> mesh = lamina.DeviceMesh.create((2, 4), ("dp", "tp"))
    >>> w = lamina.shard(np.arange(10.0), mesh, ["tp"])
    >>> run = tempfile.mkdtemp()
    >>> lamina.save(run, {"step": 3, "w": w}, step=3).path.name
    'step-00000003'
    >>> lamina.latest(run), lamina.load(run, {"w": w})["w"].sharding
    (3, NamedMapping('[dp=2,tp=4] tp'))
    """
    global _in_background
    asked, keep = versions.checked_step(step), versions.checked_keep(keep)
    tensorstore("save")
    _finish_earlier()
    directory, what = Path(path).absolute(), f"save({str(path)!r})"
    meeting = Meeting(what)
    with explained(what):
        manifest, parts = prepared(meeting, directory, tree, asked)
    folder = versions.folder(directory, manifest.step)

    def work() -> None:
        with explained(what):
            write(meeting, directory, manifest, parts, keep, watched=wait)

    saving = Saving(folder, manifest.step, work)
    if wait:
        saving._run()
        saving.wait()
        return saving
    parts[:] = [snapshot(part) for part in parts]
    _in_background = saving
    saving._thread.start()
    return saving


def _finish_earlier() -> None:
    """One save at a time: waits for the one in the background, and tells of a failure that nobody asked for."""
    global _in_background
    earlier, _in_background = _in_background, None
    if earlier is None:
        return
    earlier._thread.join()
    if earlier._error is not None and not earlier._heard:
        warnings.warn(f"{earlier!r}: nobody waited for it: {earlier._error}", RuntimeWarning, stacklevel=3)
