"""Listening for NOTIFY: one connection for all who wait in a client. See `fencelock.backends.pushes`.

Behind a pooler that gives every transaction another session there is nothing to listen on: then waiters
poll, which is said once in the log and by `doctor`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from fencelock.backends.postgres.failures import Refused, said
from fencelock.backends.postgres.failures import unreachable as not_reached
from fencelock.backends.postgres.link import Broken, Link, TaskLink
from fencelock.backends.postgres.pooler import keeps_sessions
from fencelock.backends.postgres.wire import Source
from fencelock.backends.pushes import Lost, TaskListener, ThreadListener
from fencelock.errors import BackendUnavailable
from fencelock.runtime import clock

__all__ = ["NoPushes", "TaskNotifications", "ThreadNotifications"]

LISTEN_LIMIT = 3.0


class NoPushes(Exception):
    """A pooler is in between that does not pass them on: poll."""


async def connect(source: Source, deadline: float) -> Any:
    """Return a connection that can listen."""
    until = min(deadline, clock.now() + LISTEN_LIMIT)
    link = await source.dial(until)
    try:
        if await keeps_sessions(source, link, until):
            return link
    except Refused as error:
        link.close()
        raise said(source.label, error) from error
    except (Broken, TimeoutError) as error:
        link.close()
        raise not_reached(source.label, str(error)) from error
    except BaseException:
        link.close()
        raise
    link.close()
    raise NoPushes


class ThreadNotifications(ThreadListener):
    """Pushes for the threads of a client, by NOTIFY on its channel."""

    def __init__(self, source: Source, channel: str, lost: Lost) -> None:
        super().__init__(lost)
        self._source = source
        self._channel = channel
        self._link: Link | None = None
        self._is_listening = False

    def is_idle(self) -> bool:
        """Whether it listens and nobody waits for a push."""
        return self._is_listening and not self._slots

    async def rest(self, deadline: float) -> None:
        """Listen no more, until somebody waits again: the server need not wake us."""
        if self._is_listening and self._reading.acquire(blocking=False):
            try:
                if not self._slots:
                    self._is_listening = False
                    await self._tell("UNLISTEN *", deadline)
            except BackendUnavailable:
                return  # it is hung up: nobody is woken any more either
            finally:
                self._reading.release()

    async def _tell(self, text: str, deadline: float) -> None:
        link = self._link
        try:
            await self._source.run(link, text, min(deadline, clock.now() + LISTEN_LIMIT))
        except Refused as error:
            self._hang_up()
            raise said(self._source.label, error) from error
        except (Broken, TimeoutError) as error:
            self._hang_up()
            raise not_reached(self._source.label, str(error)) from error
        except BaseException:
            self._hang_up()
            raise

    async def _read(self, deadline: float) -> None:
        try:
            await self._hear(deadline)
        finally:
            if self._ended:  # there is no next reader
                self._hang_up()

    async def _hear(self, deadline: float) -> None:
        if not self._is_listening:
            if self._link is None:
                self._link = await connect(self._source, deadline)
            await self._tell(f'LISTEN "{self._channel}"', deadline)
            self._is_listening = True
            self._all_look()  # for what was pushed while nobody listened
            return
        link = self._link
        if link is None:
            return
        try:
            for push in link.pushes() or (link.pushes() if link.wait(deadline) else ()):
                self.deliver(push)
        except Broken:
            self._hang_up()
        except BaseException:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        self._is_listening = False
        if self._link is not None:
            self._link.close()
            self._link = None
        self._all_look()

    def _end_read(self) -> None:
        link = self._link
        if link is not None:
            link.hang_up()

    async def close(self) -> None:
        self.wake()
        # A reader closes the connection itself. This cannot wait for it: it may be this very thread,
        # interrupted by a signal handler.
        if self._reading.acquire(blocking=False):
            try:
                self._hang_up()
            finally:
                self._reading.release()

    def drop(self) -> None:
        if self._link is not None:
            self._link.drop()


class TaskNotifications(TaskListener):
    """Pushes for the tasks of a client, by NOTIFY on its channel."""

    def __init__(self, source: Source, channel: str, lost: Lost) -> None:
        super().__init__(lost)
        self._source = source
        self._channel = channel
        self._link: TaskLink | None = None
        self._listening = False
        self._closed = False

    def _is_listening(self) -> bool:
        return self._listening

    def is_idle(self) -> bool:
        """Whether it listens and nobody waits for a push."""
        return self._listening and not self._slots

    async def rest(self, deadline: float) -> None:
        """Listen no more, until somebody waits again: the server need not wake us."""
        if self._listening and not self._slots and self._opening is not None:
            async with self._opening:
                if self._listening and not self._slots:
                    self._listening = False
                    with suppress(BackendUnavailable):  # it is hung up: nobody is woken any more either
                        await self._tell("UNLISTEN *", deadline)

    async def _tell(self, text: str, deadline: float) -> None:
        try:
            await self._source.run(self._link, text, min(deadline, clock.now() + LISTEN_LIMIT))
        except Refused as error:
            self._hang_up()
            raise said(self._source.label, error) from error
        except (Broken, TimeoutError) as error:
            self._hang_up()
            raise not_reached(self._source.label, str(error)) from error
        except BaseException:
            self._hang_up()
            raise

    async def _listen(self, deadline: float) -> None:
        if self._link is None:
            link: TaskLink = await connect(self._source, deadline)
            if self._closed:  # meanwhile
                link.close()
                return
            link.listen(self._heard)
            self._link = link
        await self._tell(f'LISTEN "{self._channel}"', deadline)
        self._listening = self._link is not None

    def _heard(self, pushes: list[str], error: Exception | None) -> None:
        for push in pushes:
            self.deliver(push)
        if error is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self._listening = False
        if self._link is not None:
            self._link.close()
            self._link = None
        self._all_look()

    async def close(self) -> None:
        self._closed = True
        self._hang_up()
        await asyncio.sleep(0)

    def drop(self) -> None:
        if self._link is not None:
            self._link.drop()
