"""Connecting: libpq's own steps, with a time limit that is honoured to the fraction.

Under asyncio the names of hosts are looked up beforehand (`hostaddr`): libpq has no asynchronous form of it,
and one slow name server would stop every task of the program.
"""

from __future__ import annotations

import asyncio
import ipaddress
import select
import socket
from typing import Any

from psycopg import pq

from fencelock.backends.bugs import told_as_bugs
from fencelock.backends.postgres.address import Address
from fencelock.backends.postgres.failures import BACKEND, refused
from fencelock.runtime import clock

__all__ = ["CONNECT", "dial", "dial_async"]

CONNECT = 3.0
"""Seconds that a server has to take a connection."""
DEFAULT_PORT = "5432"
OK, FAILED, READING = pq.PollingStatus.OK, pq.PollingStatus.FAILED, pq.PollingStatus.READING


@told_as_bugs(BACKEND, "psycopg")
def dial(address: Address, timeout: float) -> Any:
    """Connect, within `timeout` seconds, and return libpq's connection."""
    until = clock.now() + timeout
    pg = pq.PGconn.connect_start(address.conninfo)
    try:
        while True:
            status = _step(pg, address)
            if status == OK:
                return pg
            poll = select.poll()
            poll.register(pg.socket, select.POLLIN if status == READING else select.POLLOUT)
            left = until - clock.now()
            if left <= 0 or not poll.poll(left * 1000):
                raise refused(address.label, "no answer in time")
    except BaseException:
        pg.finish()
        raise


async def dial_async(address: Address, timeout: float) -> Any:
    """Connect, within `timeout` seconds, and return libpq's connection."""
    try:
        with told_as_bugs(BACKEND, "psycopg"):
            async with asyncio.timeout(timeout):
                return await _dial(await _looked_up(address))
    except TimeoutError:
        raise refused(address.label, "no answer in time") from None


async def _dial(address: Address) -> Any:
    loop = asyncio.get_running_loop()
    pg = pq.PGconn.connect_start(address.conninfo)
    try:
        while True:
            status = _step(pg, address)
            if status == OK:
                return pg
            ready, fd = loop.create_future(), pg.socket
            watch, unwatch = (
                (loop.add_reader, loop.remove_reader)
                if status == READING
                else (loop.add_writer, loop.remove_writer)
            )
            watch(fd, _set, ready)
            try:
                await ready
            finally:
                unwatch(fd)
    except BaseException:
        pg.finish()
        raise


def _step(pg: Any, address: Address) -> Any:
    status = pg.connect_poll()
    if status == FAILED or pg.status == pq.ConnStatus.BAD:
        raise refused(address.label, pq.error_message(pg))
    return status


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _looked_up(address: Address) -> Address:
    """Return the address with the numbers of its hosts; one that cannot be found is left to libpq."""
    parameters = address.parameters
    hosts = parameters.get("host", "").split(",")
    if parameters.get("hostaddr") or not any(_is_name(host) for host in hosts):
        return address
    ports = parameters.get("port", DEFAULT_PORT).split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    found: list[tuple[str, str, str]] = []
    for host, port in zip(hosts, ports, strict=True):
        if not _is_name(host):
            found.append((host, "" if host.startswith("/") else host, port))
            continue
        try:
            numbers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            if len(hosts) == 1:
                words = str(error.strerror or error).lower()
                raise refused(address.label, f"{host!r}: {words}") from error
            continue
        found += [(host, str(number[4][0]), port) for number in numbers]
    names, numbers_, ports_ = zip(*found, strict=True) if found else ((), (), ())
    spelled = {"host": ",".join(names), "hostaddr": ",".join(numbers_), "port": ",".join(ports_)}
    return address.with_parameters(spelled)


def _is_name(host: str) -> bool:
    if not host or host.startswith(("/", "@")):
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return True
    return False
