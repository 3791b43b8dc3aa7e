"""`fencelock run`: a command under a lock.

On the way from the start of the process to that of CMD nothing is imported but click and
fencelock. What supervision promises, and what it does not, is said in `keeper.py`.
"""

from __future__ import annotations

from typing import Any

import click

from fencelock.cli import status
from fencelock.cli.holding import client_name, die_by, hold_and_run, holding_options, interrupted
from fencelock.cli.options import WrappedCommand, open_client, parse_metadata, statuses, wait_option
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import CannotRun, check_command
from fencelock.cli.text import complain
from fencelock.client import Client
from fencelock.errors import AcquireTimeout
from fencelock.lock import Lock

__all__ = ["run"]

HELP = """Run a command under a lock.

Waits its turn, first come first served, runs CMD, and releases the lock when CMD and everything
it started are gone. CMD is passed stdin and every signal, and finds FENCELOCK_NAME,
FENCELOCK_TOKEN and FENCELOCK_OWNER in its environment. If the lease is lost, CMD is stopped:
SIGTERM to all that came from it, SIGKILL after the grace.

Durations are seconds, or with a unit: 500ms, 30s, 5m, 1h.

\b
Examples:
  fencelock run nightly-backup -- ./backup.sh
  fencelock run --try -E 0 cache -- ./refresh.sh    # not if somebody is at it
  fencelock run --wait 5m deploy -- sh -c 'git pull && make install'
  fencelock run --slots 3 transcode -- ./transcode.sh    # three at a time

"""

STATUSES = statuses(
    ("CMD's own", "128+n if signal n ended it"),
    ("75", "not acquired in time (or the code of -E)"),
    ("76", "the lease was lost and CMD was stopped"),
    ("126, 127", "CMD cannot be executed, was not found"),
    ("69", "the backend is unavailable"),
    ("64", "wrong usage"),
    ("128+n", "signal n ended the wait for the lock"),
)


@click.command("run", cls=WrappedCommand, help=HELP + STATUSES, short_help="Run a command under a lock.")
@click.argument("name")
@holding_options
@wait_option("How long to wait for the lock. Default: for ever.")
@click.option("--try", "try_", is_flag=True, help="Do not wait at all.")
@click.option("--shared", is_flag=True, help="Share the lock with others that say --shared.")
@click.option(
    "--slots", type=int, metavar="N", help="Let N commands hold it together. All must say the same N."
)
@click.option(
    "-E",
    "--conflict-exit-code",
    "conflict",
    type=click.IntRange(0, 255),
    metavar="CODE",
    help="Exit with CODE instead of 75 when the lock was not acquired in time.",
)
def run(
    name: str,
    url: str | None,
    namespace: str | None,
    ttl: float,
    grace: float,
    metadata: str | None,
    wait: float | None,
    try_: bool,
    shared: bool,
    slots: int | None,
    conflict: int | None,
    command: tuple[str, ...],
) -> int:
    if try_ and wait is not None:
        raise click.UsageError("--try and --wait exclude each other: --try is --wait 0")
    if shared and slots is not None:
        raise click.UsageError("--shared and --slots exclude each other")
    options = {"ttl": ttl, "timeout": 0 if try_ else wait, "metadata": parse_metadata(metadata)}
    try:
        with Signals() as signals:
            locks = open_client(url, namespace, client_name(command))
            options["on_lost"] = lambda lease: signals.nudge()
            lock = _lock(locks, name, shared, slots, options)
            check_command(command[0])
            hold = hold_and_run(command, grace, signals, locks, lock.acquire)
            if not hold.held:
                return status.LOST
            if hold.ending.interrupted:
                die_by(hold.ending.interrupted)
            return hold.ending.status
    except CannotRun as error:
        complain(str(error))
        return error.status
    except AcquireTimeout as error:
        complain(str(error))
        return status.NOT_ACQUIRED if conflict is None else conflict
    except Interrupted as error:
        return interrupted(error)


def _lock(locks: Client, name: str, shared: bool, slots: int | None, options: dict[str, Any]) -> Lock:
    if shared:
        return locks.rwlock(name, **options).read()
    if slots is not None:
        return locks.semaphore(name, slots, **options)
    return locks.lock(name, **options)
