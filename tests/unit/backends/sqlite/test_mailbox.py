"""Mailboxes: a bell is a hint. Lost, forged or late, it costs a look or a second, never the lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencelock import AsyncClient, Client
from fencelock.backends import sqlite
from fencelock.backends.sqlite.mailbox import BlockingMailboxes, _forget_sender, _sender, mailboxes, ring
from fencelock.backends.sqlite.store import Bell
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.testing.conformance.expect import took
from unit.support import in_fork, until, until_async

Operator = Callable[[str], list[tuple[Any, ...]]]

JUNK = [b"", b"x", b"\xff" * 64, b"y" * 5000, os.urandom(32)]


def waiting(client: Client, name: str = "x") -> tuple[threading.Thread, list[float]]:
    """A thread that waits for a lock, and notes when it got it."""
    got: list[float] = []

    def wait() -> None:
        with client.lock(name, timeout=30):
            got.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, got


def hand_over(path: Path) -> float:
    """How long a blocking waiter takes to notice a release."""
    with Client(f"sqlite://{path}") as holder, Client(f"sqlite://{path}") as waiter:
        lease = holder.lock("x").acquire()
        thread, got = waiting(waiter)
        assert until(lambda: holder.inspect("x").waiters)
        time.sleep(0.02)
        released = time.monotonic()
        lease.release()
        thread.join(30)
        return got[0] - released


async def hand_over_async(path: Path) -> float:
    async with AsyncClient(f"sqlite://{path}") as holder, AsyncClient(f"sqlite://{path}") as waiter:
        lease = await holder.lock("x").acquire()
        task = asyncio.create_task(waiter.lock("x", timeout=30).acquire())
        while not (await holder.inspect("x")).waiters:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        released = time.monotonic()
        await lease.release()
        mine = await task
        waited = time.monotonic() - released
        await mine.release()
        return waited


@pytest.fixture
def polls_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a waiter look by itself after twenty seconds only: a message comes before that, on any machine."""
    monkeypatch.setattr("fencelock.core.acquire.patience", lambda ttl: 60.0)


@pytest.mark.usefixtures("polls_are_rare")
def test_a_release_wakes_the_next_well_before_its_poll(path: Path) -> None:
    assert hand_over(path) < 15


@pytest.mark.usefixtures("polls_are_rare")
def test_a_release_wakes_the_next_task_well_before_its_poll(path: Path) -> None:
    assert asyncio.run(hand_over_async(path)) < 15


@pytest.mark.timing
def test_when_no_message_arrives_the_next_finds_out_by_polling(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "ring", lambda bells: None)
    took(0.0, hand_over(path), 3.0, "the handoff")


@pytest.mark.timing
def test_when_no_message_arrives_the_next_task_finds_out_by_polling(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "ring", lambda bells: None)
    took(0.0, asyncio.run(hand_over_async(path)), 3.0, "the handoff")


def forge(mailbox: str, owner: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for message in [*JUNK, owner.encode()]:
            with contextlib.suppress(BlockingIOError):  # its queue is full
                sender.sendto(message, "\0" + mailbox[1:])


def test_forged_messages_let_nobody_in(path: Path, client: Client, operator: Operator) -> None:
    with client.lock("x") as lease, Client(f"sqlite://{path}") as other:
        thread, got = waiting(other)
        assert until(lambda: client.inspect("x").waiters)
        ((mailbox, owner),) = operator("SELECT mailbox, owner FROM queue WHERE mailbox IS NOT NULL")
        for _ in range(20):
            forge(mailbox, owner)
        time.sleep(0.1)
        assert got == []
        assert lease.verify()
        lease.release()
        thread.join(30)
        assert len(got) == 1


def test_forged_messages_let_no_task_in(path: Path, client: Client, operator: Operator) -> None:
    async def main() -> None:
        async with AsyncClient(f"sqlite://{path}") as other:
            lease = client.lock("x").acquire()
            task = asyncio.create_task(other.lock("x", timeout=30).acquire())
            assert await until_async(lambda: client.inspect("x").waiters)
            ((mailbox, owner),) = operator("SELECT mailbox, owner FROM queue WHERE mailbox IS NOT NULL")
            for _ in range(20):
                forge(mailbox, owner)
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.1)
            assert not task.done()
            lease.release()
            await (await task).release()

    asyncio.run(main())


def test_a_mailbox_in_the_file_that_leads_nowhere_is_harmless(client: Client, operator: Operator) -> None:
    lease = client.lock("x").acquire()
    thread, got = waiting(client)
    assert until(lambda: client.inspect("x").waiters)
    for mailbox in ("@nowhere", "/nowhere/at/all", "x" * 500, ""):
        operator(f"UPDATE queue SET mailbox = '{mailbox}' WHERE mailbox IS NOT NULL")
    lease.release()
    thread.join(30)
    assert len(got) == 1


def test_ringing_for_nobody_is_harmless() -> None:
    ring([Bell("@nobody-listens-here", "o"), Bell("/no/such/folder/socket", "o"), Bell("y" * 300, "o")])


def test_a_message_for_the_last_one_who_used_a_mailbox_wakes_nobody() -> None:
    boxes = BlockingMailboxes(BlockingRuntime())
    address = boxes.open("first")
    boxes.close("first")
    assert boxes.open("second") == address
    ring([Bell(address, "first")])
    before = time.monotonic()
    run(boxes.wait("second", BlockingRuntime().now() + 0.05))
    assert time.monotonic() - before >= 0.04
    ring([Bell(address, "first"), Bell(address, "second")])
    before = time.monotonic()
    run(boxes.wait("second", BlockingRuntime().now() + 30))
    assert time.monotonic() - before < 10
    boxes.close_all()
    boxes.close_all()


def test_mailboxes_fit_the_runtime() -> None:
    boxes = mailboxes(BlockingRuntime())
    assert isinstance(boxes, BlockingMailboxes)
    assert not boxes.has("o")
    assert boxes.open("o").startswith("@fencelock-")
    assert boxes.has("o")
    boxes.close_all()


def sockets() -> set[str]:
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def test_closing_a_client_closes_its_sockets(path: Path) -> None:
    hand_over(path)  # the socket that messages are sent from stays
    before = sockets()
    hand_over(path)
    asyncio.run(hand_over_async(path))
    assert sockets() == before


def test_a_forked_child_has_none_of_the_parents_sockets(path: Path, client: Client) -> None:
    before = sockets()
    lease = client.lock("x").acquire()
    thread, got = waiting(client)
    assert until(lambda: client.inspect("x").waiters)
    ours = sockets() - before
    assert ours
    assert not set(in_fork(lambda: list(sockets()))) & ours
    lease.release()
    thread.join(30)
    assert len(got) == 1


def test_threads_that_ring_at_once_share_one_sender() -> None:
    _forget_sender()
    together = threading.Barrier(8)
    senders: list[socket.socket] = []

    def ring() -> None:
        together.wait(30)
        senders.append(_sender())

    threads = [threading.Thread(target=ring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, senders))) == 1
    assert senders[0].fileno() >= 0
