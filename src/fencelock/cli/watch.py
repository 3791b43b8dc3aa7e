"""`fencelock watch`: locks as they change.

The backend is asked once in an interval and two successive pictures are compared, so what begins and
ends between two of them is not seen. On a terminal the picture itself is shown, live; otherwise
the differences, one line each.

Events: `held` and `waiting` say how things stood when the watching began; then `taken`,
`released` (given back, lost, expired or broken: from outside they look the same), `queued` and
`left` (a waiter that gave up).
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import click

from fencelock.changes import Change, changes
from fencelock.cli import status
from fencelock.cli.look import LS_HEADER, entry_json, ls_rows, mark, mode, who
from fencelock.cli.options import DURATION, as_json_option, backend_options, open_client, statuses
from fencelock.cli.table import on_terminal, rich_table
from fencelock.cli.text import complain, shown, span, to_json
from fencelock.client import Client
from fencelock.errors import BackendError, ConfigurationError
from fencelock.state import LockState

__all__ = ["json_line", "line", "watch"]

SHORTEST = 0.05

HELP = """Watch locks as they are taken and released.

On a terminal a live table, otherwise one line for each change: taken, released, queued (begins to
wait), left (gives up waiting). The first lines, held and waiting, say how things stand at the
beginning. PREFIX limits it to names that begin with it. Ends with Ctrl-C.

\b
Examples:
  fencelock watch
  fencelock watch invoice: --interval 200ms | tee locks.log
  fencelock watch --json | jq -c 'select(.event == "released") | .name'

"""

STATUSES = statuses(
    ("130", "ended by Ctrl-C"),
    ("0", "ended because nobody reads its output any more"),
    ("69", "the backend was unavailable from the start"),
    ("64", "wrong usage"),
)


@click.command("watch", help=HELP + STATUSES, short_help="Watch locks as they are taken and released.")
@click.argument("prefix", default="")
@backend_options
@click.option("--interval", type=DURATION, default=1.0, help="How often to look. Default: 1s.")
@as_json_option
def watch(prefix: str, url: str | None, namespace: str | None, interval: float, as_json: bool) -> int:
    if interval < SHORTEST:
        raise ConfigurationError(f"--interval {interval:g} is too short: give at least 50ms")
    try:
        with open_client(url, namespace) as locks:
            pictures = _pictures(locks, prefix, interval)
            if on_terminal() and not as_json:
                _live(pictures)
            else:
                _lines(pictures, json_line if as_json else line)
    except KeyboardInterrupt:
        return status.by_signal(2)
    return status.OK


def _pictures(locks: Client, prefix: str, interval: float) -> Iterator[Sequence[LockState]]:
    """Yield what `list` shows, again and again, until nobody reads. Rides out a backend that goes away."""
    yield locks.list(prefix)
    away = False
    while _pause(interval):
        try:
            states = locks.list(prefix)
        except BackendError as error:
            if not away:
                complain(f"{error}: still watching")
            away = True
            continue
        if away:
            complain("the backend is back")
        away = False
        yield states


def _pause(seconds: float) -> bool:
    """Sleep; say whether somebody still reads our output."""
    try:
        out = sys.stdout.fileno()
    except (OSError, ValueError):
        time.sleep(seconds)
        return True
    poll = select.poll()
    poll.register(out, 0)  # errors and hang-ups are always reported
    end = time.monotonic() + seconds
    if poll.poll(1000 * seconds) and not os.isatty(out):
        return False
    time.sleep(max(0.0, end - time.monotonic()))
    return True


def _lines(pictures: Iterator[Sequence[LockState]], form: Callable[[Change, float], str]) -> None:
    before: Sequence[LockState] | None = None
    for states in pictures:
        now = time.time()
        for change in changes(before, states):
            print(form(change, now))
        sys.stdout.flush()
        before = states


def line(change: Change, now: float) -> str:
    """Return a change for people."""
    stamp = datetime.fromtimestamp(now).astimezone().strftime("%H:%M:%S.%f")[:-3]
    entry = change.entry
    is_gone = change.event in {"released", "left"}
    after = f" after {span(entry.age)}" if is_gone else ""
    holder = who(entry) if is_gone else who(entry) + mark(entry)
    return (
        f"{stamp} {change.event:<8} {shown(change.name)}  {holder}  {mode(entry)}  token {entry.token}{after}"
    )


def json_line(change: Change, now: float) -> str:
    """Return a change for programs."""
    fields = {"time": now, "event": change.event, "name": change.name, **entry_json(change.entry)}
    return to_json(fields, indent=None)


def _live(pictures: Iterator[Sequence[LockState]]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, vertical_overflow="visible") as live:
        for states in pictures:
            if states:
                live.update(rich_table(LS_HEADER, ls_rows(states)), refresh=True)
            else:
                live.update(Text("No lock is held or waited for.", style="dim"), refresh=True)
