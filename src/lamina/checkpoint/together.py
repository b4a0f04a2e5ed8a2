"""What the processes of one program say to each other around a checkpoint: through JAX's coordination service.

No collective runs on the devices: a save in the background must not mix with the program's own.  With one process all
of it is nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from typing import Any

import jax

from lamina.engine import compat, watching
from lamina.errors import CheckpointError, with_fix

TIMEOUT = "LAMINA_CHECKPOINT_TIMEOUT"
_POLL = 1.0  # seconds between two looks at whether the others still live
_numbers = itertools.count()


class Meeting:
    """One save or load, in which all processes take part; they call save and load in the same order."""

    def __init__(self, what: str) -> None:
        self.what, self.rank, self.count = what, jax.process_index(), jax.process_count()
        self._number, self._rounds = next(_numbers), itertools.count()
        self._read: str | None = None

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def together(self, act: Callable[[], Any] = lambda: None) -> list[Any]:
        """Each process acts, and all learn what came out (JSON), in the order of processes.

        Where one fails, all fail: it with its own error, the others with one that names it.
        """
        if self.count == 1:
            return [act()]
        try:
            mine, error = act(), None
        except Exception as raised:
            mine, error = None, raised
        said = self._exchange({"value": mine, "error": None if error is None else str(error)})
        if error is not None:
            raise error
        failed = [f"process {rank} failed: {words['error']}" for rank, words in enumerate(said) if words["error"]]
        if failed:
            raise CheckpointError(f"{self.what}: " + "; ".join(failed))
        return [words["value"] for words in said]

    def first(self, act: Callable[[], Any]) -> Any:
        """What process 0 gets, on all of them; None where nothing comes out."""
        return self.together(act if self.leads else lambda: None)[0]

    def alike(self, act: Callable[[], Any]) -> Any:
        """What this process gets, if none of them fails."""
        results: list[Any] = []
        self.together(lambda: results.append(act()))
        return results[0]

    def _exchange(self, words: Any) -> list[Any]:
        client = compat.coordination_client()
        key = f"lamina/checkpoint/{self._number}/{next(self._rounds)}/"
        client.key_value_set(f"{key}{self.rank}", json.dumps(words))
        said = [json.loads(self._hear(client, f"{key}{rank}", rank)) for rank in range(self.count)]
        if self._read is not None:  # whoever speaks in this round has heard all of the one before
            client.key_value_delete(f"{self._read}{self.rank}")
        self._read = key
        return said

    def _hear(self, client: Any, key: str, rank: int) -> str:
        patience = float(os.environ.get(TIMEOUT, "600"))
        end = time.monotonic() + patience
        while True:
            if watching.current is not None:
                watching.current.check()  # a process that died: ProcessError
            try:
                return client.blocking_key_value_get(key, int(1000 * _POLL))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise CheckpointError(f"{self.what}: process {rank} can't be heard: {error}") from error
                if time.monotonic() > end:
                    fact = f"{self.what}: nothing was heard of process {rank} for {patience:.0f} s"
                    fix = f"save and load on every process, in the same order; {TIMEOUT} is how many seconds to wait"
                    raise CheckpointError(with_fix(fact, fix)) from error
