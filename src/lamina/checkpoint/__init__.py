"""Checkpoints: a pytree on the disk, written and read by many processes, each only its own bytes.

`versions` is the directory of steps, `manifest` and `records` what a step says of its leaves, `tiles` where the
elements of a leaf stand in its files; `saving` and `loading` are the public functions.  A tree goes `leaves` → `blocks`
→ `arrays` to the disk, and `matching` → `targets` → `boxes` → `arrays` back.
"""

from lamina.checkpoint.loading import latest, load
from lamina.checkpoint.saving import Saving, save

__all__ = ["Saving", "latest", "load", "save"]
