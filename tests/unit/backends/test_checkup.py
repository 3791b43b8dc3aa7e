"""One shape for findings, what they make of the guarantees, and what clocks and round trips mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fencelock import BackendUnavailable, Client
from fencelock.backends import checkup
from fencelock.backends.base import Backend, Finding, Pulse
from fencelock.backends.checkup import clock_findings, examine, http_time, latency_finding, quantile, timed
from fencelock.backends.consul.doctor import _version as consul_version
from fencelock.backends.etcd import EtcdBackend
from fencelock.backends.etcd.doctor import judge_version
from fencelock.backends.memory import MemoryBackend
from fencelock.backends.redis.doctor import _findings as redis_findings
from fencelock.backends.redis.facts import Facts
from fencelock.backends.redis.server import Server
from fencelock.backends.redlock.doctor import layout
from fencelock.backends.sqlite.doctor import judge_file_system
from fencelock.findings import FORGETFUL, LASTING, SEVERITIES, by_severity, refined, worst
from fencelock.guarantees import Guarantees
from fencelock.runtime.blocking import run

WEAK, STRONG = ("efficiency", "best-effort", "poll"), ("correctness", "durable", "push")


def guarantees(use_for: Any, fencing: Any, wakeup: Any) -> Guarantees:
    return Guarantees(
        scope="cluster",
        use_for=use_for,
        fencing=fencing,
        wakeup=wakeup,
        crash_release="ttl",
        clock="nothing",
        failover="nothing",
        restart="nothing",
        fairness="fifo",
        min_ttl=1,
        max_ttl=60,
    )


def finding(severity: Any = "ok", **changes: Any) -> Finding:
    return Finding(severity, "subject", "detail", **changes)


# The shape ----------------------------------------------------------------------------------


def test_the_worst_comes_first() -> None:
    mixed = [finding("ok"), finding("critical"), finding("notice"), finding("warning"), finding("ok")]
    assert [each.severity for each in by_severity(mixed)] == [*SEVERITIES, "ok"]
    assert [worst(mixed), worst(mixed[2:]), worst(mixed[:1]), worst([])] == [
        "critical",
        "warning",
        "ok",
        "ok",
    ]


def test_a_finding_is_plain_data() -> None:
    plain = finding("warning", advice="a", setting="fsync = off", refines=FORGETFUL).as_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["setting"] == "fsync = off"
    assert plain["refines"] == {"use_for": "efficiency", "fencing": "best-effort"}


def test_the_weakest_word_counts() -> None:
    strong, weak = guarantees(*STRONG), guarantees(*WEAK)
    good, bad = finding(refines=LASTING), finding(refines=FORGETFUL)
    assert refined(strong, []) is not None and refined(strong, []) == strong
    for order in ([good, bad], [bad, good]):
        assert (refined(strong, order).use_for, refined(strong, order).fencing) == WEAK[:2]
    assert refined(weak, [good]).fencing == "durable"
    assert refined(weak, [finding(), good, finding(refines=(("fencing", "until-restart"),))]).fencing == (
        "until-restart"
    )
    assert refined(strong, [finding(refines=(("wakeup", "poll"),))]) == guarantees(*STRONG[:2], "poll")


# Clocks and round trips -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "severity", "says"),
    [
        (0.2, "ok", "within 1 s"),
        (-0.9, "ok", "within 1 s"),
        (1.0, "notice", "1.0 s ahead of"),
        (-4.9, "notice", "4.9 s behind"),
        (4.9998, "warning", "5.0 s ahead of"),
        (-3600.0, "warning", "3600.0 s behind"),
    ],
)
def test_clocks(offset: float, severity: str, says: str) -> None:
    (found,) = clock_findings([Pulse("a:1", 0.001, offset, 0.0005)])
    assert (found.severity, found.subject) == (severity, "clock")
    assert says in found.detail and "± 0.5 ms" in found.detail
    if severity != "ok":
        assert "no lease depends on that" in found.detail and "schedules" in found.detail
        assert "NTP" in found.advice and found.setting == f"offset {offset:+.1f} s"


def test_clocks_of_several_servers_are_told_apart() -> None:
    found = clock_findings([Pulse("a:1", 0.1, 0.0, 0.05), Pulse("b:1", 3.0, 7.0, 1.5)])
    assert [(each.subject, each.severity) for each in found] == [
        ("clock of a:1", "ok"),
        ("clock of b:1", "warning"),
    ]
    assert "± 1.5 s" in found[1].detail
    assert clock_findings([]) == []


def test_latency() -> None:
    assert [latency_finding([seconds]).severity for seconds in (0.001, 0.02, 0.3)] == [
        "ok",
        "notice",
        "warning",
    ]
    assert latency_finding([0.001] * 19 + [0.5]).severity == "ok", "one that is slow makes no slow server"
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.95)] == [1.0, 2.0, 3.0]


def test_a_reading_is_as_sure_as_half_its_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    class Time:
        def __init__(self) -> None:
            self.wall, self.trip = iter([1000.0]), iter([50.0, 50.2])

        def time(self) -> float:
            return next(self.wall)

        def perf_counter(self) -> float:
            return next(self.trip)

    async def told() -> float:
        return 1005.0

    monkeypatch.setattr(checkup, "time", Time())
    pulse = run(timed("a", told))
    assert pulse.trip == pytest.approx(0.2)
    assert pulse.offset == pytest.approx(4.9) and pulse.uncertainty == pytest.approx(0.1)
    monkeypatch.setattr(checkup, "time", Time())
    rounded = run(timed("a", told, 1.0))
    assert rounded.offset == pytest.approx(5.4) and rounded.uncertainty == pytest.approx(0.6)


def test_http_dates() -> None:
    assert http_time("Thu, 01 Jan 1970 00:01:00 GMT") == 60.0
    assert http_time(None) is None and http_time("soon") is None


def test_the_surest_reading_of_each_server_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([[Pulse("a", 0.4, 9.0, 0.2)], [Pulse("a", 0.1, 6.0, 0.05), Pulse("b", 0.1)]])

    async def pulse(self: Backend, *, deadline: float) -> Sequence[Pulse]:
        return next(answers)

    async def doctor(self: Backend) -> Sequence[Finding]:
        return [finding(), finding("critical", refines=FORGETFUL)]

    monkeypatch.setattr(MemoryBackend, "pulse", pulse)
    monkeypatch.setattr(MemoryBackend, "doctor", doctor)
    with Client("memory://") as locks:
        told = run(examine(locks._session.backend, rounds=3))
    assert told.clocks == [Pulse("a", 0.1, 6.0, 0.05)] and len(told.trips) == 3
    assert [each.severity for each in told.findings] == ["critical", "warning", "notice", "ok"]
    assert told.guarantees.use_for == "efficiency"


def test_what_is_critical_is_told_even_if_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = finding("critical")

    async def pulse(self: Backend, *, deadline: float) -> Sequence[Pulse]:
        raise BackendUnavailable(backend="memory", detail="gone", transient=True)

    async def doctor(self: Backend) -> Sequence[Finding]:
        return [found]

    monkeypatch.setattr(MemoryBackend, "pulse", pulse)
    monkeypatch.setattr(MemoryBackend, "doctor", doctor)
    with Client("memory://") as locks:
        told = run(examine(locks._session.backend))
        assert (list(told.findings), list(told.trips), list(told.clocks)) == ([found], [], [])
        found = finding("warning")
        with pytest.raises(BackendUnavailable, match="gone"):
            run(examine(locks._session.backend))


def test_a_backend_without_servers_has_a_pulse_and_no_clock() -> None:
    with Client("memory://") as locks:
        told = run(examine(locks._session.backend))
    assert told.clocks == [] and len(told.trips) == checkup.ROUNDS
    assert [each.subject for each in told.findings] == ["reach", "latency"]


# What the servers' settings mean, where they cannot be had --------------------------------------


@pytest.mark.parametrize(
    ("version", "severities"),
    [
        ("3.4.23", ["warning", "warning", "warning"]),
        ("3.4.31", ["warning", "warning"]),
        ("3.4.32", ["warning"]),
        ("3.4.38", ["ok"]),
        ("3.5.0", ["critical", "warning", "warning", "warning"]),
        ("3.5.2", ["critical", "warning", "warning", "warning"]),
        ("3.5.3", ["warning", "warning", "warning"]),
        ("3.5.13", ["warning", "warning"]),
        ("3.5.14", ["warning"]),
        ("3.5.23", ["ok"]),
        ("3.6.0-rc.1", ["warning"]),
        ("3.6.4", ["warning"]),
        ("3.6.5", ["ok"]),
        ("3.3.10", ["warning"]),
        ("unknown", ["notice"]),
    ],
)
def test_versions_of_etcd(version: str, severities: list[str]) -> None:
    found = judge_version("a:2379", version)
    assert [each.severity for each in found] == severities
    assert all(
        each.advice and version in each.setting for each in found if each.severity != "ok" and each.setting
    )


def test_an_etcd_whose_old_leader_ends_leases_does_not_exclude_for_sure() -> None:
    old = EtcdBackend.from_url("etcd://a:2379").guarantees
    for version, use_for in (("3.4.23", "efficiency"), ("3.4.31", "correctness"), ("3.5.12", "efficiency")):
        found = judge_version("a:2379", version)
        assert refined(old, found).use_for == use_for
    renews, revokes = (
        word in str(judge_version("a:2379", "3.4.23")) for word in ("that are gone", "stood still")
    )
    assert renews and revokes


@pytest.mark.parametrize(
    ("version", "fencing", "mended"),
    [
        ("3.4.31", "best-effort", "3.4.32"),
        ("3.4.32", "durable", ""),
        ("3.5.13", "best-effort", "3.5.14"),
        ("3.5.14", "durable", ""),
        ("3.6.0", "durable", ""),
    ],
)
def test_an_etcd_whose_revisions_may_fall_gives_no_lasting_tokens(
    version: str, fencing: str, mended: str
) -> None:
    found = judge_version("a:2379", version)
    assert refined(EtcdBackend.from_url("etcd://a:2379").guarantees, found).fencing == fencing
    falls = [each for each in found if "during a compaction" in each.detail]
    assert [(each.setting, each.advice) for each in falls] == (
        [(f"version {version}", f"upgrade to {mended} or newer")] if mended else []
    )


@pytest.mark.parametrize(
    ("version", "mended"), [("3.5.22", "3.5.23"), ("3.6.0", "3.6.5"), ("3.6.4", "3.6.5")]
)
def test_an_etcd_that_renews_what_is_gone(version: str, mended: str) -> None:
    (found,) = judge_version("a:2379", version)
    assert "renews leases that are gone" in found.detail
    assert found.advice == f"upgrade to {mended} or newer"


def test_versions_of_consul() -> None:
    versions = {"1.8.7": "ok", "1.21.0": "ok", "1.4.4": "warning", "0.9": "warning", "dev": "notice"}
    assert {version: consul_version(version, "n").severity for version in versions} == versions


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a:1", "b:1", "c:1"], {"number": "ok"}),
        (["a:1", "b:1"], {"number": "critical"}),
        (["a:1", "b:1", "c:1", "d:1"], {"number": "warning"}),
        (["a:1", "a:2", "a:3"], {"number": "ok", "machines": "warning"}),
        (["a:1", "a:2", "b:1", "c:1", "d:1"], {"number": "ok", "machines": "warning"}),
        (["[::1]:1", "[::1]:2", "b:1"], {"number": "ok", "machines": "warning"}),
    ],
)
def test_nodes_of_redlock(labels: list[str], expected: dict[str, str]) -> None:
    found = layout(labels)
    assert {each.subject: each.severity for each in found} == expected
    assert all(each.advice and each.setting for each in found if each.severity != "ok")


def test_machines_that_carry_a_majority_are_named() -> None:
    assert (
        "all nodes are on a: if that machine goes down, no majority is left"
        in layout(["a:1", "a:2", "a:3"])[1].detail
    )
    assert "2 of 5 nodes are on a: if that machine goes down, they fail together" in (
        layout(["a:1", "a:2", "b:1", "c:1", "d:1"])[1].detail
    )


@pytest.mark.parametrize(
    ("kind", "severity", "refines"),
    [
        ("nfs4", "critical", FORGETFUL),
        ("cifs", "critical", FORGETFUL),
        ("fuse.sshfs", "critical", FORGETFUL),
        ("tmpfs", "notice", (("fencing", "until-restart"),)),
        ("ext4", "ok", ()),
        ("", "ok", ()),
    ],
)
def test_file_systems(kind: str, severity: str, refines: tuple[tuple[str, str], ...]) -> None:
    found = judge_file_system(kind)
    assert (found.severity, found.refines) == (severity, refines)


def redis_promise(config: dict[str, str], info: dict[str, str] | None = None, *, alone: bool = True) -> str:
    settings = {
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "save": "",
        "maxmemory": "0",
        "maxmemory-policy": "noeviction",
        "min-replicas-to-write": "0",
        "min-replicas-max-lag": "10",
        "timeout": "0",
        "client-output-buffer-limit": "pubsub 0 0 0",
        **config,
    }
    told = {"redis_version": "7.0", "connected_slaves": "0", "used_memory": "1", **(info or {})}
    facts = Facts(
        server=Server(),
        sharded=False,
        alone=alone,
        hello={},
        info=told,
        config={name: value for name, value in settings.items() if value != "?"},
        tried={"set": ""},
    )
    return refined(guarantees(*WEAK), redis_findings(facts)).fencing


def test_a_redis_is_as_good_as_its_weakest_setting() -> None:
    assert redis_promise({}) == "durable"
    assert redis_promise({"appendfsync": "everysec"}) == "best-effort"
    assert redis_promise({"appendonly": "no"}) == "best-effort"
    assert redis_promise({"no-appendfsync-on-rewrite": "yes"}) == "best-effort"
    assert redis_promise({"maxmemory-policy": "allkeys-lru", "maxmemory": "9"}) == "best-effort"
    assert redis_promise({}, {"connected_slaves": "1"}) == "best-effort"
    assert redis_promise({}, alone=False) == "best-effort", "Sentinel may put another in its place"
    assert redis_promise({"maxmemory-policy": "?"}) == "best-effort", "what could not be read is not good"
