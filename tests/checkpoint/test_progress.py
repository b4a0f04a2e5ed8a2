"""The bar of bytes: on a terminal, for who waits, and nowhere else."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import lamina
from lamina.checkpoint.progress import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, tmp_path, stderr, **options):
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    lamina.save(tmp_path, {"a": np.ones((1000, 100))}, **options).wait()
    lamina.load(tmp_path)
    return stderr.getvalue()


def test_on_a_terminal(monkeypatch, tmp_path):
    text = shown(monkeypatch, tmp_path, Terminal(), step=7)
    assert "saving step 7" in text and "loading step-00000007" in text and "800.0/800.0 kB" in text


def test_not_into_a_pipe(monkeypatch, tmp_path):
    assert shown(monkeypatch, tmp_path, io.StringIO()) == ""


def test_not_in_the_background(monkeypatch, tmp_path):
    assert "saving" not in shown(monkeypatch, tmp_path, Terminal(), wait=False)


@pytest.mark.parametrize("rank, bar", [(0, True), (1, False)])
def test_only_on_process_0(monkeypatch, rank, bar):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("jax.process_index", lambda: rank)
    with progress("saving", 10) as done:
        done(10)
    assert ("saving" in sys.stderr.getvalue()) == bar
