"""What `fencelock top` shows: order, filter, bars, figures, and names with control characters."""

from __future__ import annotations

import io
import os
import pty
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

import fencelock
from fencelock.cli import main
from fencelock.cli import top as module
from fencelock.cli.board import HEADER, Board, Row, bar
from fencelock.cli.keys import Keys, keyboard
from fencelock.cli.top import Asking, News, picture, widths
from fencelock.errors import BackendUnavailable
from fencelock.state import Entry, LockState


def entry(owner: str = "o", **changes: Any) -> Entry:
    told = {"token": 7, "mode": "exclusive", "client": "job", "host": "h", "pid": 1, "since": 0.0}
    return Entry(**{"owner": owner, "expires_in": 10.0, "age": 5.0, **told, **changes})


def lock(name: str, waiters: int = 0, **changes: Any) -> LockState:
    queue = tuple(entry(f"{name}-w{number}", token=9 + number) for number in range(waiters))
    return LockState(name=name, holders=(entry(f"{name}-h", **changes),), waiters=queue)


def board(*states: LockState, order: str = "waiters") -> Board:
    made = Board(100.0, order)
    made.take(states, 100.0)
    return made


def names(made: Board, most: int | None = None) -> list[str]:
    return [row.cells[0] for row in made.rows(100.0, most)]


def drawn(made: Board, columns: int = 80, height: int = 24, keys: bool = True) -> str:
    console = Console(file=io.StringIO(), width=columns, height=height, force_terminal=False, highlight=False)
    with console.capture() as captured:
        console.print(picture(made, columns, height, keys))
    return captured.get()


# The board ----------------------------------------------------------------------------------

LOCKS = (
    lock("b", 1, age=3.0, expires_in=9.0),
    lock("a", 0, age=90.0, expires_in=8.0),
    lock("c", 4, age=1.0, expires_in=1.0),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("waiters", "c b a"), ("age", "a b c"), ("expiry", "c a b"), ("name", "a b c")],
)
def test_order(order: str, expected: str) -> None:
    assert names(board(*LOCKS, order=order)) == expected.split()


def test_the_key_s_goes_through_the_orders() -> None:
    made = board(*LOCKS)
    seen = [made.order]
    for _ in range(4):
        assert made.press("s")
        seen.append(made.order)
    assert seen == ["waiters", "age", "expiry", "name", "waiters"]
    assert not made.press("q") and not made.press("Q") and made.press("x")


def test_filter() -> None:
    made = board(lock("invoice:1"), lock("Invoice:2", host="far"), lock("order:1", host="far"))
    for key in "/INVx\x7f":
        assert made.press(key)
    assert made.typing and sorted(names(made)) == ["Invoice:2", "invoice:1"]
    assert made.press("q"), "while a filter is typed, q is a letter"
    assert names(made) == []
    made.press("\b")
    made.press("\r")
    assert not made.typing and len(names(made)) == 2
    made.press("\x1b")
    assert len(names(made)) == 3
    for key in "/far\x1b":
        made.press(key)
    assert not made.typing and made.wanted == ""
    for key in "/far\n":
        made.press(key)
    assert sorted(names(made)) == ["Invoice:2", "order:1"], "holders are looked through as well"
    made.press("/")
    made.press("\x01")
    assert made.wanted == "far", "what is not printable is no part of a filter"


def test_bars() -> None:
    assert bar(1.0) == "█" * 10 and bar(0.0) == "░" * 10
    assert bar(0.5, 2) == "█░" and bar(7.0, 2) == "██" and bar(-1.0, 2) == "░░"
    assert bar(0.25, 2) == "▌░"
    assert {len(bar(number / 97)) for number in range(98)} == {10}


def test_a_bar_runs_down_between_two_pictures_and_comes_back() -> None:
    made = board(lock("a", age=5.0, expires_in=10.0))

    def left(now: float) -> tuple[float, str, str]:
        (row,) = made.rows(now)
        return row.left, row.cells[4], row.cells[6].split()[1]

    assert left(100.0) == (1.0, "5.0s", "10.0s")
    assert left(104.0) == (0.6, "9.0s", "6.0s")
    assert left(120.0) == (0.0, "25.0s", "0ms")
    made.take([lock("a", age=25.0, expires_in=5.0)], 120.0)
    assert left(120.0)[0] == 0.5
    made.take([lock("a", age=26.0, expires_in=10.0)], 121.0)
    assert left(121.0)[0] == 1.0


def test_what_a_line_says() -> None:
    permits = LockState(
        name="pool",
        holders=tuple(
            entry(f"h{number}", token=number, mode="permit", limit=3, age=number, expires_in=10.0 - number)
            for number in (1, 2, 3)
        ),
        waiters=(entry("w"),),
    )
    made = board(permits, LockState(name="left", waiters=(entry("w2"),)))
    pool, left = made.rows(100.0)
    assert pool.cells == ("pool", "3 slots", "job h:1 +2", "3", "3.0s", "1", f"{bar(1.0)} 7.0s")
    assert left == Row(("left", "-", "-", "-", "-", "1", "-"), 0.0)
    assert len(HEADER) == len(pool.cells)


def test_figures() -> None:
    made = board(lock("a", 2), lock("b"))
    assert made.summary(100.0) == "2 held  2 waiting  0.0 changes/s since 0ms"
    made.take([lock("a", 1), lock("c")], 101.0)  # one left, b was released, c was taken
    assert made.summary(102.0) == "2 held  1 waiting  1.5 changes/s since 2.0s"


# The picture --------------------------------------------------------------------------------

EVIL = "a\x1b[31m\r\n\x07\u202e<script>[bold]x[/bold]"


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_what_would_change_the_terminal_is_text(columns: int) -> None:
    text = drawn(board(lock(EVIL, client=EVIL, host=EVIL)), columns)
    assert not set(text) & set("\x1b\r\x07\u202e")
    assert text.count("\n") == 5, "figures, order, heading, one lock, keys"
    if columns == 200:
        assert r"a\x1b[31m\r\n\x07\u202e<script>[bold]x[/bold]" in text


def test_only_what_fits_is_drawn() -> None:
    made = board(*(lock(f"job-{number:05}") for number in range(10_000)))
    text = drawn(made, height=20)
    assert text.count("job-") == 16 and "16 of 10000 shown" in text
    assert text.count("\n") <= 20
    for key in "/09999":
        made.press(key)
    assert "job-09999" in drawn(made, height=20) and "filter: 09999_" in drawn(made)
    assert drawn(made, height=1).count("job-") == 1


def test_ten_thousand_locks_cost_a_frame_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 0
    made = board(*(lock(f"job-{number:05}") for number in range(10_000)))
    really = Board._row

    def counted(self: Board, state: LockState, passed: float) -> Row:
        nonlocal rows
        rows += 1
        return really(self, state, passed)

    monkeypatch.setattr(Board, "_row", counted)
    first = made.chosen()
    for _ in range(10):
        drawn(made, height=20)
    assert rows == 160 and made.chosen() is first, "no frame sorts or words what it does not draw"


def test_trouble_has_a_line_until_it_is_over() -> None:
    made = board(lock("a"))
    made.trouble = "redis: connection refused"
    assert "does not answer, still asking: redis: connection refused" in drawn(made)
    assert "a " in drawn(made)
    made.take([], 101.0)
    assert "does not answer" not in drawn(made) and "No lock is held" in drawn(made)
    assert "q quit" in drawn(made) and "q quit" not in drawn(made, keys=False)


def test_figures_are_never_cut() -> None:
    long = board(lock("n" * 200, client="c" * 200, token=1794820589880501)).rows(100.0)
    sizes = widths(long, 80)
    assert sum(sizes) + 2 * 6 == 80 and min(sizes[0], sizes[2]) >= 6
    assert sizes[3] == 16 and "1794820589880501" in drawn(board(lock("n" * 200, token=1794820589880501)))
    assert widths(long, 300)[0] > 80
    assert widths(board(lock("a")).rows(100.0), 80)[0] == 4, "no wider than they need"


# The thread, the keys, the command ---------------------------------------------------------------


class Listing:
    """A client of which only `list` is used."""

    def __init__(self, *answers: Sequence[LockState] | Exception) -> None:
        self.answers = list(answers)

    def list(self, prefix: str) -> Sequence[LockState]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_backend_that_goes_away_and_comes_back() -> None:
    gone = BackendUnavailable(
        backend="redis", detail="redis://u:secret@h: \x1b gone\nfor good", transient=True
    )
    locks: Any = Listing(gone, [lock("back")])
    made = board(lock("a"))
    troubles: list[str] = []
    with Asking(locks, "", 0.01) as asking:
        deadline = time.monotonic() + 30
        while names(made) != ["back"] and time.monotonic() < deadline:
            if asking._news and asking._news[0].trouble:
                troubles.append(asking._news[0].trouble)
            asking.tell(made)
            time.sleep(0.005)
    assert names(made) == ["back"] and made.trouble == ""
    assert troubles and "secret" not in troubles[0] and "\x1b" not in troubles[0] and "\n" not in troubles[0]
    assert not any(thread.name == "fencelock-top" for thread in threading.enumerate())


def test_news_of_trouble_leaves_the_picture() -> None:
    made = board(lock("a"))
    asking = Asking(Listing([]), "", 1.0)  # type: ignore[arg-type]
    asking._news.append(News((), 101.0, "gone"))
    asking.tell(made)
    assert made.trouble == "gone" and names(made) == ["a"]


def test_keys() -> None:
    ours, theirs = pty.openpty()
    try:
        keys = Keys(theirs)
        import tty

        tty.setraw(theirs)
        assert keys.wait(0.0) == [] and keys.exist
        os.write(ours, b"s\xc3")
        assert keys.wait(30.0) == ["s"]
        os.write(ours, b"\xa9")
        assert keys.wait(30.0) == ["é"], "a letter may come in two parts"
        os.write(ours, b"\x1b[A")
        assert keys.wait(30.0) == [], "an arrow is not an escape and two letters"
    finally:
        os.close(ours)
        os.close(theirs)
    assert Keys(None).wait(0.0) == []


def test_no_keys_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with keyboard() as keys:
        assert not keys.exist


def test_a_hangup_is_the_end() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    keys = Keys(reading)
    assert keys.wait(30.0) == ["q"] and not keys.exist
    os.close(reading)


def test_one_picture_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--url", "memory://"]) == 0
    assert capsys.readouterr().out.startswith("0 held  0 waiting")
    monkeypatch.setattr(fencelock.Client, "list", lambda self, prefix: [lock("a"), lock("b", 3)])
    monkeypatch.setattr(module, "on_terminal", lambda: True)
    assert main(["top", "--url", "memory://", "--once", "--sort", "name"]) == 0
    first, head, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("2 held  3 waiting") and head.split() == list(HEADER)
    assert [row.split()[0] for row in rows] == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "says"),
    [(["--interval", "1ms"], "at least 50ms"), (["--sort", "colour"], "waiters"), (["--url", ""], "empty")],
)
def test_wrong_usage(args: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *args]) == 64
    assert says in capsys.readouterr().err
