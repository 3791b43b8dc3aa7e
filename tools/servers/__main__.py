"""The command line: `python -m tools.servers list | install | up | check`.

A KIND is a name, or NAME@SUITE for the version of another Debian suite: `redis`, `redis@sid`.

Exit status: 0 all well, 1 a server failed, 64 the request makes no sense, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from . import show
from .errors import ServerError
from .group import Group
from .kinds import ELSEWHERE, KINDS, Choice, choices, lookup, start

FAILED = 1
USAGE = 64
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Bad input is one line and status 64."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        sys.exit(USAGE)


def parser() -> Parser:
    top = Parser(prog="python -m tools.servers", description=DESCRIPTION, epilog=EPILOG)
    commands = top.add_subparsers(dest="command", metavar="list|install|up|check", required=True)

    listing = commands.add_parser(
        "list", help="every kind of server, its version, and whether it is installed"
    )
    listing.add_argument("--json", action="store_true", help="as JSON")

    installing = commands.add_parser("install", help="install what is missing (all kinds, unless named)")
    installing.add_argument("kinds", metavar="KIND", nargs="*", type=_kind)

    up = commands.add_parser("up", help="start, print the URLs, stop at Ctrl-C")
    up.add_argument("kinds", metavar="KIND", nargs="+", type=_kind)
    up.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], type=_setting, dest="settings"
    )
    up.add_argument("--json", action="store_true", help="one JSON object on one line instead of a table")

    checking = commands.add_parser("check", help="start and stop each kind, and see that it answers")
    checking.add_argument("kinds", metavar="KIND", nargs="*", type=_kind)
    return top


DESCRIPTION = "Installs, starts and stops the servers that fencelock is tested against."
KNOWN = " ".join([*KINDS, *ELSEWHERE])
EPILOG = f"kinds: {KNOWN}. NAME@SUITE is the version of another Debian suite, as in redis@sid."


def _kind(name: str) -> str:
    try:
        lookup(name)
    except ServerError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def list_kinds(*, as_json: bool) -> int:
    found = choices()
    if as_json:
        rows = [
            {"kind": name, "about": each.kind.about, "version": each.version, "missing": each.missing}
            for name, each in found.items()
        ]
        show.line(json.dumps(rows, indent=2))
        return 0
    show.table(
        ["kind", "what it is", "version", "state"],
        ([name, each.kind.about, each.version or "-", _state(each)] for name, each in found.items()),
    )
    return 0


def _state(choice: Choice) -> str:
    if choice.missing:
        return f"missing: {' '.join(choice.missing)}"
    return f"unpacked from {choice.root.suite}" if choice.root else "installed"


def install(kinds: Sequence[str]) -> int:
    fetched = [name for kind in kinds or KINDS for name in lookup(kind).install()]
    show.line(f"installed {' '.join(fetched)}" if fetched else "nothing is missing")
    return 0


def up(kinds: Sequence[str], settings: dict[str, str], *, as_json: bool) -> int:
    with contextlib.ExitStack() as stack:
        groups = [(kind, stack.enter_context(start(kind, settings=settings))) for kind in kinds]
        with contextlib.suppress(KeyboardInterrupt):
            _announce(groups, as_json=as_json)
            # Not signal.pause(): a signal that arrives just before it would be slept through for ever.
            while True:
                time.sleep(1)
    return 0


def _announce(groups: list[tuple[str, Group]], *, as_json: bool) -> None:
    if as_json:
        show.line(json.dumps([_describe(kind, group) for kind, group in groups]))
        return
    rows = [[kind, name, url] for kind, group in groups for name, url in group.urls.items()]
    show.table(["kind", "way", "URL"], rows)
    show.line("Ctrl-C stops them.")


def _describe(kind: str, group: Group) -> dict[str, object]:
    members = [{"name": m.name, "host": m.host, "port": m.port, "pid": m.pid} for m in group.members]
    return {"kind": kind, "url": group.url, "urls": group.urls, "members": members}


def check(kinds: Sequence[str]) -> int:
    failures = [kind for kind in kinds or KINDS if not _answers(kind)]
    total = len(kinds or KINDS)
    show.line(f"{total - len(failures)} passed, {len(failures)} failed")
    return FAILED if failures else 0


def _answers(kind: str) -> bool:
    begun = time.monotonic()
    try:
        with start(kind) as group:
            ready = time.monotonic()
            version, members = group.version(), len(group.members)
            leaving = time.monotonic()
    except ServerError as error:
        show.line(f"FAIL  {kind:<13} {error}")
        return False
    times = f"ready in {ready - begun:4.1f}s, gone in {time.monotonic() - leaving:3.1f}s"
    processes = "1 process" if members == 1 else f"{members} processes"
    show.line(f"ok    {kind:<13} {times}  {processes:<12} version {version}")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    # A polite end must unwind the `with` blocks that stop the servers.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        match given.command:
            case "list":
                return list_kinds(as_json=given.json)
            case "install":
                return install(given.kinds)
            case "up":
                return up(given.kinds, dict(given.settings), as_json=given.json)
            case _:
                return check(given.kinds)
    except ServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
