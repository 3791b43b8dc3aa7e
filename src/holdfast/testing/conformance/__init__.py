"""The conformance suite: what the contract promises, checked on any backend, in both flavours.

    >>> from holdfast.testing.conformance import run
    >>> run("memory://", only=["tokens_rise_across_releases"]).failed
    0

It needs nothing but holdfast. Every check uses names of its own, so it may run against a
server that is in use. `holdfast conform URL` is the same from the shell.
"""

from holdfast.testing.conformance.registry import NUMBERED, PROMISES, Check, check, checks
from holdfast.testing.conformance.runner import FLAVOURS, Result, Summary, run
from holdfast.testing.conformance.world import World

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
