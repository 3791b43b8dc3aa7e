"""Connections that break, replies that are lost, and what becomes of the steps that were under way."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from crew import wait_until
from mysql_desk import cut, desk_for, nothing_left, ours, proxied, residue
from tools.servers import start

from fencelock import AcquireTimeout, AsyncClient, BackendUnavailable, Client


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        yield group.members[0]


def test_a_connection_that_was_closed_while_idle_goes_unnoticed(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        lease = desk.acquire("job", ttl=30)
        for number in ours(server):
            cut(server, number)
        assert desk(lease.verify)
        for number in ours(server):
            cut(server, number)
        assert desk(lease.release)
        assert residue(server) == 0


@pytest.mark.parametrize("mode", ["reset", "hang"])
def test_a_lost_reply_is_asked_for_again(server: Any, flavour: str, mode: str) -> None:
    """The step was done; its repetition finds that, and nobody is the wiser."""
    with proxied(server.url) as (proxy, through), desk_for(flavour, through) as desk:
        desk(desk.acquire("warm").release)
        with proxy.swallow(match=lambda data: b"acquire_v1" in data, then=mode) as fault:
            lease = desk.acquire("job", ttl=30)
            assert fault.wait()
        assert desk(lease.verify)
        with proxy.swallow(match=lambda data: b"leave_v2" in data, then=mode) as fault:
            assert desk(lease.release)
            assert fault.wait()
        assert residue(server) == 0


def test_renewals_that_fail_are_a_loss_at_the_deadline(server: Any, flavour: str) -> None:
    with proxied(server.url) as (proxy, through), desk_for(flavour, through) as desk:
        lease = desk.acquire("job", ttl=1.5)
        with proxy.fail(match=lambda data: b"renew_v2" in data):
            wait_until(lambda: not lease.is_held(), "the loss is told", 15)
        with Client(server.url) as others:
            later = others.lock("job").acquire(timeout=30)
            assert later.token > lease.token
            later.release()
        assert not desk(lease.release)


def test_steps_that_are_cut_off_anywhere_leave_nothing(server: Any) -> None:
    """A cancelled step may reach the server after the request was given up on another connection."""

    async def main() -> None:
        dice = random.Random(5)
        async with AsyncClient(server.url) as locks:
            await (await locks.lock("warm").acquire()).release()
            for turn in range(150):
                task = asyncio.ensure_future(locks.lock(f"job-{turn % 3}", ttl=60).acquire(timeout=20))
                await asyncio.sleep(dice.random() * 0.003)
                task.cancel()
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    continue
            assert await locks.list("job-") == []

    asyncio.run(main())
    time.sleep(0.5)
    assert residue(server) == 0
    nothing_left(server)


def test_a_server_that_does_not_answer(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        desk(desk.acquire("job").release)
        server.pause()
        try:
            with pytest.raises((BackendUnavailable, AcquireTimeout)):
                desk.acquire("job", timeout=1.0)
        finally:
            server.resume()
        lease = desk.acquire("job", timeout=30)
        assert desk(lease.release)
    wait_until(lambda: residue(server) == 0, "nothing is left", 20)


def test_more_threads_than_connections(server: Any, flavour: str) -> None:
    url = f"{server.url}?pool_size=2"
    with desk_for(flavour, url) as desk:
        futures = [desk.waiting("job", ttl=30) for _ in range(12)]
        tokens = []
        while futures:
            done = [future for future in futures if future.done()]
            for future in done:
                lease = future.result()
                tokens.append(lease.token)
                assert desk(lease.release)
                futures.remove(future)
            assert len(ours(server)) <= 2
            time.sleep(0.01)
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == 12


def test_deadlocks_are_retried(server: Any, flavour: str) -> None:
    """A row that somebody else keeps locked for a while: the step waits, or is undone and repeated."""
    with desk_for(flavour, server.url) as desk:
        desk(desk.acquire("job").release)
        from fencelock.backends.mysql.places import Places

        bucket = Places("").find("job").bucket
        import pymysql

        other = pymysql.connect(
            host=server.host, port=server.port, user="root", database="fencelock", ssl_disabled=True
        )
        try:
            with other.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
                cursor.execute(f"SELECT * FROM fencelock_buckets WHERE bucket = {bucket} FOR UPDATE")
            future = desk.waiting("job", ttl=30, timeout=30)
            time.sleep(1.0)
            assert not future.done()
            other.rollback()
            lease = future.result(30)
            assert desk(lease.release)
        finally:
            other.close()
