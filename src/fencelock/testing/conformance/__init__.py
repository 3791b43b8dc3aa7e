"""The conformance suite: what the contract promises, checked on any backend, in both flavours.

    >>> from fencelock.testing.conformance import run
    >>> run("memory://", only=["tokens_rise_across_releases"]).failed
    0

It needs nothing but fencelock. Every check uses names of its own, so it may run against a
server that is in use. `fencelock conform URL` is the same from the shell.
"""

from fencelock.testing.conformance.registry import NUMBERED, PROMISES, Check, check, checks
from fencelock.testing.conformance.runner import FLAVOURS, Result, Summary, run
from fencelock.testing.conformance.world import World

__all__ = [
    "FLAVOURS",
    "NUMBERED",
    "PROMISES",
    "Check",
    "Result",
    "Summary",
    "World",
    "check",
    "checks",
    "run",
]
