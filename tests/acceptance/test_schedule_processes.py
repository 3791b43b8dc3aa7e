"""Schedules among real processes with wrong clocks: each tick once; a host killed or paused in the middle.

`FENCELOCK_SECONDS=60` lets them run so long, with other clocks, on every kind of store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from crew import Crew, Member, stop_between_steps, wait_until
from tools.servers import start

from fencelock import Client
from fencelock.schedule import Run, Schedule
from fencelock.testing import pause, resume

SECONDS = float(os.environ.get("FENCELOCK_SECONDS", "6"))
IS_FULL = SECONDS > 6
KINDS = ["sqlite", "redis", "postgres", "mariadb", "etcd"] if IS_FULL else ["sqlite", "redis"]
FAULTS = [("killed", "blocking"), ("paused", "asyncio")]
FAULTS += [("killed", "asyncio"), ("paused", "blocking")] if IS_FULL else []
SHIFTS = [30.0, 29.9, 29.7, 0.0, -30.0]
"""Three that are quick, so that they meet; the slow ones find everything done."""
DAY = 86_400
AT_MOST = 4.0
TTL = {"etcd": 2.0}


class Floor:
    """Stores, each started when it is first asked for; a namespace for each test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._urls: dict[str, str] = {}

    def url(self, kind: str, test: str) -> str:
        if kind not in self._urls:
            if kind == "sqlite":
                self._urls[kind] = f"sqlite://{self._folder}/locks.db"
            else:
                self._urls[kind] = str(self._stack.enter_context(start(kind)).url)
        url = self._urls[kind]
        return f"{url}{'&' if '?' in url else '?'}namespace={test}"


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    with ExitStack() as stack:
        yield Floor(tmp_path_factory.mktemp("schedule"), stack)


def effects(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def host(crew: Crew, url: str, flavour: str, shift: float, mode: str, **options: Any) -> Member:
    return crew.start("schedule_host", url, flavour, shift, mode, json.dumps(options))


@pytest.mark.parametrize("kind", KINDS)
def test_five_hosts_with_wrong_clocks_run_each_tick_once(
    floor: Floor, crew: Crew, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "effects"
    url = floor.url(kind, "beat")
    shifts = [random.uniform(-30, 30) for _ in range(5)] if IS_FULL else SHIFTS
    hosts = [
        host(crew, url, flavour, shift, "beat", file=str(file), ttl=30)
        for shift, flavour in zip(shifts, ["blocking", "asyncio"] * 3, strict=False)
    ]
    for each in hosts:
        assert each.hear()["ready"]
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began >= SECONDS / 2 and effects(file), "ticks", 60 + SECONDS)
    hosts[shifts.index(max(shifts))].signal(signal.SIGTERM)  # the one that is first goes, another takes over
    wait_until(
        lambda: time.monotonic() - began >= SECONDS and len(effects(file)) >= SECONDS, "ticks", 60 + SECONDS
    )
    for each in hosts:
        each.signal(signal.SIGTERM)
    assert [each.end() for each in hosts] == [0] * 5, [each.errors for each in hosts]
    with Client(url) as locks, Schedule(locks) as schedule:
        history = schedule.history("beat")
    ticks = [effect["tick"] for effect in effects(file)]
    assert set(Counter(ticks).values()) == {1}
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks))), f"in order, none left out: {history}"
    assert len(ticks) >= SECONDS
    tokens = [effect["token"] for effect in effects(file)]
    assert tokens == sorted(set(tokens))
    assert [run.tick for run in history] == ticks[: -len(history) - 1 : -1]
    assert {run.state for run in history} == {"done"}
    by_host = Counter(effect["pid"] for effect in effects(file))
    print(f"{kind}: {len(ticks)} ticks, each once, by {len(by_host)} of 5 hosts {sorted(by_host.values())}")


@pytest.mark.parametrize(("fault", "flavour"), FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_is_lost_in_the_middle_of_a_tick(
    floor: Floor, crew: Crew, kind: str, fault: str, flavour: str, tmp_path: Path
) -> None:
    """`at_most_for` decides when another runs it again; the record shows it; who was paused is refused."""
    file = tmp_path / "effects"
    url = floor.url(kind, f"{fault}-{flavour}")
    ttl = TTL.get(kind, 1.0)
    victim = host(crew, url, flavour, 0.0, "once", file=str(file), ttl=ttl, at_most_for=AT_MOST)
    begun = victim.hear()
    if fault == "killed":
        victim.signal(signal.SIGKILL)
    elif kind == "sqlite":
        stop_between_steps(victim.pid, Path(urlsplit(url).path))
    else:
        pause(victim.pid)
    with Client(url) as locks, Schedule(locks, ttl=ttl) as schedule, Schedule(locks, ttl=ttl) as careful:
        ran: list[int] = []
        schedule.every(DAY, name="job", at_most_for=AT_MOST)(lambda tick: ran.append(tick.attempt))
        careful.every(DAY, name="job", at_most_for=AT_MOST, after_crash="skip")(lambda: ran.append(0))

        def marked() -> list[Run]:
            assert schedule.tick("job") is None, "at_most_for has not passed"
            return [run for run in schedule.history("job") if run.state == "crashed"]

        (crashed,) = wait_until(marked, "the next holder of the lock takes it for a crash")
        assert (crashed.tick, crashed.token, crashed.attempt) == (begun["begun"], begun["token"], 1)
        if fault == "paused":
            resume(victim.pid)
            victim.tell()
            assert victim.hear() == {"run": None}, "the record was refused"
            assert schedule.history("job") == [crashed]
        again = wait_until(lambda: careful.tick("job") or schedule.tick("job"), "it is run again")
        assert ran == [2]
        assert (again.state, again.attempt, again.tick) == ("done", 2, crashed.tick)
        assert again.token > crashed.token
        assert again.started - crashed.started >= AT_MOST
        assert [run.state for run in schedule.history("job")] == ["done", "crashed"]
        assert schedule.tick("job") is None and careful.tick("job") is None
    assert [effect["tick"] for effect in effects(file)] == [begun["begun"]]
