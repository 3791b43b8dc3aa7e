"""`sqlite:///path/locks.db`: locks among all processes of one host, with no server.

One table holds the queues of all names, ordered by token (see `store.py`). Every step is one
write transaction or one statement, so it happens as a whole or not at all. SQLite's write
lock makes steps take turns; a step that finds it taken tries again until its deadline.

Expiry is by the host's clock that counts suspend; all processes read the same one, and wall
clocks have no part in it. When the host is booted anew every old holder is dead, so all
requests are dropped and tokens begin above a block that was reserved durably before: that is
why a grant need not wait for the disk (`synchronous=NORMAL`).

Whoever leaves a queue sends a datagram to those whose turn it is (see `mailbox.py`); a poll
once a second stands behind it.

Not promised: anything between hosts (a file on a network file system is refused), and
progress of the others while a process is stopped, by SIGSTOP or a debugger, in the very
middle of a step: it has the write lock then, and they get `BackendUnavailable` at their
deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from fencelock.backends.sqlite.doctor import examine
from fencelock.backends.sqlite.mailbox import Mailboxes, mailboxes, ring
from fencelock.backends.sqlite.store import Bell, Store
from fencelock.backends.url import hide_password, split
from fencelock.core.ports import CAPABILITIES, LONGEST_TTL, Backend, Busy, Grant, Outcome, Renewal, Request
from fencelock.errors import ConfigurationError
from fencelock.findings import Finding
from fencelock.guarantees import Guarantees
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime
from fencelock.state import Entry, LockState

__all__ = ["SQLiteBackend"]

T = TypeVar("T")
FORGET_LIMIT = 1.0


class SQLiteBackend(Backend):
    """Locks among all processes of one host, in one file."""

    name = "sqlite"
    capabilities = CAPABILITIES
    renew_batch = 500

    def __init__(self, path: str | Path, *, mkdir: bool = False) -> None:
        """Use the file at `path`; with `mkdir` its missing folder is made, for this user only."""
        self._path = Path(path).expanduser().absolute()
        self._mkdir = mkdir
        self._store = Store(self._path, mkdir=mkdir)

    @classmethod
    def from_url(cls, url: str) -> SQLiteBackend:
        parts = split(url)
        shown = hide_password(url)
        path = unquote(parts.path)
        if parts.authority or parts.fragment or not path.strip("/"):
            raise ConfigurationError(f"{shown!r} names no file: write sqlite:///absolute/path/locks.db")
        if "\0" in path or path.endswith((":memory:", "/")):
            raise ConfigurationError(f"{shown!r} names no file: for locks in memory write memory://")
        options = parts.options
        mkdir = options.pop("mkdir", "no")
        if options or mkdir not in {"yes", "no"}:
            wrong = ", ".join(options) or f"mkdir={mkdir}"
            raise ConfigurationError(
                f"unknown option {wrong} in {shown!r}: sqlite:// knows namespace and mkdir=yes|no"
            )
        return cls(path[1:] if path.startswith("/~") else path, mkdir=mkdir == "yes")

    def open(self, runtime: Runtime, namespace: str, lost: Callable[[str, str], None]) -> None:
        super().open(runtime, namespace, lost)
        self._boxes: Mailboxes = mailboxes(runtime)

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            scope="host",
            use_for="correctness",
            fencing="durable",
            crash_release="ttl",
            clock="nothing",
            failover="nothing",
            restart="nothing",
            fairness="fifo",
            wakeup="push",
            min_ttl=0.05,
            max_ttl=LONGEST_TTL,
            caveats=(
                "only processes of one host exclude each other; network file systems are refused",
                "deadlines are kept on the host's clock since boot, which no program can set",
                "a file restored from a copy gives tokens a second time",
                "a process stopped in the middle of a step blocks the others until it goes on or dies",
                "whoever can write the file can take and break every lock in it",
            ),
        )

    async def acquire(self, request: Request, *, wait: bool, deadline: float) -> Grant | Busy:
        owner = request.owner
        if not self._boxes.has(owner):
            token = await self._step(self._store.take_free, deadline, self.namespace, request)
            if token is not None:
                return Grant(token, request.ttl)
        box = self._boxes.open(owner) if wait else None
        answer, bells = await self._step(self._store.queue_up, deadline, self.namespace, request, box)
        ring(bells)
        if answer.__class__ is Grant:
            self._boxes.close(owner)
        return answer

    async def wait(self, request: Request, deadline: float) -> Grant | None:
        await self._boxes.wait(request.owner, deadline)
        return None

    def wake(self) -> None:
        self._boxes.ring_all()

    async def renew(self, renewals: Sequence[Renewal], *, deadline: float) -> Sequence[Outcome]:
        return await self._step(self._store.renew, deadline, renewals)

    async def release(self, request: Request, token: int, *, deadline: float) -> bool:
        there, bells = await self._step(self._store.leave, deadline, self.namespace, request, token)
        ring(bells)
        return there

    async def abandon(self, request: Request, *, deadline: float) -> None:
        self._boxes.close(request.owner)
        _, bells = await self._step(self._store.leave, deadline, self.namespace, request, None)
        ring(bells)

    async def inspect(self, name: str, *, deadline: float) -> LockState:
        return await self._step(self._store.inspect, deadline, self.namespace, name)

    async def list(self, prefix: str, *, deadline: float) -> Sequence[LockState]:
        return await self._step(self._store.list_all, deadline, self.namespace, prefix)

    async def force_release(self, name: str, owner: str | None, *, deadline: float) -> Sequence[Entry]:
        result: tuple[list[Entry], list[Bell]] = await self._step(
            self._store.force_release, deadline, self.namespace, name, owner
        )
        entries, bells = result
        ring(bells)
        return entries

    async def close(self) -> None:
        self._boxes.close_all()
        await self.runtime.call(self._store.close)

    async def doctor(self) -> Sequence[Finding]:
        settings = await self._step(self._store.settings, self.runtime.now() + 5.0)
        return examine(self._path, settings)

    def forget(self, requests: Sequence[Request]) -> None:
        for request in requests:
            _, bells = self._store.step(
                clock.now() + FORGET_LIMIT, self._store.leave, self.namespace, request, None
            )
            ring(bells)
        self._store.close()

    def forked(self) -> None:
        self._boxes.forked()
        self._store = Store(self._path, mkdir=self._mkdir)
        self._boxes = mailboxes(self.runtime)

    async def _step(self, work: Callable[..., T], deadline: float, *args: object) -> T:
        return await self.runtime.call(self._store.step, deadline, work, *args)

    def __repr__(self) -> str:
        return f"<SQLiteBackend {self._path}>"
