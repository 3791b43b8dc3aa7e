"""The event loop that the checks run under: asyncio's own, or uvloop's.

`FENCELOCK_CONFORM_LOOP=uvloop` says so to this process and to those that the checks start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencelock.errors import ConfigurationError

__all__ = ["LOOPS", "VARIABLE", "factory", "run_async"]

T = TypeVar("T")
LOOPS = ("asyncio", "uvloop")
VARIABLE = "FENCELOCK_CONFORM_LOOP"


def factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the loops."""
    wanted = os.environ.get(VARIABLE) or LOOPS[0]
    if wanted == LOOPS[0]:
        return asyncio.new_event_loop
    if wanted not in LOOPS:
        raise ConfigurationError(f"event loop {wanted!r} is unknown: give one of {', '.join(LOOPS)}")
    try:
        import uvloop
    except ImportError as error:
        raise ConfigurationError("uvloop is not installed: pip install uvloop, or choose asyncio") from error
    return uvloop.new_event_loop


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as `asyncio.run` does, under the loop that is wanted."""
    with asyncio.Runner(loop_factory=factory()) as runner:
        return runner.run(main)
