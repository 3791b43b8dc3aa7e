"""Mailboxes: how a waiter in one process is told by another that its turn has come.

A waiter names a Unix datagram socket in its row; whoever leaves the queue sends the waiter's
owner id there. A message is a hint and nothing more: the waiter looks into the file before
it believes anything, so a forged or late one costs a look. One that is lost costs the time
until the next poll.

On Linux the addresses are in the abstract namespace: nothing on disk, gone with the process.
They do not cross network namespaces; processes in different containers fall back to polling.
Elsewhere the sockets are files in a private folder.

Blocking: each waiting thread has a socket of its own, from a pool, and sleeps in `recv`.
asyncio: one socket for all tasks, read by the loop.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fencelock.backends.sqlite.store import Bell
from fencelock.runtime.base import Runtime, Signal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["Mailboxes", "mailboxes", "ring"]

OWNER_SIZE = 64


class Mailboxes(Protocol):
    """The mailboxes of a client: one for each request that waits."""

    def has(self, owner: str) -> bool: ...
    def open(self, owner: str) -> str:
        """Return the address of the owner's mailbox, made now if it has none."""

    async def wait(self, owner: str, deadline: float) -> None:
        """Return when the bell rings for this owner, or at the deadline."""

    def ring_all(self) -> None:
        """Ring for every owner that waits in this client."""

    def close(self, owner: str) -> None: ...
    def close_all(self) -> None: ...
    def forked(self) -> None:
        """In a forked child: close our copies. The parent's sockets stay bound as they are."""


def mailboxes(runtime: Runtime) -> Mailboxes:
    """Return the mailboxes for a runtime."""
    return AsyncioMailboxes(runtime) if runtime.flavour == "asyncio" else BlockingMailboxes(runtime)


def ring(bells: Iterable[Bell]) -> None:
    """Tell each of them that its turn has come. Whoever cannot be reached will find out by itself."""
    for bell in bells:
        with contextlib.suppress(OSError):
            _sender().sendto(bell.owner.encode(), _address(bell.mailbox))


_senders: dict[str, socket.socket] = {}


def _sender() -> socket.socket:
    """Return the socket that all threads of the process send from."""
    sender = _senders.get("one")
    if sender is None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.setblocking(False)
        sender = _senders.setdefault("one", made)  # atomic: of two threads that come at once, one wins
        if sender is not made:
            made.close()
    return sender


def _forget_sender() -> None:
    sender = _senders.pop("one", None)
    if sender is not None:
        sender.close()


os.register_at_fork(after_in_child=_forget_sender)
atexit.register(_forget_sender)


def _address(mailbox: str) -> str:
    return "\0" + mailbox[1:] if mailbox.startswith("@") else mailbox


class BlockingMailboxes:
    """A socket for each waiting thread; those that are not in use are kept for the next."""

    def __init__(self, runtime: Runtime) -> None:
        self._now = runtime.now
        self._used: dict[str, tuple[str, socket.socket]] = {}
        self._spare: list[tuple[str, socket.socket]] = []

    def has(self, owner: str) -> bool:
        return owner in self._used

    def open(self, owner: str) -> str:
        box = self._used.get(owner)
        if box is None:
            try:
                box = self._spare.pop()
            except IndexError:
                box = _bound()
            self._used[owner] = box
        return box[0]

    async def wait(self, owner: str, deadline: float) -> None:
        box = self._used.get(owner)
        if box is None:
            return  # closed meanwhile, as the caller will see
        receiver = box[1]
        wanted = owner.encode()
        while (left := deadline - self._now()) > 0:
            try:
                receiver.settimeout(left)
                if receiver.recv(OWNER_SIZE) == wanted:  # else: for one who used this box before
                    return
            except TimeoutError:
                return
            except OSError:
                if receiver.fileno() == -1:
                    return  # closed meanwhile
                raise

    def ring_all(self) -> None:
        ring(Bell(box[0], owner) for owner, box in list(self._used.items()))

    def close(self, owner: str) -> None:
        box = self._used.pop(owner, None)
        if box is not None:
            self._spare.append(box)

    def close_all(self) -> None:
        for box in [*self._used.values(), *self._spare]:
            _unbind(box)
        self._used.clear()
        self._spare.clear()

    def forked(self) -> None:
        for _, receiver in [*self._used.values(), *self._spare]:
            receiver.close()


class AsyncioMailboxes:
    """One socket, read by the loop, that wakes the task it is for."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._box: tuple[str, socket.socket] | None = None
        self._signals: dict[str, Signal] = {}

    @property
    def _loop(self) -> AbstractEventLoop:
        from asyncio import get_running_loop  # only who uses asyncio pays for importing it

        return get_running_loop()

    def has(self, owner: str) -> bool:
        return owner in self._signals

    def open(self, owner: str) -> str:
        if self._box is None:
            self._box = _bound()
            self._box[1].setblocking(False)
            self._loop.add_reader(self._box[1], self._read, self._box[1])
        if owner not in self._signals:
            self._signals[owner] = self._runtime.signal()
        return self._box[0]

    def _read(self, receiver: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                signal = self._signals.get(receiver.recv(OWNER_SIZE).decode("ascii", "replace"))
                if signal is not None:
                    signal.notify()

    async def wait(self, owner: str, deadline: float) -> None:
        signal = self._signals.get(owner)
        if signal is not None:  # else: closed meanwhile, as the caller will see
            await signal.wait(deadline - self._runtime.now())

    def ring_all(self) -> None:
        for signal in list(self._signals.values()):
            signal.notify()

    def close(self, owner: str) -> None:
        self._signals.pop(owner, None)

    def close_all(self) -> None:
        self._signals.clear()
        if self._box is not None:
            self._loop.remove_reader(self._box[1])
            _unbind(self._box)
            self._box = None

    def forked(self) -> None:
        if self._box is not None:
            self._box[1].close()


def _bound() -> tuple[str, socket.socket]:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    name = f"fencelock-{secrets.token_hex(8)}"
    mailbox = f"@{name}" if sys.platform == "linux" else str(_folder() / name)
    try:
        receiver.bind(_address(mailbox))
    except BaseException:
        receiver.close()
        raise
    return mailbox, receiver


def _unbind(box: tuple[str, socket.socket]) -> None:
    mailbox, receiver = box
    receiver.close()
    if not mailbox.startswith("@"):
        Path(mailbox).unlink(missing_ok=True)


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"fencelock-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
