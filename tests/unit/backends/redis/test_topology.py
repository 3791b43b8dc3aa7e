"""Where a request goes: URLs, what Sentinels and nodes say, and what is made of it. No server is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import hiredis
import pytest

from fencelock import BackendUnavailable, ConfigurationError
from fencelock.backends.redis.acknowledged import ACK_LIMIT, AcknowledgedBackend
from fencelock.backends.redis.cluster import SLOTS, Cluster, ClusterBackend, parse_slots, redirected
from fencelock.backends.redis.commands import LEAVE, Script, pack
from fencelock.backends.redis.keys import BUCKETS, counter
from fencelock.backends.redis.sentinel import FRESH, LATER, SentinelBackend, Sentinels
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import One, Topology
from fencelock.backends.redis.wire import Again, Call, Replies, Wire
from fencelock.runtime import clock
from fencelock.runtime.blocking import run

T = TypeVar("T")
Answer = Callable[[Sequence[bytes]], Any]


def down(label: str) -> BackendUnavailable:
    return BackendUnavailable(backend="redis", detail=f"{label}: connection refused")


class FakeWire(Wire):
    """Servers that answer from a table: by address, a function of the requests, or an error to raise."""

    def __init__(self, topology: Topology, **answers: Any) -> None:
        super().__init__(topology)
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, list[bytes]]] = []
        self.parted: list[str] = []
        self.pauses = 0

    def called(self, label: str) -> int:
        return sum(where == label for where, _ in self.asked)

    async def call(self, script: Script, bucket: int, packed: bytes, deadline: float) -> Any:
        return await self.persist(script, bucket, packed, deadline)

    async def stream(self, calls: Iterator[Call], replies: list[Any], deadline: float) -> Iterable[Call]:
        return ()

    async def ask(self, server: Server, requests: Sequence[bytes], deadline: float) -> list[Any]:
        self.asked.append((server.label, list(requests)))
        answer = self.answers.get(server.label)
        if callable(answer):
            answer = answer(requests)
        if answer is None:
            answer = down(server.label)
        if isinstance(answer, Exception) and not isinstance(answer, hiredis.ReplyError):
            raise answer
        return answer if isinstance(answer, Replies) else [answer] * len(requests)

    async def pause(self, seconds: float) -> None:
        self.pauses += 1

    @asynccontextmanager
    async def latch(self, deadline: float) -> AsyncIterator[None]:
        yield

    async def part(self, server: Server) -> None:
        self.parted.append(server.label)

    async def close(self) -> None:
        raise NotImplementedError

    def drop(self) -> None:
        raise NotImplementedError


def go(coroutine: Coroutine[Any, Any, T]) -> T:
    return run(coroutine)


def soon() -> float:
    return clock.now() + 5.0


def error(text: str) -> hiredis.ReplyError:
    return hiredis.ReplyError(text)


MASTER = [b"master", 0, []]
SLAVE = [b"slave", b"10.0.0.9", 6379, b"connected", 0]


# URLs -------------------------------------------------------------------------------------


def sentinels_of(url: str) -> Sentinels:
    topology = SentinelBackend.from_url(url)._topology
    assert isinstance(topology, Sentinels)
    return topology


def test_a_sentinel_url() -> None:
    found = sentinels_of(
        "redis+sentinel://app:secret@h1,h2:26380/my%20master/3?sentinel_username=w&sentinel_password=p%26q"
    )
    assert found.service == "my master"
    assert [(one.host, one.port) for one in found._sentinels] == [("h1", 26379), ("h2", 26380)]
    assert {one.options["username"] for one in found._sentinels} == {"w"}
    assert {one.options["password"] for one in found._sentinels} == {"p&q"}
    data = found.at("h9", 6379)
    assert (data.options["username"], data.options["password"], data.options["db"]) == ("app", "secret", 3)
    assert not data.tls


def test_sentinels_are_not_sent_the_password_of_the_data() -> None:
    (sentinel,) = sentinels_of("redis+sentinel://app:secret@h1/mymaster")._sentinels
    assert "password" not in sentinel.options
    assert "username" not in sentinel.options


def test_tls_is_for_all() -> None:
    found = sentinels_of("redis+sentinel://h1/mymaster?tls=yes&ssl_cert_reqs=none")
    assert found._sentinels[0].tls
    assert found.at("h9", 6379).tls
    cluster = ClusterBackend.from_url("redis+cluster://h1?tls=yes")._topology
    assert isinstance(cluster, Cluster)
    assert cluster.at("h9", 6379).tls


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://h1:26379", "names no service"),
        ("redis+sentinel://h1:26379/", "names no service"),
        ("redis+sentinel://h1:26379/mymaster/x", "is not a number"),
        ("redis+sentinel:///mymaster", "is not an address"),
        ("redis+sentinel://h1,,h2/mymaster", "is not an address"),
        ("redis+sentinel://h1/mymaster?tls=maybe", "write yes or no"),
        ("redis+sentinel://h1/mymaster?ssl_ciphers=x", "without tls=yes"),
        ("redis+sentinel://h1/mymaster?min_replicas_acked=-1", "is not a number"),
        ("redis+sentinel://h1/mymaster?colour=red", "unknown option colour"),
    ],
)
def test_a_wrong_sentinel_url(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        SentinelBackend.from_url(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+cluster://h1/1", "has only number 0"),
        ("redis+cluster://h1?db=2", "has only number 0"),
        ("redis+cluster://h1:x", "is not an address"),
        ("redis+cluster://", "is not an address"),
        ("redis+cluster://h1?sentinel_password=x", "unknown option"),
    ],
)
def test_a_wrong_cluster_url(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ClusterBackend.from_url(url)


@pytest.mark.parametrize(
    "url", ["redis+cluster://h1:7000,[::1]:7001", "redis+cluster://h1:7000,[::1]:7001/0?db=0"]
)
def test_a_cluster_url(url: str) -> None:
    topology = ClusterBackend.from_url(url)._topology
    assert isinstance(topology, Cluster)
    assert topology.label == "cluster of h1:7000, [::1]:7001"
    assert topology.is_sharded


def test_what_is_promised() -> None:
    for backend, plain in (
        (SentinelBackend.from_url("redis+sentinel://h1/s?min_replicas_acked=2"), "redis+sentinel://h1/s"),
        (ClusterBackend.from_url("redis+cluster://h1?min_replicas_acked=2"), "redis+cluster://h1"),
    ):
        promised = backend.guarantees
        assert promised.use_for == "efficiency"
        assert promised.failover == "exclusion", "tokens rise as long as the servers' clocks agree"
        assert "until 2 replicas have it" in promised.caveats[-1]
        assert f"{ACK_LIMIT:g}s" in promised.caveats[-1]
        without = type(backend).from_url(plain).guarantees
        assert without.caveats == promised.caveats[:-1]


# Sentinels --------------------------------------------------------------------------------


@pytest.fixture
def sentinels() -> Sentinels:
    servers = [Server(host=f"s{n}", port=26379) for n in (1, 2, 3)]
    return Sentinels("mymaster", servers, Server())


def names(host: str) -> list[bytes]:
    return [host.encode(), b"6379"]


def test_the_primary_is_asked_for_once(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    assert sentinels.known(0) is None
    found = go(sentinels.learn(0, wire, soon()))
    assert found.label == "a:6379"
    assert sentinels.known(17) is found
    assert go(sentinels.learn(5, wire, soon())) is found
    assert wire.called("s1:26379") == 1
    assert wire.parted == ["s1:26379"], "a Sentinel's connection is not kept"


def test_the_next_sentinel_is_asked_and_then_first(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s2:26379": names("a"), "a:6379": MASTER}
    found = go(sentinels.learn(0, wire, soon()))
    sentinels.suspect(found)
    assert sentinels.known(0) is None
    assert go(sentinels.learn(0, wire, soon())) is found, "the same address is the same server"
    assert wire.called("s1:26379") == 1
    assert wire.called("s2:26379") == 2


def test_a_replica_is_not_believed(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("old"), "s2:26379": names("new"), "old:6379": SLAVE, "new:6379": MASTER}
    assert go(sentinels.learn(0, wire, soon())).label == "new:6379"


def test_a_server_that_several_name_is_asked_once(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {f"s{n}:26379": names("old") for n in (1, 2, 3)} | {"old:6379": SLAVE}
    with pytest.raises(BackendUnavailable, match="names old:6379, which is a replica") as caught:
        go(sentinels.learn(0, wire, soon()))
    assert caught.value.transient
    assert wire.called("old:6379") == 1


def test_a_service_that_nobody_knows(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {f"s{n}:26379": lambda requests: [] for n in (1, 2, 3)}
    with pytest.raises(BackendUnavailable, match="s1:26379 knows no service 'mymaster'") as caught:
        go(sentinels.learn(0, wire, soon()))
    assert not caught.value.transient
    wire.answers["s3:26379"] = None  # it may know better
    with pytest.raises(BackendUnavailable) as caught:
        go(sentinels.learn(0, wire, soon()))
    assert caught.value.transient


def test_what_is_no_sentinel(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {f"s{n}:26379": error("ERR unknown command 'SENTINEL'") for n in (1, 2, 3)}
    with pytest.raises(BackendUnavailable, match="it is no Sentinel") as caught:
        go(sentinels.learn(0, wire, soon()))
    assert not caught.value.transient


@pytest.mark.parametrize("text", ["READONLY You can't write", "MASTERDOWN Link", "LOADING Redis is loading"])
def test_a_primary_that_was_demoted_is_left(sentinels: Sentinels, text: str) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    old = go(sentinels.learn(0, wire, soon()))
    wire.answers |= {"s1:26379": names("b"), "b:6379": MASTER}
    go(sentinels.correct(old, text, wire, soon()))
    assert sentinels.known(0) is sentinels.at("b", 6379)


def test_a_demotion_that_sentinel_has_not_noticed_is_an_outage(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    old = go(sentinels.learn(0, wire, soon()))
    with pytest.raises(BackendUnavailable) as caught:
        go(sentinels.correct(old, "READONLY You can't write", wire, soon()))
    assert caught.value.transient


def test_other_errors_are_told(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    with pytest.raises(BackendUnavailable, match="out of memory"):
        go(sentinels.correct(Server(), "OOM command not allowed", wire, soon()))
    assert wire.asked == []


def test_the_word_of_a_sentinel_is_good_for_a_while_only(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    old = go(sentinels.learn(0, wire, soon()))
    later(monkeypatch, FRESH)
    assert sentinels.known(0) is None
    assert sentinels.home() is old, "there is no trouble"
    wire.answers |= {"s1:26379": names("b"), "b:6379": MASTER}
    assert go(sentinels.learn(0, wire, soon())).label == "b:6379"


def test_without_trouble_a_primary_is_kept_that_no_sentinel_contradicts(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    primary = go(sentinels.learn(0, wire, soon()))
    wire.answers = {"s2:26379": names("b"), "b:6379": SLAVE}
    later(monkeypatch, FRESH)
    assert go(sentinels.learn(0, wire, soon())) is primary
    assert sentinels.known(0) is primary
    later(monkeypatch, LATER)
    assert sentinels.known(0) is None
    sentinels.suspect(primary)
    with pytest.raises(BackendUnavailable, match="no primary"):
        go(sentinels.learn(0, wire, soon()))


def test_a_server_that_is_slow_to_answer_may_have_been_replaced(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FakeWire(sentinels)

    def wakes_up(requests: Sequence[bytes]) -> Any:
        later(monkeypatch, 1.0)
        wire.answers |= {"s1:26379": names("b"), "b:6379": MASTER}
        return MASTER

    wire.answers = {"s1:26379": names("a"), "a:6379": wakes_up}
    assert go(sentinels.learn(0, wire, soon())).label == "b:6379"


def test_a_server_that_is_always_slow_is_believed_when_it_is_named_twice(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FakeWire(sentinels)

    def slow(requests: Sequence[bytes]) -> Any:
        later(monkeypatch, 1.0)
        return MASTER

    wire.answers = {"s1:26379": names("a"), "a:6379": slow}
    assert go(sentinels.learn(0, wire, soon())).label == "a:6379"
    assert wire.called("a:6379") == 2


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let time pass."""
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + seconds)


def test_a_request_moves_on_with_the_primary(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    wire.answers = {"s1:26379": names("a"), "a:6379": MASTER}
    go(sentinels.learn(0, wire, soon()))
    wire.answers = {
        "s1:26379": names("b"),
        "b:6379": lambda requests: MASTER if b"ROLE" in requests[0] else 1,
    }
    assert go(wire.persist(LEAVE, 0, b"", soon())) == 1
    assert [where for where, _ in wire.asked][-4:] == ["a:6379", "s1:26379", "b:6379", "b:6379"]


def test_a_failure_is_shared_by_those_who_wait(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    turns: list[int] = []

    @asynccontextmanager
    async def latch(deadline: float) -> AsyncIterator[None]:
        if not turns:  # somebody else has the latch, and fails
            turns.append(1)
            with pytest.raises(BackendUnavailable):
                await sentinels.learn(0, wire, deadline)
        yield

    wire.latch = latch  # type: ignore[method-assign, assignment]
    with pytest.raises(BackendUnavailable, match="no primary of 'mymaster'"):
        go(sentinels.learn(0, wire, soon()))
    assert wire.called("s1:26379") == 1


# Clusters ---------------------------------------------------------------------------------


def node(host: Any, port: int) -> list[Any]:
    return [host, port, b"id", []]


HALVES = [
    [0, 8191, node(b"a", 7000), node(b"c", 7002)],
    [8192, 16383, node(b"b", 7001)],
]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster([("a", 7000), ("b", 7001)], Server())


def test_the_map_of_slots_is_read(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    for bucket in range(BUCKETS):
        found = go(cluster.learn(bucket, wire, soon()))
        assert found.label == ("a:7000" if SLOTS[bucket] < 8192 else "b:7001")
        assert cluster.known(bucket) is found
    assert len(wire.asked) == 1
    assert [server.label for server in go(cluster.servers(wire, soon()))] == ["a:7000", "b:7001"]


def test_slots_are_those_of_the_counters() -> None:
    from redis.crc import key_slot

    assert key_slot(b"17") == key_slot(counter(17)) == SLOTS[17]


@pytest.mark.parametrize(
    ("host", "found"), [(b"a", ("a", 7000)), (b"", ("me", 7000)), (None, ("me", 7000)), ("a", ("a", 7000))]
)
def test_a_node_without_an_address_is_the_one_that_was_asked(host: Any, found: tuple[str, int]) -> None:
    assert list(parse_slots([[0, 5, node(host, 7000)]], "me")) == [(0, 5, [found])]


def test_a_node_that_nobody_knows_is_left_out() -> None:
    assert list(parse_slots([[0, 5, node(b"?", 7000)]], "me")) == [(0, 5, [])]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("MOVED 3999 127.0.0.1:6381", (3999, "127.0.0.1", 6381)),
        ("ASK 3999 ::1:6381", (3999, "::1", 6381)),
        ("MOVED 3999 :6381", (3999, "me", 6381)),
        ("MOVED 3999 host.example:6381", (3999, "host.example", 6381)),
    ],
)
def test_redirections(text: str, found: tuple[int, str, int]) -> None:
    assert redirected(text, "me") == found


def test_a_slot_that_has_moved_is_looked_up_where_it_went(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    bucket = next(bucket for bucket in range(BUCKETS) if SLOTS[bucket] < 8192)
    old = go(cluster.learn(bucket, wire, soon()))
    wire.asked.clear()
    wire.answers["d:7003"] = [[0, 8191, node(b"d", 7003)], HALVES[1]]
    go(cluster.correct(old, f"MOVED {SLOTS[bucket]} d:7003", wire, soon()))
    assert [where for where, _ in wire.asked] == ["d:7003"]
    assert {cluster.known(bucket).label for bucket in range(BUCKETS) if cluster.known(bucket)} == {
        "d:7003",
        "b:7001",
    }
    go(cluster.correct(old, f"MOVED {SLOTS[bucket]} d:7003", wire, soon()))
    assert len(wire.asked) == 1, "the second one to be told finds it done"


def test_moved_is_believed_though_the_map_cannot_be_read(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    old = go(cluster.learn(0, wire, soon()))
    go(cluster.correct(old, f"MOVED {SLOTS[0]} d:7003", wire, soon()))
    assert cluster.known(0) is cluster.at("d", 7003)


def test_a_node_that_does_not_answer_is_asked_last(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES, "c:7002": HALVES}
    go(cluster.learn(0, wire, soon()))
    on_a = [bucket for bucket in range(BUCKETS) if SLOTS[bucket] < 8192]
    cluster.suspect(cluster.at("a", 7000))
    assert {cluster.known(bucket) for bucket in on_a} == {None}
    assert cluster.known(next(bucket for bucket in range(BUCKETS) if bucket not in on_a)) is not None
    wire.asked.clear()
    assert go(cluster.learn(on_a[0], wire, soon())) is cluster.at("a", 7000), "nobody has taken its place yet"
    assert [where for where, _ in wire.asked] == ["b:7001"]


def test_a_promoted_replica_is_found(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    bucket = next(bucket for bucket in range(BUCKETS) if SLOTS[bucket] < 8192)
    go(cluster.learn(bucket, wire, soon()))
    promoted = [[0, 8191, node(b"c", 7002)], HALVES[1]]
    wire.answers = {"b:7001": promoted, "c:7002": 1}
    assert go(wire.persist(LEAVE, bucket, b"", soon())) == 1
    assert cluster.known(bucket) is cluster.at("c", 7002)


def test_a_slot_that_nobody_has_is_an_outage(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES[1:], "b:7001": HALVES[1:]}
    bucket = next(bucket for bucket in range(BUCKETS) if SLOTS[bucket] < 8192)
    with pytest.raises(BackendUnavailable, match="cluster is down") as caught:
        go(cluster.learn(bucket, wire, soon()))
    assert caught.value.transient


def test_a_server_without_cluster_mode(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    answer = error("ERR This instance has cluster support disabled")
    wire.answers = {"a:7000": answer, "b:7001": answer}
    with pytest.raises(BackendUnavailable, match="it is not in cluster mode") as caught:
        go(cluster.learn(0, wire, soon()))
    assert not caught.value.transient


def test_clusterdown_forgets_the_map(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    server = go(cluster.learn(0, wire, soon()))
    with pytest.raises(BackendUnavailable) as caught:
        go(cluster.correct(server, "CLUSTERDOWN The cluster is down", wire, soon()))
    assert caught.value.transient
    assert all(cluster.known(bucket) is None for bucket in range(BUCKETS))


def test_try_again_is_tried_again_with_pauses_until_the_deadline(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    wire.answers = {"a:7000": HALVES, "b:7001": HALVES}
    server = go(cluster.learn(0, wire, soon()))
    go(cluster.correct(server, "TRYAGAIN Multiple keys", wire, soon()))
    assert wire.pauses == 1
    with pytest.raises(BackendUnavailable, match="moving the slot") as caught:
        go(cluster.correct(server, "TRYAGAIN Multiple keys", wire, clock.now()))
    assert caught.value.transient


# The wire ---------------------------------------------------------------------------------


def test_ask_is_followed_with_asking_and_with_the_script(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    packed = LEAVE.call([b"k"], b"o", b"")

    def target(requests: Sequence[bytes]) -> Any:
        assert requests[0] == pack("ASKING")
        return Replies([b"OK", error("NOSCRIPT No matching script") if requests[1] == packed else 1])

    cluster._map = [cluster.at("a", 7000)] * BUCKETS
    wire.answers = {"a:7000": error("ASK 5 d:7003"), "d:7003": target}
    assert go(wire.persist(LEAVE, 0, packed, soon())) == 1
    assert [where for where, _ in wire.asked] == ["a:7000", "d:7003", "d:7003"]
    assert cluster.known(0) is cluster.at("a", 7000), "ASK is for once"


def test_servers_that_point_at_each_other_are_asked_with_pauses(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    cluster._map = [cluster.at("a", 7000)] * BUCKETS
    left = [20]

    def elsewhere(place: str) -> Answer:
        def answer(requests: Sequence[bytes]) -> Any:
            if b"SLOTS" in requests[0]:
                return HALVES
            left[0] -= 1
            return error(f"MOVED {SLOTS[0]} {place}") if left[0] else 1

        return answer

    wire.answers = {"a:7000": elsewhere("b:7001"), "b:7001": elsewhere("a:7000")}
    assert go(wire.persist(LEAVE, 0, b"", soon())) == 1
    assert wire.pauses >= 10


def test_only_the_same_server_may_have_done_it_before(sentinels: Sentinels) -> None:
    wire = FakeWire(One(Server(host="a", port=1)))
    server = wire.topology.known(0)
    wire.answers = {"a:1": 0}
    assert type(go(wire.persist(LEAVE, 0, b"", soon()))) is int
    assert type(go(wire.persist(LEAVE, 0, b"", soon(), again=server))) is Again
    wire.answers = {"a:1": Replies([0])}
    assert type(go(wire.persist(LEAVE, 0, b"", soon()))) is Again

    moved = FakeWire(sentinels)
    old = sentinels.at("a", 6379)
    moved.answers = {
        "s1:26379": names("b"),
        "b:6379": lambda requests: MASTER if b"ROLE" in requests[0] else 0,
    }
    assert type(go(moved.persist(LEAVE, 0, b"", soon(), again=old))) is int


def test_one_server_that_is_down_is_told_at_once() -> None:
    wire = FakeWire(One(Server(host="a", port=1)))
    with pytest.raises(BackendUnavailable, match="connection refused"):
        go(wire.persist(LEAVE, 0, b"", soon()))
    assert len(wire.asked) == 1


def test_a_node_that_is_down_costs_its_own_calls_only(cluster: Cluster) -> None:
    wire = FakeWire(cluster)
    answer: Answer = lambda requests: HALVES if b"SLOTS" in requests[0] else 1  # noqa: E731
    wire.answers = {"b:7001": answer}
    here, there = (
        next(bucket for bucket in range(BUCKETS) if (SLOTS[bucket] < 8192) is low) for low in (True, False)
    )
    replies = go(wire.each([Call(LEAVE, here, b"1"), Call(LEAVE, there, b"2")], soon()))
    assert isinstance(replies[0], BackendUnavailable)
    assert replies[1] == 1


def test_calls_that_failed_are_sent_to_the_new_primary(sentinels: Sentinels) -> None:
    wire = FakeWire(sentinels)
    sentinels._believe(sentinels.at("a", 6379), FRESH)
    wire.answers = {
        "s1:26379": names("b"),
        "b:6379": lambda requests: MASTER if b"ROLE" in requests[0] else 1,
    }
    assert go(wire.each([Call(LEAVE, n, b"x") for n in range(3)], soon())) == [1, 1, 1]


def test_requests_behind_a_script_come_back_with_it() -> None:
    wire = FakeWire(One(Server(host="a", port=1)))
    wire.answers = {"a:1": lambda requests: Replies([5, 2])}
    assert go(wire.persist(LEAVE, 0, b"x", soon(), then=[pack("WAIT", 1, 10)])) == [5, 2]
    assert wire.asked[-1][1] == [b"x", pack("WAIT", 1, 10)]


def test_without_the_option_nothing_is_waited_for() -> None:
    plain, acked = AcknowledgedBackend(Server()), AcknowledgedBackend(Server(), 1)
    assert plain.guarantees.caveats == acked.guarantees.caveats[:-1]
    assert "until 1 replicas have it" in acked.guarantees.caveats[-1]
