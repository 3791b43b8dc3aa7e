"""How a workload writes a history: one method for each kind of event.

``Recorder`` turns calls into events; where they go is the subclass's business: ``History`` keeps
them in memory, ``HistoryFile`` appends them to a file that other processes append to as well.
``acquire`` answers with an ``Attempt``, which knows its request id, so a workload reads::

    attempt = history.acquire("client-1", "invoice:42")      # before the call
    try:
        lease = lock.acquire(timeout=5)
    except AcquireTimeout:
        attempt.timeout()
    else:
        attempt.leased(lease)                                # after it returned
        ...
        attempt.release()                                    # before the call
        lease.release()
        attempt.released()

Re-entry of a lock is no acquisition of its own (same token) and is not recorded.

Request ids are ``client/number``, counted per recorder, so a client id must not be used by two
processes, nor again after a crash. The same seed gives the same ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fencelock.runtime import locks
from fencelock.testing.events import Event, Kind, Mode, Value, boottime


class LeaseLike(Protocol):
    """What ``Attempt.leased`` and ``Attempt.observe`` ask of a lease: local questions, no I/O."""

    @property
    def token(self) -> int: ...
    @property
    def owner(self) -> str: ...
    def remaining(self) -> float:
        """Seconds for which that is certain."""
        ...

    def is_held(self) -> bool:
        """Whether the lock is certainly held."""
        ...


class Recorder:
    """Records events; safe to use from any number of threads."""

    def __init__(self, *, clock: Callable[[], float] = boottime) -> None:
        self.clock = clock
        self._lock = locks.lock()
        self._counts: dict[str, int] = {}

    def append(self, event: Event) -> None:
        """Take one event as it is."""
        raise NotImplementedError

    def acquire(
        self,
        client: str,
        name: str,
        *,
        mode: Mode = "exclusive",
        limit: int | None = None,
        request: str | None = None,
        at: float | None = None,
    ) -> Attempt:
        """Record that acquire is about to be called, and return what records the rest of it."""
        attempt = Attempt(self, client, request or self._next_request(client), name)
        attempt.note("acquire", at, mode=mode, limit=limit)
        return attempt

    def crashed(self, client: str, *, at: float | None = None) -> None:
        """Record, before killing it, that a client dies."""
        self.append(Event("crashed", self._at(at), client))

    def paused(self, client: str, *, at: float | None = None) -> None:
        """Record, before stopping it, that a client stands still."""
        self.append(Event("paused", self._at(at), client))

    def resumed(self, client: str, *, at: float | None = None) -> None:
        """Record, after continuing it, that a client runs again."""
        self.append(Event("resumed", self._at(at), client))

    def breaking(
        self, client: str, name: str = "", *, owner: str | None = None, at: float | None = None
    ) -> None:
        """Record, before it is done, that a lock is broken or its records deleted (no name: all)."""
        self.append(Event("break", self._at(at), client, name=name, owner=owner))

    def broke(
        self, client: str, name: str = "", *, owner: str | None = None, at: float | None = None
    ) -> None:
        """Record that the break announced by ``breaking`` is over."""
        self.append(Event("broke", self._at(at), client, name=name, owner=owner))

    def write(
        self,
        client: str,
        resource: str,
        *,
        token: int,
        base: Value | None = None,
        value: Value | None = None,
        seq: int | None = None,
        accepted: bool | None = True,
        at: float | None = None,
    ) -> None:
        """Record a write to a guarded resource.

        ``base`` is the version that the section had read, ``seq`` the place of the write in the
        resource's own order (required when accepted: times cannot tell which of two writes came
        first). ``accepted=None`` says that the answer never came.
        """
        if accepted and seq is None:
            raise ValueError("an accepted write to a guarded resource needs its seq")
        self.append(
            Event(
                "write",
                self._at(at),
                client,
                token=token,
                resource=resource,
                base=base,
                value=value,
                seq=seq,
                accepted=accepted,
            )
        )

    def plain(
        self,
        client: str,
        resource: str,
        *,
        base: Value,
        value: Value | None = None,
        accepted: bool | None = True,
        at: float | None = None,
    ) -> None:
        """Record a write to a resource that checks no token: the control."""
        event = Event("plain", self._at(at), client, resource=resource, base=base, value=value)
        self.append(event._replace(accepted=accepted))

    def _at(self, at: float | None) -> float:
        return self.clock() if at is None else at

    def _next_request(self, client: str) -> str:
        with self._lock:
            number = self._counts[client] = self._counts.get(client, 0) + 1
        return f"{client}/{number}"


class Attempt:
    """One acquisition, from its invocation to the last word of its lease."""

    __slots__ = ("client", "name", "recorder", "request")

    def __init__(self, recorder: Recorder, client: str, request: str, name: str) -> None:
        self.recorder = recorder
        self.client = client
        self.request = request
        self.name = name

    def queued(self, ticket: int | None = None, *, at: float | None = None) -> None:
        """Record that the backend acknowledged the place; another ticket means another place."""
        self.note("queued", at, token=ticket)

    def requeued(self, ticket: int | None = None, *, at: float | None = None) -> None:
        """Record that the place was lost and a new one acknowledged."""
        self.note("requeued", at, token=ticket)

    def granted(
        self, *, token: int, deadline: float, owner: str | None = None, at: float | None = None
    ) -> None:
        """Record that acquire returned a lease whose local deadline is ``deadline``."""
        self.note("granted", at, token=token, deadline=deadline, owner=owner)

    def leased(self, lease: LeaseLike) -> None:
        """Record the grant of this lease, asking the lease itself."""
        at = self.recorder.clock()  # before remaining(): at + remaining() is then never too late
        self.granted(token=lease.token, owner=lease.owner, deadline=at + lease.remaining(), at=at)

    def timeout(self, *, at: float | None = None) -> None:
        """Record that acquire gave up."""
        self.note("timeout", at)

    def cancelled(self, *, at: float | None = None) -> None:
        """Record that acquire was cancelled."""
        self.note("cancelled", at)

    def failed(self, detail: str = "", *, at: float | None = None) -> None:
        """Record that acquire raised something else."""
        self.note("failed", at, detail=detail or None)

    def extend(self, ttl: float, *, at: float | None = None) -> None:
        """Record that extend is about to be called."""
        self.note("extend", at, ttl=ttl)

    def extended(self, deadline: float, *, at: float | None = None) -> None:
        """Record that extend returned and the lease now lasts until ``deadline``."""
        self.note("extended", at, deadline=deadline)

    def renewed(self, deadline: float, *, at: float | None = None) -> None:
        """Record that a renewal moved the deadline; ``at`` is the reading it was decided on."""
        self.note("renewed", at, deadline=deadline)

    def held(self, deadline: float, *, at: float | None = None) -> None:
        """Record that the lease said it is held until ``deadline``; ``at`` is from before asking."""
        self.note("held", at, deadline=deadline)

    def observe(self, lease: LeaseLike) -> bool:
        """Ask the lease whether it is held, record it if so, and return the answer."""
        at = self.recorder.clock()
        # remaining() first: once it is 0 the lease is lost for good, and is_held() must agree.
        remaining = lease.remaining()
        if not lease.is_held():
            return False
        self.held(at + remaining, at=at)
        return True

    def lost(self, detail: str = "", *, at: float | None = None) -> None:
        """Record that the loss was signalled."""
        self.note("lost", at, detail=detail or None)

    def release(self, *, at: float | None = None) -> None:
        """Record that release is about to be called."""
        self.note("release", at)

    def released(self, *, at: float | None = None) -> None:
        """Record that release returned."""
        self.note("released", at)

    def note(
        self,
        kind: Kind,
        at: float | None = None,
        *,
        mode: Mode | None = None,
        limit: int | None = None,
        token: int | None = None,
        owner: str | None = None,
        deadline: float | None = None,
        ttl: float | None = None,
        detail: str | None = None,
    ) -> None:
        """Record an event of this acquisition."""
        when = self.recorder.clock() if at is None else at
        event = Event(
            kind, when, self.client, self.request, self.name, mode, limit, token, owner, deadline, ttl
        )
        self.recorder.append(event if detail is None else event._replace(detail=detail))


class HistoryFile(Recorder):
    """A history on disk that any number of processes append to at once.

    Each event is one ``write`` to a descriptor opened with ``O_APPEND``, which the kernel does
    not interleave on a local file system, so no lock is shared and a killed process leaves none
    behind. The events are read back with ``History.load``.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = boottime) -> None:
        super().__init__(clock=clock)
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def append(self, event: Event) -> None:
        """Write one line."""
        line = (event.to_json() + "\n").encode()
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"short write to {self.path}: {written} of {len(line)} bytes")

    def close(self) -> None:
        """Close the file; closing twice is fine."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> HistoryFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
