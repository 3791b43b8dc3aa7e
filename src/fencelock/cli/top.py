"""`fencelock top`: the locks of a backend, live in the terminal.

One thread asks the backend, once in an interval, and leaves what it heard in a box; the main thread
draws, four times a second and at each key, whatever lies there. So a backend that hangs freezes neither
bars nor keys. Only as many locks are drawn as fit.

Not on a terminal, or with --once: one picture, as plain text.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from fencelock.backends import hide_password
from fencelock.cli import status
from fencelock.cli.board import HEADER, ORDERS, Board, Row
from fencelock.cli.keys import keyboard
from fencelock.cli.options import DURATION, backend_options, open_client, statuses
from fencelock.cli.table import STYLES, on_terminal
from fencelock.cli.text import plain_table, shown, shown_lines, width
from fencelock.cli.watch import SHORTEST
from fencelock.client import Client
from fencelock.errors import ConfigurationError, FencelockError
from fencelock.runtime import clock
from fencelock.state import LockState

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["picture", "top"]

FRAME = 0.25
GOODBYE = 2.0
"""Seconds that a question under way has to end, when we do."""
AROUND = 4
"""Lines beside those of locks: the figures, the filter, the heading, the keys."""
LOW, VERY_LOW = 0.5, 0.2
GAP = 2
NARROWEST = 6

HELP = """Show the locks of a backend, live.

One line for each lock: who holds it, its token and mode, for how long, how many wait, and a bar that runs
down to its expiry. PREFIX limits it to names that begin with it. Without a terminal, or with --once, it
prints one picture and ends.

\b
Keys:
  s    sort by the next of waiters, age, expiry, name
  /    filter: type a part of a name or holder, Enter keeps it, Esc ends it
  q    quit

\b
Examples:
  fencelock top
  fencelock top invoice: --sort age --interval 200ms
  fencelock top --once | head

"""

STATUSES = statuses(
    ("0", "ended by q, or after one picture"),
    ("130", "ended by Ctrl-C"),
    ("69", "the backend was unavailable from the start"),
    ("64", "wrong usage, or a backend that cannot list its locks"),
)


@click.command("top", help=HELP + STATUSES, short_help="Show the locks of a backend, live.")
@click.argument("prefix", default="")
@backend_options
@click.option("--sort", type=click.Choice(ORDERS), default="waiters", help="Default: waiters.")
@click.option("--interval", type=DURATION, default=1.0, help="How often to ask. Default: 1s.")
@click.option("--once", is_flag=True, help="Print one picture and end.")
def top(prefix: str, url: str | None, namespace: str | None, sort: str, interval: float, once: bool) -> int:
    if interval < SHORTEST:
        raise ConfigurationError(f"--interval {interval:g} is too short: give at least 50ms")
    board = Board(clock.now(), sort)
    with open_client(url, namespace) as locks:
        board.take(locks.list(prefix), clock.now())
        if once or not on_terminal():
            _print(board)
            return status.OK
        try:
            _live(board, Asking(locks, prefix, interval))
        except KeyboardInterrupt:
            return status.by_signal(2)
    return status.OK


def _print(board: Board) -> None:
    now = clock.now()
    print(board.summary(now))
    if rows := board.rows(now):
        print(plain_table(HEADER, [row.cells for row in rows]))


class News(NamedTuple):
    """What the backend said, and when; or why it said nothing."""

    states: Sequence[LockState]
    at: float
    trouble: str = ""


class Asking:
    """Asks the backend again and again, on a thread of its own."""

    def __init__(self, locks: Client, prefix: str, interval: float) -> None:
        self._locks, self._prefix, self._interval = locks, prefix, interval
        self._done = threading.Event()
        self._news: deque[News] = deque()
        self._thread = threading.Thread(target=self._run, name="fencelock-top", daemon=True)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(GOODBYE)

    def _run(self) -> None:
        while not self._done.wait(self._interval):
            try:
                self._news.append(News(self._locks.list(self._prefix), clock.now()))
            except FencelockError as error:
                trouble = hide_password(shown_lines(str(error)).replace("\n", " "))
                self._news.append(News((), clock.now(), trouble))

    def tell(self, board: Board) -> None:
        """Give the board what was heard since the last time."""
        while self._news:
            news = self._news.popleft()
            if news.trouble:
                board.trouble = news.trouble
            else:
                board.take(news.states, news.at)


def _live(board: Board, asking: Asking) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with asking, keyboard() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        going = True
        while going:
            asking.tell(board)
            size = console.size
            live.update(picture(board, size.width, size.height, keys.exist), refresh=True)
            going = all(board.press(key) for key in keys.wait(FRAME))


def picture(board: Board, columns: int, height: int, keys: bool) -> RenderableType:
    """Return what is drawn on so many columns and lines."""
    from rich.console import Group
    from rich.text import Text

    now, room = clock.now(), max(1, height - AROUND)
    rows, count = board.rows(now, room), len(board.chosen())
    fits = f"  {len(rows)} of {count} shown" if len(rows) < count else ""
    lines: list[RenderableType] = [
        Text(f"{board.summary(now)}{fits}", style="bold", no_wrap=True, overflow="ellipsis"),
        _second(board),
        _table(rows, columns) if rows else Text("No lock is held or waited for.", style="dim"),
    ]
    if keys:
        told = "Enter keeps the filter, Esc ends it" if board.typing else "s sort  / filter  q quit"
        lines.append(Text(told, style="dim", no_wrap=True))
    return Group(*lines)


def _second(board: Board) -> Text:
    from rich.text import Text

    if board.trouble:
        text, style = f"the backend does not answer, still asking: {board.trouble}", "bold red"
    elif board.typing or board.wanted:
        text, style = f"filter: {shown(board.wanted)}{'_' if board.typing else ''}", "cyan"
    else:
        text, style = f"by {board.order}", "dim"
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _table(rows: Sequence[Row], columns: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold dim")
    for heading, size in zip(HEADER, widths(rows, columns), strict=True):
        style = STYLES.get(heading) if heading != "EXPIRES" else None
        table.add_column(heading, style=style, no_wrap=True, overflow="ellipsis", width=size)
    for row in rows:
        colour = "red" if row.left < VERY_LOW else "yellow" if row.left < LOW else "green"
        *cells, expires = (Text(cell) for cell in row.cells)
        expires.stylize(colour)
        table.add_row(*cells, expires)
    return table


def widths(rows: Sequence[Row], columns: int) -> list[int]:
    """Return the width of each column: figures get what they need, names and holders share the rest."""
    sizes = [
        max(width(cell) for cell in column)
        for column in zip(HEADER, *(row.cells for row in rows), strict=True)
    ]
    name, holder = (HEADER.index(heading) for heading in ("NAME", "HOLDER"))
    room = columns - GAP * (len(sizes) - 1) - sum(sizes) + sizes[name] + sizes[holder]
    if sizes[name] + sizes[holder] > room:
        least = max(NARROWEST, min(sizes[holder], room // 2))
        sizes[name] = max(NARROWEST, min(sizes[name], room - least))
        sizes[holder] = max(NARROWEST, room - sizes[name])
    return sizes
