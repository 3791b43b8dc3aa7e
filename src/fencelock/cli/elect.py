"""`fencelock elect`: a command that runs while this process leads.

One term of office is one `hold_and_run`, with a client of its own: the keeper of each term is
forked while there are no threads. Between terms the wait for the lock is the campaign.

A backend that is away makes the campaign longer, also at the very beginning: standing by is the
purpose. What waiting cannot help ends it, with status 69.

When renewals fail, CMD is told to end somewhat more than a grace before the lease runs out, but not so
early that a renewal cannot be tried twice: a third of the ttl at most. So with a grace of up to a fifth
of the ttl CMD is gone before anyone else can lead, even if it is deaf; else if it ends in time.
"""

from __future__ import annotations

from functools import partial

import click

from fencelock.cli import status
from fencelock.cli.holding import Hold, client_name, die_by, hold_and_run, holding_options, interrupted
from fencelock.cli.options import WrappedCommand, open_client, parse_metadata, statuses
from fencelock.cli.signals import Interrupted, Signals
from fencelock.cli.supervise import CannotRun, check_command
from fencelock.cli.text import complain
from fencelock.client import Client
from fencelock.election import Election

__all__ = ["elect"]

HELP = """Run a command while this process leads.

Stands for election, waits until it leads, and runs CMD. When leadership is lost CMD is stopped
(SIGTERM to all that came from it, SIGKILL after the grace) and the campaign begins again. When CMD
exits by itself, leadership is handed over and elect exits with CMD's status. Start it on every
host: one leads, the others stand by. A backend that is away is waited for.

When leadership cannot be renewed, CMD gets SIGTERM a grace before it runs out, or a third of the ttl if
that is less. With a grace of up to a fifth of the ttl, CMD is gone before anyone else can lead.

\b
Examples:
  fencelock elect billing-consumer -- ./consume.py
  fencelock elect --ttl 10s scheduler -- sh -c 'exec ./scheduler --fence "$FENCELOCK_TOKEN"'
  fencelock show billing-consumer    # who leads, who stands by

"""

STATUSES = statuses(
    ("CMD's own", "128+n if signal n ended it"),
    ("126, 127", "CMD cannot be executed, was not found"),
    ("69", "the backend cannot be used, and waiting would not help"),
    ("64", "wrong usage"),
    ("128+n", "signal n ended the campaign"),
)


@click.command(
    "elect", cls=WrappedCommand, help=HELP + STATUSES, short_help="Run a command while this process leads."
)
@click.argument("name")
@holding_options
def elect(
    name: str,
    url: str | None,
    namespace: str | None,
    ttl: float,
    grace: float,
    metadata: str | None,
    command: tuple[str, ...],
) -> int:
    data = parse_metadata(metadata)
    try:
        with Signals() as signals:

            def candidate() -> tuple[Client, Election]:
                locks = open_client(url, namespace, client_name(command))
                return locks, locks.election(
                    name, ttl=ttl, metadata=data, on_lost=lambda lease: signals.nudge()
                )

            margin = min(grace + ttl / 10, ttl / 3)
            candidate()[0].close()  # wrong arguments come before a wrong command
            check_command(command[0])
            while True:
                locks, election = candidate()
                acquire = partial(election._campaign, margin, complain)
                hold = hold_and_run(command, grace, signals, locks, acquire)
                if _is_final(hold):
                    return _status(hold)
                complain(f"leadership of {name!r} was lost: campaigning again")
    except CannotRun as error:
        complain(str(error))
        return error.status
    except Interrupted as error:
        return interrupted(error)


def _is_final(hold: Hold) -> bool:
    return hold.held or bool(hold.ending.asked)


def _status(hold: Hold) -> int:
    ending = hold.ending
    if hold.held and ending.interrupted:
        die_by(ending.interrupted)
    return ending.status if hold.held else status.by_signal(ending.asked)
