"""Holding a lock for a command: what `run` and `elect` have in common.

The order is the safety argument. The keeper is forked before there are threads, the lock is
acquired, CMD is started, CMD and all that came from it are gone, the lock is released. On every
way out, an exception included, the keeper is closed first, and that returns only when
nothing is left of CMD; only then does the client give back what it holds.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from fencelock.cli import status
from fencelock.cli.options import DURATION, F, backend_options
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import Command, Ending, supervise
from fencelock.cli.terminal import Terminal
from fencelock.cli.text import complain
from fencelock.client import Client
from fencelock.errors import BackendError
from fencelock.lease import Lease

__all__ = ["Hold", "client_name", "die_by", "hold_and_run", "holding_options", "interrupted"]

DEFAULT_TTL = 30.0
DEFAULT_GRACE = 10.0


class Hold(NamedTuple):
    """How it went: how CMD ended, and whether the lease was held to the end."""

    ending: Ending
    held: bool


def holding_options(function: F) -> F:
    """Add the options that `run` and `elect` share."""
    for option in (
        click.option("--metadata", metavar="JSON", help="Anything people should see beside the holder."),
        click.option(
            "--grace",
            type=DURATION,
            default=DEFAULT_GRACE,
            help="How long what came from CMD may take to end after SIGTERM, before SIGKILL. Default: 10s.",
        ),
        click.option(
            "--ttl",
            type=DURATION,
            default=DEFAULT_TTL,
            help="How long the lock outlives a crash. It is renewed while CMD runs. Default: 30s.",
        ),
    ):
        function = option(function)
    return backend_options(function)


def client_name(command: Sequence[str]) -> str:
    """Return what people see as the holder: the command's name."""
    name = Path(command[0]).name or command[0]
    return name.encode("utf-8", "replace").decode()[:100] or "fencelock"


def hold_and_run(
    command: Sequence[str],
    grace: float,
    signals: Signals,
    locks: Client,
    acquire: Callable[[], Lease],
    *,
    make: Callable[[Sequence[str], float, Signals], Command] = Command,
    ended: Callable[[Ending | BaseException], None] | None = None,
) -> Hold:
    """Acquire a lock, run CMD under it, release it, close the client.

    The client must not have been used yet: it would have threads, and there is a fork ahead. `ended` is
    called when nothing is left of CMD and the lock is still taken; with an error if CMD was never run.
    Raises `Interrupted` if a signal came before CMD was started, and what `acquire` raises.
    """
    with _terminal() as terminal:
        child = make(command, grace, signals)
        try:
            with signals.interrupting():
                _stop_if_signalled(signals)
                lease = acquire()
            try:
                _stop_if_signalled(signals)
                ending = supervise(lease, child, signals, terminal)
            except BaseException as error:
                child.close()
                if ended is not None:
                    ended(error)
                raise
            if ended is not None:
                ended(ending)
            return Hold(ending, _released(lease) and not ending.stopped)
        finally:
            child.close()
            _close(locks)


@contextmanager
def _terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    try:
        yield terminal
    finally:
        terminal.close()


def _stop_if_signalled(signals: Signals) -> None:
    for signum in signals.take():
        if signum in signals.ending:
            raise Interrupted(signum)


def _released(lease: Lease) -> bool:
    try:
        held = lease.release()
    except BackendError as error:
        complain(f"{lease.name!r} could not be released and is free after its ttl of {lease.ttl:g}s: {error}")
        return True
    if not held:
        lost = lease._lost()
        complain(str(lost) if lost is not None else f"lease on {lease.name!r} was lost")
    return held


def _close(locks: Client) -> None:
    try:
        locks.close()
    except BackendError as error:
        complain(f"closing the backend failed: {error}")


def die_by(signum: int, *, alone: bool = False) -> None:
    """End as Ctrl-C ends a program, so that a shell that runs us in a loop or a script stops too.

    A shell goes on after a command that only *returns* 130. Unless `alone`, those who share our
    process group get the signal as well: CMD had the terminal, so nobody but CMD has seen it.
    Does nothing where the signal is ignored.
    """
    if signal.getsignal(signum) is signal.SIG_IGN:
        return
    signal.signal(signum, signal.SIG_DFL)
    if alone:
        os.kill(os.getpid(), signum)
    else:
        os.killpg(0, signum)


def interrupted(error: Interrupted) -> int:
    """Return the status after a signal has ended the wait."""
    if error.signum == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty():
        die_by(error.signum, alone=True)
    return status.by_signal(error.signum)
