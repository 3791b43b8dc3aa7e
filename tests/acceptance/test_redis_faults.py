"""Faults, one class at a time, while processes of both flavours share one lock on a real server.

Each process appends words to a plain list and to one that is guarded by the fencing token, and writes
down what it does; each has a proxy of its own before the server. When the fault is over: the history keeps
every rule of `fencelock.testing.check`, the guarded list has lost nothing, the lock is available again
within ttl + 2 s, and nothing is left on the server. Where processes were stopped inside their section the
plain list must have lost updates, or the fault was not real.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, Member, wait_until
from redis_desk import FLAVOURS, Desk, desk_for, proxied, residue
from tools.servers import start
from workers.resources import Guarded

from fencelock.backends.redis.commands import ACQUIRE, LEAVE, RENEW
from fencelock.testing import (
    History,
    HistoryFile,
    Report,
    TCPProxy,
    boottime,
    check,
    check_available,
    kill,
    lost_updates,
    pause,
    resume,
)

TTL = 1.0
BOUND = TTL + 2.0
SLACK = 10.0
"""For a machine that runs other tests at the same time."""
FAULTS = 3.0
"""Seconds of faults in a run."""


BOTH = pytest.mark.parametrize("group", ["redis", "valkey"], indirect=True)


class Stage:
    """The processes, each with its proxy, and what they wrote down."""

    def __init__(self, folder: Path, url: str, desk: Desk, stack: ExitStack) -> None:
        self.folder, self.url, self.desk, self.stack = folder, url, desk, stack
        self.crew = stack.enter_context(Crew())
        self.history = HistoryFile(folder / "history")
        self.random = random.Random(3)
        self.members: dict[int, tuple[Member, TCPProxy, str]] = {}
        self.started = 0

    def enlist(self, kind: str = "lock") -> None:
        flavour = FLAVOURS[self.started % 2]
        self.started += 1
        name = f"{kind}-{self.started}"
        proxy, url = self.stack.enter_context(proxied(self.url))
        member = self.crew.start("redis_append", url, self.folder, name, flavour, kind, TTL, name=name)
        assert member.hear()["ready"]
        self.members[member.pid] = member, proxy, kind

    def others_wait(self) -> None:
        wait_until(lambda: self.desk.inspect("list").waiters, "all are at work")

    def of(self, role: str) -> tuple[Member, TCPProxy, str]:
        """One that holds, or waits, as far as can be told."""

        def found() -> Any:
            pids = [entry.pid for entry in getattr(self.desk.inspect("list"), role)]
            return next((self.members[pid] for pid in pids if pid in self.members), None)

        member: tuple[Member, TCPProxy, str] = wait_until(found, f"one of the {role}")
        return member

    def anyone(self) -> tuple[Member, TCPProxy, str]:
        return self.random.choice([*self.members.values()])

    def stop(self, member: Member) -> None:
        self.history.paused(member.name)
        pause(member.pid)

    def go_on(self, member: Member) -> None:
        resume(member.pid)
        self.history.resumed(member.name)

    def finish(self) -> History:
        (self.folder / "stop").touch()
        for member, _, _ in self.members.values():
            assert member.end() == 0, member.errors
        self.history.close()
        return History.load(self.folder / "history")


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(getattr(request, "param", "redis")) as group:
        yield group


@pytest.fixture
def stage(tmp_path: Path, group: Any) -> Iterator[Stage]:
    with ExitStack() as stack:
        desk = stack.enter_context(desk_for("blocking", group.url))
        yield Stage(tmp_path, group.url, desk, stack)


def judge(stage: Stage, server: Any, *, grants: int = 20) -> tuple[History, Report]:
    """Heal, let them work for a while, and look at all that has happened."""
    healed = boottime()
    done = History.load(stage.folder / "history").operations()
    before = sum(operation.outcome == "granted" for operation in done)

    def goes_on() -> bool:
        operations = History.load(stage.folder / "history").operations()
        return sum(operation.outcome == "granted" for operation in operations) >= before + 5

    wait_until(goes_on, "the work goes on")
    history = stage.finish()
    report = check(history)
    assert report.ok, str(report)
    assert report.grants > grants
    assert not check_available(history, healed=healed, bound=BOUND + SLACK, names=["list"])
    words = Guarded(stage.folder / "list.db")
    kept = words.look()
    words.close()
    accepted = [event.value for event in history if event.kind == "write" and event.accepted]
    assert sorted(kept) == sorted(accepted), "the guarded list has lost an update"
    wait_until(lambda: residue(server) == [], "nothing is left on the server")
    return history, report


def repeat(fault: Callable[[], None], seconds: float = FAULTS, at_least: int = 2) -> int:
    """Strike again and again."""
    ends, times = time.monotonic() + seconds, 0
    while time.monotonic() < ends or times < at_least:
        fault()
        times += 1
    return times


@BOTH
def test_stopped_inside_the_section_for_longer_than_the_ttl(stage: Stage, group: Any) -> None:
    for _ in range(4):
        stage.enlist()
    stage.others_wait()

    def strike() -> None:
        member, _, _ = stage.of("holders")
        stage.stop(member)
        (still,) = [entry.pid for entry in stage.desk.inspect("list").holders] or [0]
        wait_until(
            lambda: [entry.pid for entry in stage.desk.inspect("list").holders] not in ([], [member.pid]),
            "another has it",
        )
        time.sleep(0.1)  # and writes
        stage.go_on(member)
        hits.append(still == member.pid)

    hits: list[bool] = []
    repeat(strike, at_least=4)
    history, report = judge(stage, group.members[0])
    assert any(hits)
    assert report.rejected > 0, "no stale write came: the fault was not real"
    assert lost_updates(history) > 0, "the plain list has lost nothing: the fault was not real"


def test_stopped_while_the_reply_is_on_its_way(stage: Stage, group: Any) -> None:
    for _ in range(4):
        stage.enlist()
    stage.others_wait()

    def strike() -> None:
        member, proxy, _ = stage.anyone()
        with proxy.hold("replies", match=lambda data: ACQUIRE.sha.encode() in data) as hold:
            assert hold.wait(30)
            stage.stop(member)
            time.sleep(1.2 * TTL)
        stage.go_on(member)

    repeat(strike)
    judge(stage, group.members[0])


@BOTH
def test_replies_are_lost(stage: Stage, group: Any) -> None:
    for _ in range(4):
        stage.enlist()
    stage.others_wait()
    scripts = [script.sha.encode() for script in (ACQUIRE, LEAVE)]
    struck = 0

    def strike() -> None:
        nonlocal struck
        _, proxy, _ = stage.anyone()
        chosen = stage.random.choice(scripts)
        with proxy.swallow(1, match=lambda data: chosen in data) as fault:
            struck += fault.wait(2.0)

    assert repeat(strike) >= 2
    assert struck >= 2
    _, report = judge(stage, group.members[0])
    assert report.losses == 0, "a reply that was lost is no lease that was lost"


@pytest.mark.parametrize("whom", ["one", "all"])
def test_client_and_server_cannot_reach_each_other(stage: Stage, group: Any, whom: str) -> None:
    for _ in range(4):
        stage.enlist()
    stage.others_wait()

    def strike() -> None:
        chosen = [stage.of("holders")] if whom == "one" else [*stage.members.values()]
        holes = [proxy.blackhole() for _, proxy, _ in chosen]
        time.sleep(1.5 * TTL)
        for hole in holes:
            hole.cancel()
        wait_until(lambda: stage.desk.inspect("list").waiters, "they are back")

    repeat(strike)
    judge(stage, group.members[0], grants=10)


def test_connections_are_reset(stage: Stage, group: Any) -> None:
    for _ in range(4):
        stage.enlist()
    stage.others_wait()

    def strike() -> None:
        _, proxy, _ = stage.anyone()
        proxy.reset()
        time.sleep(stage.random.uniform(0.0, 0.05))

    assert repeat(strike) > 20
    judge(stage, group.members[0])


def test_renewals_fail(stage: Stage, group: Any) -> None:
    """A holder whose renewals fail loses its lease and learns of it once; the others go on."""
    for _ in range(4):
        stage.enlist()
    stage.others_wait()
    held, url = [], stage.stack.enter_context(proxied(stage.url))
    with desk_for("blocking", url[1]) as deaf:
        fault = url[0].fail(match=lambda data: RENEW.sha.encode() in data)
        for _ in range(2):
            losses: list[Any] = []
            lease = deaf.acquire("list", ttl=TTL, timeout=60, on_lost=losses.append)
            wait_until(lambda told=losses: told, "it was told of its loss")
            assert not lease.is_held()
            wait_until(lambda: stage.desk.inspect("list").holders, "the others go on")
            assert deaf(lease.verify) is False
            held.append(losses)
        fault.cancel()
        assert [len(losses) for losses in held] == [1, 1]
        assert fault.struck
    judge(stage, group.members[0])


def test_killed_in_a_queue_of_readers_writers_and_permits(stage: Stage, group: Any) -> None:
    for kind in ("write", "read", "permit", "write", "read"):
        stage.enlist(kind)
    stage.others_wait()

    def strike() -> None:
        member, _, kind = stage.of(stage.random.choice(["holders", "waiters"]))
        del stage.members[member.pid]
        stage.history.crashed(member.name)
        assert kill(member.process) == -9
        stage.enlist(kind)
        time.sleep(stage.random.uniform(0.0, 0.3))

    assert repeat(strike, at_least=4) >= 4
    _, report = judge(stage, group.members[0])
    assert report.crashes >= 4


@pytest.mark.parametrize(
    ("option", "bad", "good"),
    [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")],
    ids=["out of memory", "too few replicas"],
)
def test_the_server_refuses_to_write(stage: Stage, group: Any, option: str, bad: str, good: str) -> None:
    server = group.members[0]
    for _ in range(4):
        stage.enlist()
    stage.others_wait()

    def strike() -> None:
        server.ask("CONFIG", "SET", option, bad)
        time.sleep(stage.random.uniform(0.1, 0.5))
        server.ask("CONFIG", "SET", option, good)
        time.sleep(stage.random.uniform(0.1, 0.3))

    assert repeat(strike) >= 2
    judge(stage, server)
