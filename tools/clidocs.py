"""Writes docs/reference/cli.md from the commands themselves, so that the page cannot be wrong.

python tools/clidocs.py             write the page
python tools/clidocs.py --check     say whether it is current
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import click

from fencelock.cli import COMMANDS, cli, load, status

__all__ = ["PAGE", "commands", "main", "page"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"

INTRODUCTION = """\
# Command line

`fencelock` runs commands under locks and shows who holds them. This page is the reference, made from
the commands themselves by `tools/clidocs.py`; [the how-to](../howto/command-line.md) shows what to do
with them.

Locks live where `--url` says, else `$FENCELOCK_URL`, else in an embedded file of this user. A duration
is a number of seconds, or a number with one of the units `ms`, `s`, `m`, `h`.
"""


def page() -> str:
    """Return the page as it should be."""
    parts = [INTRODUCTION, _statuses(), _group()]
    parts += [_command(f"fencelock {name}", command) for name, command in commands().items()]
    return "\n".join(parts)


def commands() -> dict[str, click.Command]:
    """Return every command that is installed."""
    found = {}
    for name, place in COMMANDS.items():
        try:
            found[name] = load(name, place)
        except click.ClickException:
            continue
    return found


def _statuses() -> str:
    rows = [("0", "success; for `run` and `elect`: CMD's own status")]
    rows += [(meaning.code, meaning.text) for meaning in status.MEANINGS.values()]
    rows.append(("128+n", "signal n ended the command, or the wait for the lock"))
    table = "\n".join(f"| {code} | {text} |" for code, text in rows)
    return f"## Exit statuses\n\n| status | meaning |\n|---|---|\n{table}\n"


def _group() -> str:
    listed = "\n".join(
        f"- [`fencelock {name}`](#fencelock-{name}): {COMMANDS[name].does}" for name in commands()
    )
    return f"## fencelock\n\n{_options(cli)}\n{listed}\n"


def _command(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = command.get_usage(context).removeprefix("Usage: ")
    return f"## {path}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n{_options(command)}"


def _prose(text: str) -> str:
    """Turn click's help into Markdown: what it must not wrap becomes a block."""
    blocks = [block.strip("\n") for block in text.strip().split("\n\n")]
    return "\n\n".join(_block(block) for block in blocks if block.strip()) + "\n"


def _block(block: str) -> str:
    if not block.startswith("\b\n"):
        return block
    lines = block.removeprefix("\b\n").splitlines()
    title = f"{lines.pop(0)}\n\n" if not lines[0].startswith(" ") else ""
    body = "\n".join(line.removeprefix("  ") for line in lines)
    return f"{title}```text\n{body}\n```"


def _options(command: click.Command) -> str:
    options = [param for param in command.params if isinstance(param, click.Option)]
    rows = "\n".join(f"| `{_names(option)}` | {_cell(option.help or '')} |" for option in options)
    return f"| option | |\n|---|---|\n{rows}\n| `-h, --help` | Show the help and exit. |\n"


def _names(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return (
        names
        if option.is_flag
        else f"{names} {option.metavar or option.type.name.upper().removesuffix(' RANGE')}"
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 if the page is not current"
    )
    wanted = page()
    if parser.parse_args().check:
        if PAGE.exists() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not current: run python tools/clidocs.py", file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
