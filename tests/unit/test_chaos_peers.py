"""What the fault harness knows of other lock libraries, without loading one of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from chaos.backends import BACKENDS
from chaos.faults import FAULTS
from chaos.peers import Believed, Claim, attempts, mine, nodes, outside, sentinels
from chaos.stage import Stage
from chaos.subject import Ask
from chaos.subjects import SUBJECTS

from fencelock.testing import boottime

PEERS = [word for word, library in SUBJECTS.items() if library.is_peer]
SHA = b"$40\r\n" + b"0" * 40
SET = b"*6\r\n$3\r\nSET\r\n$5\r\njob-1\r\n$4\r\nuuid\r\n$2\r\nPX\r\n$3\r\n500\r\n$2\r\nNX\r\n"
GET = b"*2\r\n$3\r\nGET\r\n$5\r\njob-1\r\n"


def script(*words: bytes) -> bytes:
    parts = [b"$7\r\nEVALSHA", SHA, *(b"$%d\r\n%s" % (len(word), word) for word in words)]
    return b"*%d\r\n" % len(parts) + b"\r\n".join(parts) + b"\r\n"


def create(path: bytes) -> bytes:
    body = b"\x00\x00\x00\x07" + b"\x00\x00\x00\x01" + len(path).to_bytes(4, "big") + path
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("word", PEERS)
def test_every_cell_of_a_peer_has_a_run_or_a_reason(word: str) -> None:
    library = SUBJECTS[word]
    assert library.backends <= set(BACKENDS)
    assert set(library.spared) <= set(FAULTS)
    assert all(library.spared.values())
    for backend in library.backends:
        runs = [
            fault
            for fault in FAULTS
            if not (BACKENDS[backend].spared.get(fault) or library.cannot(backend, fault))
        ]
        assert len(runs) >= 10, f"{word} goes through too few faults on {backend}"
        assert ("renewals" in runs) == (library.is_renewal is not None or backend == "zookeeper")
        assert library.is_acquire is not None


def test_a_library_says_why_it_cannot() -> None:
    assert SUBJECTS["tooz"].cannot("zookeeper", "pause") == "it does not know this backend"
    assert SUBJECTS["pottery"].cannot("redis", "renewals") == "it renews nothing by itself"
    assert SUBJECTS["pottery"].cannot("redis", "pause") == ""
    assert SUBJECTS["fencelock"].cannot("consul", "fork") == ""


def test_the_ttl_of_a_run_is_one_that_the_library_can_keep() -> None:
    shape = BACKENDS["redis"].shape
    whole, any_time = SUBJECTS["tooz"].fit(shape), SUBJECTS["redis-py"].fit(shape)
    assert (whole.ttl, any_time.ttl, shape.ttl) == (1, 0.5, 0.5)
    assert whole.names == shape.names


def test_requests_are_known_on_the_wire() -> None:
    assert outside.is_set(SET)
    assert not outside.is_set(GET)
    assert not outside.is_set(SET.replace(b"NX", b"XX"))
    reacquire, release = script(b"1", b"job", b"token", b"1000"), script(b"1", b"job", b"token")
    assert outside.is_tooz_renewal(reacquire)
    assert not any(map(outside.is_tooz_renewal, (release, SET, GET)))
    extend = script(b"2", b"lock:job", b"lock-signal:job", b"id", b"1")
    unlock = script(b"2", b"lock:job", b"lock-signal:job", b"id", b"1000")
    assert outside.is_redis_lock_renewal(extend)
    assert not any(map(outside.is_redis_lock_renewal, (unlock, SET, GET)))
    place = f"{outside.PATH}/job-1/{'0a' * 16}".encode()
    assert outside.is_znode(create(place + b"__lock__"))
    assert outside.is_znode(create(b"/other") + create(place + b"__rlock__"))
    assert not outside.is_znode(create(outside.PATH.encode() + b"/job-1"))


def test_a_stage_knows_the_library_and_else_the_store(tmp_path: Path) -> None:
    store = BACKENDS["redlock"](tmp_path)
    stage = Stage(store, store.folder, store.shape, ["chaos.ours:blocking"], "1", ["exclusive"])
    SUBJECTS["fencelock"].introduce(stage)
    assert (stage.is_acquire, stage.is_renewal, stage.delete) == (
        store.is_acquire,
        store.is_renewal,
        store.delete,
    )
    assert stage.sockets == store.sockets
    SUBJECTS["pottery"].introduce(stage)
    assert stage.is_acquire is outside.is_set
    assert stage.is_renewal == store.is_renewal
    asked: list[tuple[str, ...]] = []

    class Server:
        def ask(self, *words: str) -> None:
            asked.append(words)

    class Group:
        members = (Server(), Server())

    store.group = Group()
    stage.delete()
    assert asked == [("FLUSHALL",), ("FLUSHALL",)]
    stage.close()


def test_a_library_gets_the_server_that_it_asks_for(tmp_path: Path) -> None:
    store = BACKENDS["redis"](tmp_path)
    stage = Stage(store, store.folder, store.shape, ["chaos.ours:blocking"], "1", ["exclusive"])
    SUBJECTS["redis-py"].introduce(stage)
    assert "appendonly" not in store.options
    assert stage.sockets == float("inf")
    SUBJECTS["tooz"].introduce(stage)
    assert store.options["appendonly"] == "yes"
    stage.close()


def test_urls_of_servers_and_of_sentinels() -> None:
    assert nodes("redis://a:1") == ["redis://a:1"]
    assert nodes("redlock://a:1,b:2?max_ttl=1") == ["redis://a:1", "redis://b:2"]
    assert sentinels("redis://a:1") == ([], "")
    assert sentinels("redis+sentinel://a:1,b:2/name") == ([("a", 1), ("b", 2)], "name")


def test_attempts_end_with_the_time_to_wait_and_there_is_always_one() -> None:
    assert len([*attempts(ask(0.0))]) == 1
    began = boottime()
    times = [*attempts(ask(0.1))]
    assert 2 <= len(times) <= 20
    assert times == sorted(times)
    assert boottime() - began >= 0.1


def ask(timeout: float) -> Ask:
    return Ask("job", "exclusive", None, 1.0, timeout)


def test_a_claim_ends_with_its_time_or_its_release() -> None:
    given: list[str] = []
    lease = Claim("me", boottime() + 60, lambda: given.append("back"))
    assert lease.is_held()
    assert 30 < lease.remaining() <= 60
    lease.release()
    assert (lease.is_held(), lease.remaining(), given) == (False, 0.0, ["back"])
    assert not Claim("me", boottime() - 1, None).is_held()


def test_a_forked_child_claims_nothing() -> None:
    leases: list[Any] = [Claim("me", boottime() + 60, None), Believed("me", mine(), None)]
    child = os.fork()
    if child == 0:
        os._exit(sum(lease.is_held() or lease.remaining() > 0 for lease in leases))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(lease.is_held() for lease in leases)
