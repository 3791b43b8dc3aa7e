"""`manage.py fencelock …`: the command `fencelock`, on the locks that the settings name.

    manage.py fencelock ls
    manage.py fencelock --using other doctor
    manage.py fencelock run nightly -- ./backup.sh        # which gets $FENCELOCK_URL too

Everything from the command's name on is passed as it is, `--help` included. What stands before it belongs
to Django: `--using`, `--settings`, `--pythonpath`.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError  # type: ignore[import-untyped]

from fencelock.__main__ import main
from fencelock.contrib.django.conf import DEFAULT, url_of
from fencelock.errors import FencelockError

__all__ = ["Command"]

USAGE = 64


class Command(BaseCommand):  # type: ignore[misc]
    """Look at the locks of this project, break them, run commands under them."""

    help = "Runs fencelock on the locks of this project: ls, show, watch, break, doctor, run, …"
    requires_system_checks: list[str] = []  # noqa: RUF012 - `doctor` is for when something is wrong

    def run_from_argv(self, argv: list[str]) -> None:
        """Take the arguments as they are: they are not Django's."""
        parser = argparse.ArgumentParser(prog=f"{os.path.basename(argv[0])} {argv[1]}", add_help=False)  # noqa: PTH119
        parser.add_argument("--using", default=DEFAULT)
        parser.add_argument("--settings")
        parser.add_argument("--pythonpath")
        parser.add_argument("arguments", nargs=argparse.REMAINDER)
        given = parser.parse_args(argv[2:])
        sys.exit(self._run(given.using, given.arguments))

    def add_arguments(self, parser: Any) -> None:
        """For `call_command("fencelock", "ls")`."""
        parser.add_argument("--using", default=DEFAULT)
        parser.add_argument("arguments", nargs=argparse.REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run it; a status other than 0 is a `CommandError`."""
        status = self._run(options["using"], options["arguments"])
        if status:
            raise CommandError(f"fencelock ended with status {status}", returncode=status)

    def _run(self, using: str, arguments: list[str]) -> int:
        try:
            url = url_of(using)
        except FencelockError as error:
            self.stderr.write(f"fencelock: {error}")
            return USAGE
        before = os.environ.get("FENCELOCK_URL")
        os.environ["FENCELOCK_URL"] = url
        try:
            return main(arguments)
        finally:
            if before is None:
                del os.environ["FENCELOCK_URL"]
            else:
                os.environ["FENCELOCK_URL"] = before
