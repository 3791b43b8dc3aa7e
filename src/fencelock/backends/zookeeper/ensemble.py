"""All sessions of a client, and how to ask in them.

A question is asked again if the connection is lost, until its deadline: kazoo goes on with another member, in
the same session. So what is asked must be the same when done twice; whoever asks sees to that. `NoNodeError`,
`NodeExistsError` and `SessionExpiredError` mean something and pass; everything else is said in our words.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kazoo.exceptions import (  # type: ignore[import-untyped]
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    UnimplementedError,
)
from kazoo.protocol.serialization import Delete, Sync  # type: ignore[import-untyped]

from fencelock.backends.bugs import BUGS
from fencelock.backends.zookeeper.address import Address
from fencelock.backends.zookeeper.answers import Children
from fencelock.backends.zookeeper.doctor import OLDEST, ask
from fencelock.backends.zookeeper.failures import closed, no_answer, no_chroot, said, too_old, unreachable
from fencelock.backends.zookeeper.names import ROOT
from fencelock.backends.zookeeper.results import Results
from fencelock.backends.zookeeper.sessions import Session
from fencelock.errors import BackendError, BackendUnavailable
from fencelock.runtime import clock
from fencelock.runtime.base import Runtime

__all__ = ["Ask", "Ensemble"]

Ask = Callable[[Any], Any]
"""A question: given a client of kazoo's, it returns what the answer will be found in."""

ANY = -1
"""Any version of a znode."""
CHUNK = 100
"""So many questions are asked at a time."""
PAUSE = 0.05
LAST_WORDS = 0.5
"""Seconds that each session has to end in the end of a program."""


class Ensemble:
    """All sessions of a client."""

    reading: Callable[[float], Awaitable[None]]
    """Begins a session for somebody who only looks. Set by the backend."""

    def __init__(self, address: Address, runtime: Runtime, results: Results) -> None:
        self.address = address
        self.runtime = runtime
        self.results = results
        self.sessions: dict[int, Session] = {}
        self._closed = False

    def session(
        self,
        seconds: float,
        *,
        is_idle: Callable[[], bool] = lambda: True,
        is_held: Callable[[], bool] = lambda: False,
        lost: Callable[[str], None] = lambda reason: None,
    ) -> Session:
        """Return a session that is yet to begin: `start` it, then `open` it."""
        if self._closed:
            raise closed()
        return Session(self.address, seconds, is_idle=is_idle, is_held=is_held, lost=lost)

    async def begin(self, seconds: float, deadline: float) -> Session:
        """Begin a session in which nothing is held."""
        session = self.session(seconds)
        try:
            session.start()
            return await self.open(session, deadline)
        except BaseException:
            session.end()
            raise

    async def open(self, session: Session, deadline: float) -> Session:
        """Wait until a session that was started is there. If that fails, it goes on to try."""
        await self.connected(session, deadline)
        if self._closed:  # by a signal handler on this thread
            raise closed()
        self.sessions[session.ident] = session
        return session

    async def connected(self, session: Session, deadline: float) -> None:
        """Wait until a session that was begun is there."""
        try:
            await self.results.of(session.ready, deadline)
        except (KazooException, OSError, *BUGS) as error:
            trouble = session.handler.trouble or error
            raise unreachable(self.address.label, trouble, tls=self.address.tls) from trouble

    async def check_chroot(self, session: Session, deadline: float) -> None:
        """Raise if the chroot of the URL is not there."""
        (found,) = await self.all(session, [lambda client: client.exists_async("/")], deadline)
        if found is None:
            raise no_chroot(self.address.label, self.address.chroot)

    async def reader(self, deadline: float, ident: int = 0) -> Session:
        """Return some session to ask in: that one, if it can be asked now."""
        wanted = self.sessions.get(ident)
        if wanted is not None and wanted.is_connected:
            return wanted
        for _ in range(2):
            sessions = list(self.sessions.values())
            for session in sessions:
                if session.is_connected:
                    return session
            if sessions:
                return sessions[0]
            await self.reading(deadline)
        raise no_answer(self.address.label)

    async def result(self, session: Session, answer: Any, deadline: float) -> Any:
        """Return what kazoo answers, with its failures in our words; those that mean something pass."""
        try:
            return await self.results.of(answer, deadline)
        except (NoNodeError, NodeExistsError, SessionExpiredError):
            raise
        except TimeoutError as error:
            trouble = session.handler.trouble
            if trouble is None:
                raise no_answer(self.address.label) from error
            raise unreachable(self.address.label, trouble, tls=self.address.tls) from error
        except (ConnectionLoss, ConnectionClosedError, SessionMovedError) as error:
            if session.is_over or isinstance(error, ConnectionClosedError):
                raise SessionExpiredError() from error
            raise ConnectionLoss() from error
        except UnimplementedError as error:
            raise await self._too_old(error) from error
        except (KazooException, *BUGS) as error:
            raise said(self.address.label, error) from error

    async def _too_old(self, error: UnimplementedError) -> BackendError:
        """Ask the members for their versions, by a word of their own: a few seconds at most."""
        members = await self.runtime.call(ask, self.address)
        old = [member.version for member in members if member.version and member.version < OLDEST]
        return too_old(self.address.label, min(old)) if old else said(self.address.label, error)

    async def pause(self, session: Session, deadline: float) -> None:
        """The connection is gone: wait a little before asking again."""
        left = deadline - clock.now()
        if left <= 0:
            raise unreachable(
                self.address.label, session.handler.trouble or ConnectionLoss(), tls=self.address.tls
            )
        await self.runtime.sleep(min(PAUSE, left))

    async def all(self, session: Session, asks: Sequence[Callable[[Any], Any]], deadline: float) -> list[Any]:
        """Ask several questions at once, again if the connection is lost; a `NoNodeError` is an answer."""
        found: list[Any] = []
        while len(found) < len(asks):
            answers = [ask(session.client) for ask in asks[len(found) : len(found) + CHUNK]]
            try:
                for answer in answers:
                    try:
                        found.append(await self.result(session, answer, deadline))
                    except NoNodeError as error:
                        found.append(error)
            except ConnectionLoss:
                await self.pause(session, deadline)
        return found

    async def children(
        self, session: Session, parent: str, deadline: float, watch: Any = None
    ) -> Sequence[str] | None:
        """Return the children as the leader has them now; `None` if there is no such parent."""
        while True:
            path = session.path(parent)
            synced, answer = session.ask(Sync(path), Children(path, watch))
            try:
                await self.result(session, synced, deadline)
                found: Sequence[str] = await self.result(session, answer, deadline)
                return found
            except NoNodeError:
                return None
            except ConnectionLoss:
                await self.pause(session, deadline)

    async def somewhere(
        self, ask: Callable[[Session], Awaitable[Any]], deadline: float, ident: int = 0
    ) -> Any:
        """Ask in some session, in that one if it can be asked now; in another, if it ends."""
        while True:
            session = await self.reader(deadline, ident)
            try:
                return await ask(session)
            except SessionExpiredError:
                self.sessions.pop(session.ident, None)
                session.expired()
                await self.pause(session, deadline)

    async def make_parent(self, session: Session, parent: str, deadline: float) -> None:
        """Make the root and a parent below it, where they are not there."""
        while True:
            made = [session.client.create_async(path) for path in (ROOT, parent)]
            refusal: BackendUnavailable | None = None
            try:
                for answer in made:
                    try:
                        await self.result(session, answer, deadline)
                    except NodeExistsError:
                        continue
                    except BackendUnavailable as error:  # of the root it does no harm, if that is there
                        refusal = refusal or error
                        if answer is made[-1]:
                            raise
                return
            except NoNodeError as error:
                raise refusal or no_chroot(self.address.label, self.address.chroot or "/") from error
            except ConnectionLoss:
                await self.pause(session, deadline)

    async def delete(self, paths: Sequence[str], session: Session, deadline: float) -> bool:
        """Delete a request's znodes; say whether the first was there."""
        again = False
        while paths:
            if len(paths) > 1:
                change = session.client.transaction()
                for path in paths:
                    change.delete(path)
                answer = change.commit_async()
            else:
                (answer,) = session.ask(Delete(session.path(paths[0]), ANY))
            try:
                done = await self.result(session, answer, deadline)
            except NoNodeError:
                return again  # we did it, and did not hear of it
            except ConnectionLoss:
                again = True
                await self.pause(session, deadline)
                continue
            if done is True or not any(isinstance(result, Exception) for result in done):
                return True
            found = [await self.delete([path], session, deadline) for path in paths]
            return found[0] or again
        return False

    # The end ----------------------------------------------------------------------------------

    async def end(self, ident: int, deadline: float) -> None:
        """End a session."""
        session = self.sessions.pop(ident, None)
        if session is not None:
            session.end()
            await self.results.over(session, deadline)

    async def close(self, deadline: float) -> None:
        """End all of them."""
        self._closed = True
        for session in list(self.sessions.values()):
            session.end()
        for ident in list(self.sessions):
            await self.end(ident, deadline)

    def forget(self) -> None:
        """End all of them, in the end of a program; does not wait for long."""
        self._closed = True
        sessions, self.sessions = self.sessions, {}
        for session in sessions.values():
            session.end()
        for session in sessions.values():
            session.over.wait(LAST_WORDS)

    def drop(self) -> None:
        """In a forked child: forget them, without a word to the server."""
        for session in self.sessions.values():
            session.drop()
        self.sessions = {}
