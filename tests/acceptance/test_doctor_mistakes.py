"""Mistakes planted on real servers, and what `fencelock doctor` says: finding, setting, status, promise.

The doctors of single backends have tests of their own; here each mistake is made once, and the command
is run as it is run at three in the morning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from cli_helpers import fencelock_command
from redlock_nodes import url as redlock_url
from tools.servers import start
from tools.servers.clock import Clock

SEVERITIES = ["critical", "warning", "notice", "ok"]
FIELDS = {"severity", "subject", "detail", "advice", "setting", "refines"}


class Told(NamedTuple):
    """What the doctor said."""

    data: dict[str, Any]
    by_default: int
    on_warning: int

    def finding(self, subject: str) -> dict[str, Any]:
        (found,) = [each for each in self.data["findings"] if each["subject"] == subject]
        return dict(found)


def doctor(url: str) -> Told:
    """Run the command twice, once for each severity to fail on; look at what both must have."""
    plain = fencelock_command("", "doctor", url)
    parsed = fencelock_command("", "doctor", "--json", "--fail-on", "warning", url)
    assert not plain.stderr and not parsed.stderr, plain.stderr + parsed.stderr
    data = json.loads(parsed.stdout)
    ranks = [SEVERITIES.index(each["severity"]) for each in data["findings"]]
    assert ranks == sorted(ranks), "the worst first"
    assert all(set(each) == FIELDS and each["detail"] for each in data["findings"])
    assert all(each["advice"] for each in data["findings"] if each["severity"] in {"critical", "warning"})
    assert SEVERITIES[ranks[0]] == data["worst"]
    assert (
        data["promise"].startswith("With this set-up fencelock promises ") and data["promise"] in plain.stdout
    )
    assert "\x1b" not in plain.stdout
    return Told(data, plain.returncode, parsed.returncode)


# Redis ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def redis(clock: Clock) -> Iterator[Any]:
    settings = {"appendonly": "yes", "appendfsync": "always", "save": ""}
    with start("redis", env=clock.env, settings=settings) as group:
        yield group


def ask(group: Any, *words: str | int) -> Any:
    return group.members[0].ask(*words)


def test_a_redis_that_forgets_nothing(redis: Any) -> None:
    told = doctor(redis.url)
    assert (told.by_default, told.on_warning) == (0, 0), told.data["findings"]
    assert told.data["guarantees"]["fencing"] == "durable"
    assert "it may guard data" in told.data["promise"]
    (reading,) = told.data["clocks"]
    assert abs(reading["offset_seconds"]) <= reading["uncertainty_seconds"] + 0.01
    assert 0 < reading["uncertainty_seconds"] < 10
    trip, pair = (told.data["latency_seconds"][step] for step in ("round_trip", "acquire_release"))
    assert 0 < trip["min"] <= trip["median"] <= trip["p95"] <= trip["p99"]
    assert 0 < pair["median"] <= pair["p95"]


def test_appendfsync_everysec_and_allkeys_lru(redis: Any) -> None:
    ask(redis, "CONFIG", "SET", "appendfsync", "everysec")
    told = doctor(redis.url)
    assert (told.by_default, told.on_warning) == (0, 1)
    assert told.finding("persistence")["setting"] == "appendonly yes, appendfsync everysec"
    assert "a rare double grant is possible" in told.data["promise"]
    ask(redis, "CONFIG", "SET", "maxmemory", "100mb")
    ask(redis, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    told = doctor(redis.url)
    assert (told.by_default, told.on_warning) == (2, 2)
    eviction = told.finding("eviction")
    assert eviction["severity"] == "critical" and "maxmemory-policy allkeys-lru" in eviction["setting"]
    assert "noeviction" in eviction["advice"]
    for name, value in (("appendfsync", "always"), ("maxmemory", "0"), ("maxmemory-policy", "noeviction")):
        ask(redis, "CONFIG", "SET", name, value)


def test_a_replica_and_a_primary_that_does_not_wait_for_it(redis: Any) -> None:
    with start("redis") as other:
        ask(other, "REPLICAOF", redis.members[0].host, redis.members[0].port)
        other.wait()
        told = doctor(other.url)
        assert (told.by_default, told.finding("role")["setting"]) == (2, "role replica")
        assert told.data["promise"].startswith(
            "With this set-up fencelock promises nothing: no lock can be acquired (role: a replica"
        )
        assert set(told.data["latency_seconds"]) == {"round_trip"}
        primary = doctor(redis.url)
        assert primary.finding("replicas")["setting"] == "min-replicas-to-write 0"
        assert (primary.by_default, primary.on_warning) == (0, 1)


@pytest.mark.parametrize(("seconds", "severity"), [(5, "warning"), (-5, "warning"), (3, "notice")])
def test_a_clock_that_is_wrong(redis: Any, clock: Clock, seconds: int, severity: str) -> None:
    clock.set(seconds)
    try:
        done = fencelock_command("", "doctor", "--json", "--fail-on", "warning", redis.url)
    finally:
        clock.set(0)
    data = json.loads(done.stdout)
    assert done.returncode == (1 if severity == "warning" else 0), done.stdout
    (found,) = [each for each in data["findings"] if each["subject"] == "clock"]
    assert found["severity"] == severity, found
    (reading,) = data["clocks"]
    # Half the round trip is how wrong it may be, on a machine of any load.
    assert abs(reading["offset_seconds"] - seconds) <= reading["uncertainty_seconds"] + 0.01
    assert "no lease depends on that" in found["detail"] and "schedules" in found["detail"]


def test_nodes_of_redlock_on_one_machine() -> None:
    with start("redlock") as group:
        told = doctor(redlock_url(group.members[:4]))
        assert (told.by_default, told.on_warning) == (0, 1)
        assert told.finding("number")["setting"] == "4 nodes"
        assert told.finding("machines")["detail"].startswith("all nodes are on 127.0.0.1")
        assert len(told.data["clocks"]) == 4
        group.members[0].ask("CONFIG", "SET", "maxmemory", "100mb")
        group.members[0].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        assert doctor(redlock_url(group.members[:3])).by_default == 2
    few = fencelock_command("", "doctor", "redlock://127.0.0.1:1,127.0.0.1:2")
    assert few.returncode == 64 and "too few" in few.stderr


# PostgreSQL -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pooled() -> Iterator[Any]:
    with start("pgbouncer") as group:
        yield group


def test_pgbouncer_in_transaction_mode(pooled: Any) -> None:
    direct = doctor(pooled.urls["direct"])
    assert (direct.by_default, direct.on_warning) == (0, 0), direct.data["findings"]
    told = doctor(pooled.urls["transaction"])
    assert (told.by_default, told.on_warning) == (0, 1)
    assert told.finding("pooler")["setting"] == "pool_mode = transaction"
    assert (direct.data["guarantees"]["wakeup"], told.data["guarantees"]["wakeup"]) == ("push", "poll")


def test_synchronous_commit_off(pooled: Any) -> None:
    url = pooled.urls["direct"]
    told = doctor(f"{url}{'&' if '?' in url else '?'}options=-csynchronous_commit%3Doff")
    found = told.finding("synchronous_commit")
    assert (found["severity"], found["setting"]) == ("notice", "synchronous_commit = off")
    assert told.data["guarantees"]["fencing"] == "durable", "fencelock does not go by it"


# SQLite ---------------------------------------------------------------------------------------


def test_a_file_in_memory() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        told = doctor(f"sqlite://{folder}/locks.db")
        assert told.finding("file system")["setting"] == "type tmpfs"
        assert told.data["guarantees"]["fencing"] == "until-restart"
        assert told.data["clocks"] == [], "there is no other clock"
