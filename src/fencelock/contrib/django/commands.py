"""Management commands that run once in the fleet: the same crontab on each host, and one of them does it.

    class Command(OnceCommand):
        once_name = "nightly-report"           # by default made of the command's module

        def handle(self, *args, **options):
            ...                                # self.lease.token, self.lease.check()

The lock is held as long as the command runs, and renewed. When it is not to be had within `once_timeout`
(0: at once) the command fails with status 75, as `fencelock run` does; 76 says that the lease was lost, 69
that the backend cannot be reached. With `once_skip = True` it says so on stderr and ends with status 0.

Not promised: that hosts whose clocks differ do not run it one after the other. A lock keeps two from running
at once, not from running in turn. A command whose lease is lost is not stopped: let it ask
`self.lease.check()`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from fencelock.contrib.calls import held, missing
from fencelock.contrib.django.conf import DEFAULT, locks
from fencelock.durations import Duration
from fencelock.errors import AcquireTimeout, BackendError, LeaseLost
from fencelock.lease import Lease

try:
    from django.core.management.base import BaseCommand, CommandError  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise missing(error, "django") from error

__all__ = ["OnceCommand"]

UNAVAILABLE = 69
BUSY = 75
LOST = 76


class OnceCommand(BaseCommand):  # type: ignore[misc]
    """A management command that one process of the fleet runs at a time."""

    once_name: str | None = None
    """The lock's name."""
    once_using: str = DEFAULT
    once_ttl: Duration = 60
    once_timeout: Duration | None = 0
    once_skip: bool = False
    """Whether a command that finds its lock taken ends with status 0."""

    lease: Lease
    """What the command runs under."""

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command under its lock."""
        name = self.once_name or f"command:{type(self).__module__}"
        try:
            lock = locks(self.once_using).lock(name, ttl=self.once_ttl, timeout=self.once_timeout)
            with ExitStack() as stack:
                try:
                    self.lease = stack.enter_context(held(lock))
                except AcquireTimeout as error:
                    if not self.once_skip:
                        raise CommandError(str(error), returncode=BUSY) from error
                    self.stderr.write(f"skipped: {error}")
                    return None
                except BackendError as error:
                    raise CommandError(str(error), returncode=UNAVAILABLE) from error
                return super().execute(*args, **options)
        except LeaseLost as error:
            raise CommandError(str(error), returncode=LOST) from error
