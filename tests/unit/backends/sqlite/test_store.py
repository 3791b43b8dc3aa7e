"""The steps on a lock file: names, namespaces, residue, expiry, and many processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencelock import Client
from fencelock.backends.base import Origin, Outcome, Renewal, Request
from fencelock.backends.sqlite.store import Store
from fencelock.runtime import clock
from unit.support import in_forks, until

Operator = Callable[[str], list[tuple[Any, ...]]]

NAMES = [
    "a/b",
    "a:b",
    "{a}b",
    "A",
    "a",
    "a ",
    " a",
    "\u00e9",
    "e\u0301",
    "%2F",
    "/",
    "a\nb",
    "'",
    '"',
    "%",
    "_",
]
NAMES += ["x" * 512, "\U0001f600" * 128, "\x01", "\x7f", "\ufeff", "NULL", "0", "1e3", "-", "\u202e"]


def test_names_do_not_meet(client: Client) -> None:
    leases = [client.lock(name).try_acquire() for name in NAMES]
    assert None not in leases
    assert [state.name for state in client.list()] == sorted(NAMES, key=str.encode)
    for name in NAMES:
        assert client.lock(name).try_acquire() is None
        assert [state.name for state in client.list(name) if state.name == name] == [name]
        assert client.inspect(name).name == name
    client.close()


def test_a_prefix_is_taken_literally(client: Client) -> None:
    leases = [client.lock(name).acquire() for name in ("a%b", "a_b", "axb", "A%b", "\U0001f600z")]
    assert [state.name for state in client.list("a%")] == ["a%b"]
    assert [state.name for state in client.list("a_")] == ["a_b"]
    assert [state.name for state in client.list("\U0001f600")] == ["\U0001f600z"]
    assert len(client.list()) == len(leases)
    client.close()


def test_namespaces_are_apart(path: Path) -> None:
    spaces = ["", "a", "b", "a/", "x'y", "\u00e9"]
    clients = [Client(f"sqlite://{path}", namespace=space) for space in spaces]
    leases = [client.lock("x").try_acquire() for client in clients]
    assert None not in leases
    assert all(len(client.list()) == 1 for client in clients)
    clients[0].force_release("x")
    assert all(lease.verify() for lease in leases[1:] if lease is not None)
    for client in clients:
        client.close()


def test_metadata_and_origin_come_back_as_they_were(path: Path) -> None:
    with Client(f"sqlite://{path}", client_name="w\u00f6rker 'a'") as client:
        metadata = {"text": "\u00e9'\"\n\0", "n": [1, 2.5, None, True]}
        with client.lock("x", metadata=metadata):
            (holder,) = client.inspect("x").holders
    assert holder.metadata == metadata
    assert holder.client == "w\u00f6rker 'a'"
    assert holder.limit == 1


def test_nothing_is_left_of_names_that_are_not_in_use(client: Client, operator: Operator) -> None:
    def size() -> int:
        ((pages,),) = operator("SELECT page_count FROM pragma_page_count")
        return int(pages)

    def many(start: int) -> None:
        for number in range(start, start + 500):
            client.lock(f"job-{number}#send_email").acquire().release()

    many(0)
    before = size()
    many(500)
    many(1000)
    assert size() == before
    assert operator("SELECT count(*) FROM queue") == [(0,)]


@pytest.mark.parametrize(
    "look", [lambda locks: locks.list(), lambda locks: locks.lock("x").acquire().release()]
)
def test_what_expired_and_nobody_asks_for_is_swept(
    path: Path, client: Client, operator: Operator, look: Callable[[Client], object]
) -> None:
    with client.lock("alive"):
        operator(
            "INSERT INTO queue (namespace, name, owner, mode, max_holders, ttl, deadline, since, confirmed, "
            "client, host, pid) SELECT namespace, 'dead', 'o', mode, max_holders, ttl, 0, since, 1, client, "
            "host, pid FROM queue"
        )
        assert client.inspect("dead").is_free
        assert [state.name for state in client.list()] == ["alive"]
        with Client(f"sqlite://{path}") as another:  # at its first step, and once a minute from then on
            look(another)
        assert operator("SELECT name FROM queue") == [("alive",)]


def test_a_holder_that_died_is_passed_over_when_its_ttl_is_over(path: Path, client: Client) -> None:
    with Client(f"sqlite://{path}") as dying:
        lease = dying.lock("x", ttl=0.3, renew=False).acquire()
        before = time.monotonic()
        with client.lock("x", timeout=30) as mine:
            assert 0.2 < time.monotonic() - before < 10
            assert mine.token > lease.token


# Steps -----------------------------------------------------------------------------------


def request(owner: str, **changes: Any) -> Request:
    fields: dict[str, Any] = {"name": "x", "mode": "exclusive", "limit": 1, "ttl": 30.0, "metadata": None}
    return Request(owner=owner, origin=Origin("c", "h", 1), **{**fields, **changes})


@pytest.fixture
def store(path: Path) -> Any:
    store = Store(path, mkdir=False)
    yield store
    store.close()


def step(store: Store, work: Callable[..., Any], *arguments: object) -> Any:
    return store.step(clock.now() + 5, work, *arguments)


def test_a_step_whose_reply_was_lost_is_recognised_when_it_is_taken_again(store: Store) -> None:
    token = step(store, store.take_free, "", request("a"))
    assert step(store, store.take_free, "", request("a")) is None
    answer, bells = step(store, store.queue_up, "", request("a"), None)
    assert (answer.token, bells) == (token, [])
    for _ in range(3):
        step(store, store.queue_up, "", request("b"), "@box")
    assert len(step(store, store.inspect, "", "x").waiters) == 1


def test_a_try_leaves_no_row(store: Store) -> None:
    step(store, store.take_free, "", request("a"))
    step(store, store.queue_up, "", request("b"), None)
    assert step(store, store.inspect, "", "x").waiters == ()


def test_whoever_leaves_is_told_whose_turn_it_is(store: Store) -> None:
    token = step(store, store.take_free, "", request("a"))
    shared = {"mode": "shared", "limit": 0}
    for owner in "bc":
        step(store, store.queue_up, "", request(owner, **shared), f"@{owner}")
    step(store, store.queue_up, "", request("d"), "@d")
    there, bells = step(store, store.leave, "", request("a"), token)
    assert there
    assert [tuple(bell) for bell in bells] == [("@b", "b"), ("@c", "c")]
    assert step(store, store.leave, "", request("a"), token) == (False, bells)


def test_abandoning_needs_no_token_and_what_is_not_there_is_fine(store: Store) -> None:
    step(store, store.take_free, "", request("a"))
    assert step(store, store.leave, "", request("a"), None) == (True, [])
    assert step(store, store.leave, "", request("a"), None) == (False, [])


def test_renewals_of_many_in_one_step(store: Store) -> None:
    tokens = [step(store, store.take_free, "", request(o, name=o)) for o in "abc"]
    renewals = [
        Renewal(request("a"), tokens[0], 60.0, True),
        Renewal(request("b"), tokens[1], 60.0, False),
        Renewal(request("stranger"), tokens[2], 60.0, True),
        Renewal(request("c"), -1, 60.0, False),
    ]
    assert step(store, store.renew, renewals) == [
        Outcome.RENEWED,
        Outcome.HELD,
        Outcome.LOST,
        Outcome.LOST,
    ]
    assert step(store, store.inspect, "", "a").holders[0].expires_in > 50


def test_a_renewal_never_revives(store: Store) -> None:
    short = request("a", ttl=0.05)
    token = step(store, store.take_free, "", short)
    time.sleep(0.1)
    assert step(store, store.renew, [Renewal(short, token, 60.0, True)]) == [Outcome.LOST]
    assert step(store, store.renew, [Renewal(short, token, 60.0, False)]) == [Outcome.LOST]


# Many processes --------------------------------------------------------------------------


def test_processes_take_turns(path: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")

    def child(number: int) -> list[int]:
        tokens = []
        with Client(f"sqlite://{path}") as client:
            for _ in range(25):
                with client.lock("x", timeout=60) as lease:
                    counter.write_text(str(int(counter.read_text()) + 1))
                    tokens.append(lease.token)
        return tokens

    tokens = in_forks(4, child)
    assert counter.read_text() == "100"
    assert len({token for mine in tokens for token in mine}) == 100
    assert all(mine == sorted(mine) for mine in tokens)


def test_a_semaphore_holds_across_processes(path: Path) -> None:
    def child(number: int) -> int:
        worst = 0
        with Client(f"sqlite://{path}") as client:
            for _ in range(10):
                with client.semaphore("x", 2, timeout=60):
                    worst = max(worst, len(client.inspect("x").holders))
        return worst

    assert max(in_forks(4, child)) <= 2


def test_threads_of_one_client_share_the_file(client: Client) -> None:
    total = [0]

    def work() -> None:
        for _ in range(25):
            with client.lock("x", timeout=60):
                total[0] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert total == [100]
    assert until(lambda: client.list() == [])
