"""Starting threads: an interrupt finds one started or not, and never in between."""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from fencelock.runtime import threads
from fencelock.runtime.threads import join, launch

SOON = 10.0


def test_a_thread_is_started_and_waited_for() -> None:
    done: list[str] = []
    thread = threading.Thread(target=lambda: done.append(threading.current_thread().name), name="worker")
    launch(thread)
    join(thread, SOON)
    assert done == ["worker"]
    assert not thread.is_alive()


def test_waiting_for_a_thread_ends_in_time() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(SOON,))
    join(thread, 0.0)  # it was never started
    launch(thread)
    join(thread, 0.01)
    assert not over.is_set()
    over.set()
    join(thread, SOON)
    assert not thread.is_alive()


def interrupted_at(place: int, thread: threading.Thread) -> bool:
    """Launch a thread and interrupt that where Python might, at the n-th place; whether there was one."""
    left = place

    def look(frame: FrameType, event: str, function: Any) -> None:
        nonlocal left
        if frame.f_code.co_filename == threads.__file__ and event in {"call", "c_return"}:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        launch(thread)
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_what_was_interrupted_does_not_start() -> None:
    place = 1
    while True:
        ran = threading.Event()
        thread = threading.Thread(target=ran.set)
        if not interrupted_at(place, thread):
            break
        assert not ran.wait(0.05), f"interrupted at place {place}, and started"
        place += 1
    assert place > 2
    assert ran.wait(SOON)


def test_one_that_cannot_be_started_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(target=lambda: None, name="twice")
    launch(thread)
    join(thread, SOON)
    with caplog.at_level(logging.ERROR, logger="fencelock"):
        launch(thread)
        deadline = time.monotonic() + SOON
        while "twice" not in caplog.text:
            assert time.monotonic() < deadline
