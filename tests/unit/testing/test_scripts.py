"""The scripts of conformance: what they do to their own process."""

from __future__ import annotations

import os
import warnings

import pytest

from fencelock.testing.conformance import scripts


def test_its_own_fork_of_a_process_with_threads_does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python warns of it since 3.12, and tests turn warnings into errors."""
    fork = os.fork

    def warn_and_fork() -> int:
        warnings.warn("this process is multi-threaded", DeprecationWarning, stacklevel=2)
        return fork()

    async def in_the_child() -> str:
        return "done"

    monkeypatch.setattr(os, "fork", warn_and_fork)
    report = scripts.drive("blocking", lambda: scripts.in_child("blocking", in_the_child))
    assert report == "done"
