"""Registers: one value with a version, on Redis, etcd, Consul or ZooKeeper, written only if unchanged.

`read()` gives the value and its version, `set(value, version)` writes if the version is still that one. The
answers have the same shape as for rows: `Updated` or `Conflicted`, with what stands there now.

NOT promised: a write whose answer was lost, and which cannot be recognised any more, raises
`BackendUnavailable`: whether it was done is not known then, and neither `Updated` nor `Conflicted` would be
true.
"""

from __future__ import annotations

import os
from typing import Self

from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.names import check_name, shown
from fencelock.optimistic.cells import Value, cell_from_url
from fencelock.optimistic.results import Conflicted, Updated
from fencelock.runtime import blocking, clock

__all__ = ["AsyncRegister", "Register"]

LARGEST = 512 * 1024
"""Bytes: what Consul takes in one key. etcd and ZooKeeper take a little more, Redis much more."""
HIGHEST = 2**63 - 1
GOODBYE = 2.0


class _Base:
    """What both flavours share."""

    def __init__(self, url: str, name: str, *, timeout: Duration = 5.0, is_async: bool) -> None:
        self.name = check_name(name)
        self._timeout = duration(timeout, "timeout")
        self._url = url
        self._is_async = is_async
        self._cell = cell_from_url(url, name, is_async=is_async)
        self._process = os.getpid()
        self._is_closed = False

    async def _read(self) -> Value:
        self._check()
        return await self._cell.read(clock.now() + self._timeout)

    async def _set(self, value: bytes, version: int) -> Updated[Value] | Conflicted[Value]:
        if not isinstance(value, bytes) or len(value) > LARGEST:
            raise ConfigurationError(f"value={shown(value)} cannot be kept: give at most {LARGEST} bytes")
        if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= HIGHEST:
            raise ConfigurationError(
                f"version={shown(version)} is no version: give the whole number that was read with the value"
            )
        self._check()
        deadline = clock.now() + self._timeout
        done = await self._cell.set(value, version, deadline)
        if done is not None:
            return Updated(done)
        return Conflicted(await self._cell.read(deadline), self.name)

    def _check(self) -> None:
        if self._is_closed:
            raise ConfigurationError(f"register {self.name!r} is closed: make another")
        if self._process != os.getpid():  # the parent's connections are the parent's
            self._cell.drop()
            self._cell = cell_from_url(self._url, self.name, is_async=self._is_async)
            self._process = os.getpid()

    async def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._cell.close(clock.now() + GOODBYE)


class Register(_Base):
    """One value with a version, in a store of fencelock's: `redis://`, `etcd://`, `consul://`, `zookeeper://`.

    Any number of threads may share one. `timeout` is for each call.
    """

    def __init__(self, url: str, name: str, *, timeout: Duration = 5.0) -> None:
        super().__init__(url, name, timeout=timeout, is_async=False)

    def read(self) -> Value:
        """Return the value and its version: `None` and 0 if it was never written."""
        return blocking.run(self._read())

    def set(self, value: bytes, version: int) -> Updated[Value] | Conflicted[Value]:
        """Write, if the version is still this one; answer with what stands there now."""
        return blocking.run(self._set(value, version))

    def close(self) -> None:
        """Close the connections."""
        blocking.run(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRegister(_Base):
    """The same as `Register`, for asyncio. It belongs to the loop it is used on."""

    def __init__(self, url: str, name: str, *, timeout: Duration = 5.0) -> None:
        super().__init__(url, name, timeout=timeout, is_async=True)

    async def read(self) -> Value:
        """Return the value and its version: `None` and 0 if it was never written."""
        return await self._read()

    async def set(self, value: bytes, version: int) -> Updated[Value] | Conflicted[Value]:
        """Write, if the version is still this one; answer with what stands there now."""
        return await self._set(value, version)

    async def close(self) -> None:
        """Close the connections."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
