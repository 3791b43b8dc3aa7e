"""The command `fencelock`.

Each command is a module of this package that is imported when it is asked for, and only then:
`fencelock run` starts its command in a fraction of a second because it does not import what
only tables need. `COMMANDS` is the list; a new command is a module and a line in it.

Errors end here. What a user can mend is one line on stderr, `fencelock: …`, and a status from
`status.py`; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from fencelock._version import __version__
from fencelock.cli import status
from fencelock.cli.text import complain
from fencelock.errors import FencelockError
from fencelock.extras import too_old

__all__ = ["COMMANDS", "Place", "cli", "main"]


class Place(NamedTuple):
    """Where a command lives, and what it does in a few words."""

    module: str
    name: str
    does: str


COMMANDS: dict[str, Place] = {
    "run": Place("fencelock.cli.run", "run", "Run a command under a lock."),
    "elect": Place("fencelock.cli.elect", "elect", "Run a command while this process leads."),
    "cron": Place("fencelock.cli.cron", "cron", "Run a command at the times of a cron line."),
    "once": Place("fencelock.cli.once", "once", "Run a command once in each period."),
    "ls": Place("fencelock.cli.look", "ls", "List the locks that are held or waited for."),
    "show": Place("fencelock.cli.look", "show", "Show one lock: who holds it, who waits."),
    "watch": Place("fencelock.cli.watch", "watch", "Watch locks as they are taken and released."),
    "top": Place("fencelock.cli.top", "top", "Show the locks of a backend, live."),
    "break": Place("fencelock.cli.break_", "break_", "Take a lock away from its holder."),
    "doctor": Place("fencelock.cli.doctor", "doctor", "Say what a set-up promises, and measure it."),
    "conform": Place(
        "fencelock.cli.conform", "conform", "Check a backend against everything fencelock promises."
    ),
    "bench": Place("fencelock.cli.bench", "bench", "Measure locks on a backend of your own."),
    "schema": Place("fencelock.cli.schema", "schema", "Make the tables that locks need, or print the SQL."),
    "worker": Place("fencelock.cli.worker", "worker", "Run a worker: jobs from a table, each done once."),
    "jobs": Place("fencelock.cli.jobs", "jobs", "Look at jobs, and change what is there."),
    "dashboard": Place(
        "fencelock.cli.dashboard", "dashboard", "Show the locks of backends on a web page, live."
    ),
    "demo": Place("fencelock.cli.demo", "demo", "Watch workers share jobs while some of them die."),
}


class Settings:
    """What is known before any command."""

    def __init__(self) -> None:
        self.debug = os.environ.get("FENCELOCK_DEBUG", "") not in {"", "0"}


class Commands(click.Group):
    """The group of all commands, each imported when it is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        return None if place is None else load(cmd_name, place)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.does) for name, place in COMMANDS.items()])


def load(name: str, place: Place) -> click.Command:
    """Import a command."""
    try:
        module = import_module(place.module)
    except ModuleNotFoundError as error:
        if error.name != place.module:
            raise
        raise click.ClickException(f"'fencelock {name}' is not part of this installation") from None
    command = getattr(module, place.name)
    assert isinstance(command, click.Command)
    return command


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Each command explains itself: fencelock run --help",
)
@click.version_option(__version__, prog_name="fencelock", message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, help="Show tracebacks, and what happens inside. Also $FENCELOCK_DEBUG=1."
)
@click.pass_obj
def cli(settings: Settings | None, debug: bool) -> None:
    """Locks for commands: take turns across processes and machines.

    \b
    fencelock run nightly-backup -- ./backup.sh     # one at a time, first come first served
    fencelock ls                                    # who holds what, who waits
    fencelock doctor                                # what this set-up promises

    Locks live where --url or $FENCELOCK_URL says, by default in an embedded file of this user.
    """
    settings = settings or Settings()
    settings.debug = settings.debug or debug
    import logging

    if settings.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    else:
        # Whatever the library reports, the commands say in a line of their own.
        logging.getLogger("fencelock").addHandler(logging.NullHandler())


def main(args: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    settings = Settings()
    try:
        result: Any = cli.main(
            args=None if args is None else list(args),
            prog_name="fencelock",
            standalone_mode=False,
            obj=settings,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else status.OK
    except BrokenPipeError:
        _forget_stdout()
        return status.OK  # whoever read from us has what it wanted
    except (KeyboardInterrupt, click.Abort):
        return status.by_signal(2)
    except click.ClickException as error:
        _trace(settings)
        complain(_usage(error))
        return status.USAGE
    except FencelockError as error:
        _trace(settings)
        complain(str(error))
        return status.of_error(error)
    except Exception as error:  # noqa: BLE001 - the last line of defence against tracebacks
        _trace(settings)
        if old := too_old("cli", "the command line"):
            complain(old)
            return status.UNAVAILABLE
        complain(f"unexpected {type(error).__name__}: {error} (fencelock --debug … shows the traceback)")
        return status.INTERNAL


def _trace(settings: Settings) -> None:
    if settings.debug:
        import traceback

        traceback.print_exc()


def _usage(error: click.ClickException) -> str:
    message = error.format_message().strip().rstrip(".")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    if isinstance(error, click.UsageError) and context is not None:
        return f"{message} (see {context.command_path} --help)"
    return message


def _forget_stdout() -> None:
    # What is still buffered has nowhere to go; the interpreter would complain when it ends.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass
