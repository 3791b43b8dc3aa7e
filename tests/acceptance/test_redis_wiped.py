"""A server that forgets: FLUSHALL, restarts without persistence, deleted keys, a clock that jumps.

What is lost then is declared: the locks that were held. What still holds: tokens rise and none is given
twice, a holder learns of its loss, and a waiter is served.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crew import wait_until
from redis_desk import FLAVOURS, Desk, counters, desk_for, residue
from tools.servers import start
from tools.servers.clock import Clock

TTL = 1.5


def flush(server: Any) -> None:
    server.ask("FLUSHALL")


def crash(server: Any) -> None:
    server.kill()
    server.restart(keep=False)


def restart(server: Any) -> None:
    server.restart()


def delete(server: Any) -> None:
    for key in residue(server):
        server.ask("DEL", key)


def delete_all(server: Any) -> None:
    for key in [*residue(server), *counters(server)]:
        server.ask("DEL", key)


def forget_scripts(server: Any) -> None:
    server.ask("SCRIPT", "FLUSH")


WIPES = pytest.mark.parametrize(
    "wipe", [flush, crash, restart, delete, delete_all], ids=lambda wipe: wipe.__name__
)


@WIPES
def test_tokens_rise_and_holders_learn_of_it_and_waiters_are_served(
    desk: Desk, group: Any, wipe: Any
) -> None:
    server = group.members[0]
    losses: list[Any] = []
    held = desk.acquire("job", ttl=TTL, on_lost=losses.append)
    wait = desk.waiting("job", ttl=TTL)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    wipe(server)
    served = wait.result(30)
    assert served.token > held.token
    assert desk(served.verify)
    wait_until(lambda: losses, "the holder has learned of its loss")
    assert not held.is_held()
    assert desk(held.release) is False
    assert desk(served.verify), "the late release of the first has harmed the second"
    assert desk(served.release)
    assert len(losses) == 1
    last = desk.acquire("job")
    assert last.token > served.token
    assert desk(last.release)
    assert residue(server) == []


@WIPES
def test_tokens_rise_across_it_while_nobody_holds(desk: Desk, group: Any, wipe: Any) -> None:
    tokens = []
    for _ in range(4):
        for _ in range(25):
            lease = desk.acquire("job")
            tokens.append(lease.token)
            assert desk(lease.release)
        wipe(group.members[0])
    assert tokens == sorted(set(tokens))


def test_the_order_of_waiters_survives_scripts_that_are_forgotten(desk: Desk, group: Any) -> None:
    server = group.members[0]
    held = desk.acquire("job", ttl=30)
    waits = []
    for number in range(3):
        waits.append(desk.waiting("job", ttl=30))
        wait_until(lambda count=number + 1: len(desk.inspect("job").waiters) == count, "it waits")
        forget_scripts(server)
    tokens = [entry.token for entry in desk.inspect("job").waiters]
    forget_scripts(server)
    assert desk(held.release)
    for wait, token in zip(waits, tokens, strict=True):
        lease = wait.result(30)
        assert lease.token == token
        forget_scripts(server)
        assert desk(lease.verify)
        forget_scripts(server)
        assert desk(lease.release)
    assert residue(server) == []


def test_a_holder_is_told_at_its_renewal_that_its_key_was_deleted(desk: Desk, group: Any) -> None:
    server = group.members[0]
    held = desk.acquire("job", ttl=TTL)
    delete(server)
    assert desk(held.verify) is False
    assert not held.is_held()


def test_a_client_idle_during_a_restart_does_not_notice(desk: Desk, group: Any) -> None:
    lease = desk.acquire("job")
    assert desk(lease.release)
    for _ in range(3):
        crash(group.members[0])
        after = desk(desk.locks.lock("job").try_acquire)
        assert after is not None
        assert after.token > lease.token
        assert desk(after.release)


def test_a_release_after_a_restart_is_no_error_even_if_nothing_is_left(desk: Desk, group: Any) -> None:
    lease = desk.acquire("job", ttl=60)
    crash(group.members[0])
    desk(lease.release)
    assert not lease.is_held()
    again = desk.acquire("job")
    assert desk(again.release)


def test_a_release_after_a_restart_with_its_data_is_a_release(tmp_path: Path) -> None:
    settings = {"appendonly": "yes", "appendfsync": "always"}
    for flavour in FLAVOURS:
        with start("redis", settings=settings) as group, desk_for(flavour, group.url) as desk:
            lease = desk.acquire("job", ttl=60)
            group.members[0].kill()
            group.members[0].restart()
            assert desk(lease.verify)
            assert desk(lease.release)
            assert residue(group.members[0]) == []


def test_the_counter_wins_over_a_clock_that_is_behind(desk: Desk, group: Any) -> None:
    server = group.members[0]
    lease = desk.acquire("job")
    assert desk(lease.release)
    (key,) = counters(server)
    ahead = lease.token + 3_600_000_000  # the clock was an hour ahead when the last token was drawn
    server.ask("SET", key, f"{ahead:016d}")
    tokens = []
    for _ in range(20):
        lease = desk.acquire("job")
        tokens.append(lease.token)
        assert desk(lease.release)
    assert tokens == list(range(ahead + 1, ahead + 21))


# A clock that jumps ---------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_clock_that_jumps_back_and_forth(tmp_path: Path, flavour: str) -> None:
    """Leases may end early or late, as declared; tokens rise, and holders learn of it."""
    clock = Clock(tmp_path)
    with start("redis", env=clock.env) as group, desk_for(flavour, group.url) as desk:
        server = group.members[0]
        clock.set(0)
        real = int(server.ask("TIME")[0])
        clock.set(60)
        assert int(server.ask("TIME")[0]) >= real + 60, "the clock does not obey"
        clock.set(0)

        tokens = []
        for jump in (0, 60, -60, 0, -60, 60, 0, 3600, 0):
            clock.set(jump)
            for _ in range(5):
                lease = desk.acquire("job", ttl=20, timeout=90)
                tokens.append(lease.token)
                assert desk(lease.release)
        assert tokens == sorted(set(tokens))

        # Forward: the lease has ended there, another may have it, and the holder is told when it asks.
        clock.set(0)
        early = desk.acquire("job", ttl=20)
        clock.set(60)
        other = desk.acquire("job", ttl=20)
        assert other.token > early.token
        assert desk(early.verify) is False
        assert not early.is_held()
        assert desk(early.release) is False
        assert desk(other.verify)
        # Back: a waiter waits longer, and is served on release.
        clock.set(0)
        wait = desk.waiting("job", ttl=20)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        assert desk(other.release)
        last = wait.result(60)
        assert last.token > other.token
        assert desk(last.release)
        assert residue(server) == []
