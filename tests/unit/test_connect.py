"""Clients: where they connect to, what they refuse, and how they end."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from fencelock import AcquireCancelled, AsyncClient, Client, ConfigurationError, Unsupported
from fencelock.backends.memory import MemoryBackend, Store
from fencelock.connect import default_url
from fencelock.testing import view
from unit.support import in_fork, in_process, until

CLIENTS = [Client, AsyncClient]
both = pytest.mark.parametrize("make", CLIENTS)


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


# The default -----------------------------------------------------------------------------


def test_the_default_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCELOCK_URL", "memory://from-environment")
    assert default_url() == "memory://from-environment"
    assert repr(Client()) == "<Client memory://from-environment>"


def test_else_a_file_in_the_state_directory_that_is_made_when_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = tmp_path / "a folder with #, ? and %20"
    monkeypatch.delenv("FENCELOCK_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(odd))
    with Client() as client:
        assert not odd.exists()
        with client.lock("x"):
            pass
    assert (odd / "fencelock" / "locks.db").is_file()
    assert (odd / "fencelock").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("state", ["", "relative/path"])
def test_a_state_directory_that_is_not_absolute_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str
) -> None:
    monkeypatch.setenv("FENCELOCK_URL", "")
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", str(tmp_path))
    with Client() as client, client.lock("x"):
        assert (tmp_path / ".local/state/fencelock/locks.db").is_file()


# Targets ---------------------------------------------------------------------------------


@both
def test_a_ready_backend_is_a_target(make: Callable[..., Any]) -> None:
    backend = MemoryBackend(Store())
    assert repr(make(backend)) == f"<{make.__name__} {backend!r}>"


@both
@pytest.mark.parametrize("target", [5, b"memory://", Path("/x"), object, Store])
def test_a_target_that_is_neither_url_nor_backend_is_refused(make: Callable[..., Any], target: Any) -> None:
    refused(lambda: make(target), f"target={target!r}", "neither a URL nor a backend")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", ["'sqlite://'", "sqlite:///absolute/path"]),
        ("sqlite:///", ["names no file"]),
        ("sqlite://locks.db", ["sqlite:///absolute/path"]),
        ("sqlite://host/locks.db", ["sqlite:///absolute/path"]),
        ("sqlite:///:memory:", ["memory://"]),
        ("sqlite:///var/lib/", ["names no file"]),
        ("sqlite:///x%00y.db", ["names no file"]),
        ("sqlite:///x.db?journal=off", ["journal", "namespace and mkdir"]),
        ("sqlite:///x.db?mkdir=perhaps", ["mkdir=perhaps", "yes|no"]),
        ("sqlite:///x.db?mkdir", ["mkdir", "yes|no"]),
        ("sqlite:///x.db#part", ["#part"]),
        ("memory:///path", ["'memory:///path'", "memory://NAME"]),
        ("memory://name?x=1", ["memory://NAME"]),
        ("memory://name?namespace=a&x=1", ["memory://NAME"]),
        ("memory://?namespace=a%00b", ["namespace", "NUL"]),
    ],
)
def test_a_url_with_something_wrong_is_refused_with_the_fix(url: str, words: list[str]) -> None:
    refused(lambda: Client(url), *words)


@both
def test_who_one_is_and_where_is_checked(make: Callable[..., Any]) -> None:
    refused(lambda: make("memory://", namespace=5), "namespace=5")
    refused(lambda: make("memory://", namespace="x" * 513), "namespace", "513 bytes")
    refused(lambda: make("memory://", client_name=""), "client_name", "empty")
    refused(lambda: make("memory://", client_name=5), "client_name=5")


# Namespaces ------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://ns", "sqlite:///{tmp}/a%20b.db"])
def test_a_namespace_comes_in_the_url_or_beside_it(url: str, tmp_path: Path) -> None:
    url = url.format(tmp=str(tmp_path).strip("/"))
    with (
        Client(url) as none,
        Client(f"{url}?namespace=app") as by_url,
        Client(url, namespace="app") as beside,
        Client(f"{url}?namespace=other", namespace="app") as both_ways,
        Client(f"{url}?namespace=") as empty,
    ):
        with by_url.lock("x"), none.lock("x", timeout=0):
            assert beside.lock("x").try_acquire() is None
            assert both_ways.lock("x").try_acquire() is None
            assert [state.name for state in beside.list()] == ["x"]
            assert none.inspect("x").holders != beside.inspect("x").holders
        lease = none.lock("y").acquire()
        assert empty.lock("y").try_acquire() is None
        lease.release()
    if url.startswith("sqlite"):
        assert (tmp_path / "a b.db").exists()


def test_a_path_stays_as_it_was_written_beside_a_namespace(tmp_path: Path) -> None:
    with (
        Client(f"sqlite:///{tmp_path}/locks.db?namespace=app") as four_slashes,
        Client(f"sqlite://{tmp_path}/locks.db?namespace=app") as three,
        four_slashes.lock("x"),
    ):
        assert [state.name for state in three.list()] == ["x"]


def test_an_option_survives_beside_a_namespace(tmp_path: Path) -> None:
    with Client(f"sqlite://{tmp_path}/new/locks.db?namespace=app&mkdir=yes") as client, client.lock("x"):
        assert (tmp_path / "new" / "locks.db").exists()


# What every call refuses -----------------------------------------------------------------


LOCKS: dict[str, Callable[..., Any]] = {
    "lock": lambda client, **terms: client.lock("x", **terms),
    "rwlock": lambda client, **terms: client.rwlock("x", **terms),
    "semaphore": lambda client, **terms: client.semaphore("x", 2, **terms),
    "multi": lambda client, **terms: client.multi(["x", "y"], **terms),
    "election": lambda client, **terms: client.election("x", **terms),
}
NAN = math.nan

BAD_TERMS: list[tuple[dict[str, Any], list[str]]] = [
    ({"ttl": -1}, ["ttl=-1", "0 or more"]),
    ({"ttl": NAN}, ["ttl=nan"]),
    ({"ttl": math.inf}, ["ttl=inf"]),
    ({"ttl": True}, ["ttl=True", "seconds or a timedelta"]),
    ({"ttl": "30"}, ["ttl='30'", "seconds or a timedelta"]),
    ({"ttl": None}, ["ttl=None"]),
    ({"ttl": 0}, ["ttl=0", "memory needs at least 0.001s"]),
    ({"ttl": timedelta(microseconds=10)}, ["too short", "at least 0.001s"]),
    ({"timeout": -0.5}, ["timeout=-0.5"]),
    ({"timeout": NAN}, ["timeout=nan"]),
    ({"timeout": -math.inf}, ["timeout=-inf"]),
    ({"timeout": False}, ["timeout=False"]),
    ({"timeout": "5"}, ["timeout='5'"]),
    ({"max_hold": 0}, ["max_hold=0", "more than 0"]),
    ({"max_hold": -1}, ["max_hold=-1"]),
    ({"max_hold": NAN}, ["max_hold=nan"]),
    ({"max_hold": True}, ["max_hold=True"]),
    ({"max_hold": "1h"}, ["max_hold='1h'"]),
    ({"metadata": object()}, ["metadata=<object", "JSON"]),
    ({"metadata": NAN}, ["metadata=nan", "JSON"]),
    ({"metadata": "x" * 5000}, ["5002 bytes", "4096"]),
    ({"on_lost": "function"}, ["on_lost='function'", "takes the lease"]),
    ({"on_lost": 5}, ["on_lost=5"]),
]


@both
@pytest.mark.parametrize("kind", LOCKS)
@pytest.mark.parametrize(("bad", "words"), BAD_TERMS, ids=lambda value: str(value)[:30])
def test_a_wrong_value_is_refused_in_one_line_that_names_it_and_the_fix(
    make: Callable[..., Any], kind: str, bad: dict[str, Any], words: list[str]
) -> None:
    client = make("memory://refused")
    refused(lambda: LOCKS[kind](client, **bad), *words)


@both
@pytest.mark.parametrize("kind", LOCKS)
@pytest.mark.parametrize(
    "good",
    [{"timeout": None}, {"timeout": math.inf}, {"timeout": 0}, {"max_hold": None}, {"max_hold": math.inf}],
)
def test_without_limit_is_a_fine_limit(make: Callable[..., Any], kind: str, good: dict[str, Any]) -> None:
    LOCKS[kind](make("memory://fine"), **good)


@both
@pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, "\ud800", None, 5, b"x"], ids=lambda n: repr(n)[:10])
def test_a_wrong_name_is_refused_by_every_call(make: Callable[..., Any], name: Any) -> None:
    client = make("memory://refused")
    refused(lambda: client.lock(name), "name=")
    refused(lambda: client.rwlock(name), "name=")
    refused(lambda: client.semaphore(name, 1), "name=")
    refused(lambda: client.election(name), "name=")
    refused(lambda: client.multi(["good", name]), "name=")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, None, 5], ids=lambda n: repr(n)[:10])
def test_a_wrong_name_is_refused_by_the_calls_that_look_and_break(name: Any) -> None:
    with Client("memory://refused") as client:
        refused(lambda: client.inspect(name), "name=")
        refused(lambda: client.force_release(name), "name=")

    async def main() -> None:
        async with AsyncClient("memory://refused") as client:
            for call in (client.inspect, client.force_release):
                with pytest.raises(ConfigurationError, match="name="):
                    await call(name)

    asyncio.run(main())


@pytest.mark.parametrize("prefix", ["a\0", "x" * 513, 5, None, 0], ids=lambda p: repr(p)[:10])
def test_a_wrong_prefix_is_refused(prefix: Any) -> None:
    with Client("memory://refused") as client:
        refused(lambda: client.list(prefix), "prefix=")


@both
@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2", None])
def test_a_wrong_limit_is_refused(make: Callable[..., Any], limit: Any) -> None:
    refused(lambda: make("memory://refused").semaphore("x", limit), f"limit={limit!r}", "from 1 on")


@both
@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ["names=[]", "at least one"]),
        ((), ["at least one"]),
        ("abc", ["names='abc'", "list of names"]),
        (["a", 5], ["5"]),
        (["a", ""], ["empty"]),
        (5, ["names=5"]),
        (None, ["names=None"]),
    ],
)
def test_wrong_names_for_a_multi_lock_are_refused(
    make: Callable[..., Any], names: Any, words: list[str]
) -> None:
    refused(lambda: make("memory://refused").multi(names), *words)


def test_a_wrong_timeout_or_ttl_is_refused_by_a_call_on_a_lock_too() -> None:
    with Client("memory://refused") as client:
        for timeout in (-1, NAN, "5", True):
            refused(lambda timeout=timeout: client.lock("x").acquire(timeout=timeout), f"timeout={timeout!r}")
        with client.lock("x") as lease:
            for ttl in (-1, NAN, math.inf, "5", True, None, 0):
                refused(lambda ttl=ttl: lease.extend(ttl), f"ttl={ttl!r}")
            assert lease.is_held()


def test_a_ttl_below_what_the_backend_can_do_names_the_minimum(tmp_path: Path) -> None:
    client = Client(f"sqlite://{tmp_path}/x.db")
    refused(lambda: client.lock("x", ttl=0.01), "ttl=0.01", "sqlite needs at least 0.05s")
    assert not (tmp_path / "x.db").exists()


def test_a_limit_that_differs_from_the_one_in_use_is_refused(tmp_path: Path) -> None:
    for url in ("memory://limits", f"sqlite://{tmp_path}/x.db"):
        with Client(url) as client, client.semaphore("x", 2):
            refused(client.semaphore("x", 3).acquire, "limit=3", "limit 2", "same one everywhere")
            refused(client.semaphore("x", 3).try_acquire, "limit=3")
            assert len(client.inspect("x").holders) == 1
            assert client.inspect("x").waiters == ()


def test_what_a_backend_does_not_declare_is_unsupported() -> None:
    class Plain(MemoryBackend):
        name = "plain"
        capabilities = frozenset({"exclusive"})

    client = Client(Plain(Store()))
    with client.lock("x"):
        pass
    for call, capability in [
        (lambda: client.rwlock("x"), "shared"),
        (lambda: client.semaphore("x", 2), "permit"),
        (lambda: client.inspect("x"), "inspect"),
        (client.list, "list"),
        (lambda: client.force_release("x"), "force_release"),
    ]:
        with pytest.raises(Unsupported) as caught:
            call()  # type: ignore[no-untyped-call]
        assert (caught.value.capability, caught.value.backend) == (capability, "plain")


# The end of a client ---------------------------------------------------------------------


def test_closing_releases_what_is_held_and_is_idempotent() -> None:
    with Client("memory://closing") as other:
        client = Client("memory://closing")
        lease = client.lock("x").acquire()
        client.close()
        client.close()
        assert not lease.is_held()
        assert other.inspect("x").is_free
        refused(lambda: client.lock("x").acquire(), "closed", "make a new one")
        refused(lambda: client.inspect("x"), "closed")
        refused(client.list, "closed")
        refused(lambda: client.force_release("x"), "closed")


def test_closing_an_async_client_releases_what_is_held() -> None:
    async def main() -> None:
        async with AsyncClient("memory://closing-async") as other:
            client = AsyncClient("memory://closing-async")
            lease = await client.lock("x").acquire()
            await client.close()
            await client.close()
            assert not lease.is_held()
            assert (await other.inspect("x")).is_free
            with pytest.raises(ConfigurationError, match="closed"):
                await client.lock("x").acquire()

    asyncio.run(main())


def test_closing_lets_waiting_threads_go() -> None:
    with Client("memory://waiting") as holder, holder.lock("x"):
        client = Client("memory://waiting")
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                client.lock("x").acquire()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert until(lambda: holder.inspect("x").waiters)
        client.close()
        thread.join(10)
        assert [type(failure) for failure in failures] == [AcquireCancelled]
        assert holder.inspect("x").waiters == ()


def test_a_client_that_nobody_has_any_more_is_closed() -> None:
    with Client("memory://garbage") as other:
        client = Client("memory://garbage")
        lease = client.lock("x").acquire().__enter__()
        del client
        gc.collect()
        assert lease.is_held(), "a lease keeps its client"
        del lease
        gc.collect()
        assert until(lambda: other.inspect("x").is_free)


def test_a_client_that_is_open_when_the_program_ends_gives_back_what_it_holds(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    in_process(f"import fencelock; c = fencelock.Client({url!r}); lease = c.lock('x', ttl=300).acquire()")
    with Client(url) as client:
        assert client.inspect("x").is_free


def test_closing_leaves_no_thread() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    for _ in range(5):
        with Client("memory://threads") as client, client.lock("x"):
            pass
    assert until(lambda: {thread.ident for thread in threading.enumerate()} <= before)


# One loop each ---------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://loops", "sqlite://{tmp}/x.db"])
def test_an_async_client_says_so_when_used_on_another_loop(url: str, tmp_path: Path) -> None:
    client = AsyncClient(url.format(tmp=tmp_path))

    async def use() -> None:
        async with client.lock("x"):
            pass

    async def use_again() -> None:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await use()

    asyncio.run(use())
    asyncio.run(use_again())
    assert view.held(client) == []
    if url.startswith("sqlite"):
        client._session.backend._store.close()  # its own loop, that could close it, is gone
    gc.collect()


def test_an_async_client_says_so_while_its_own_loop_runs_elsewhere() -> None:
    client = AsyncClient("memory://loops-at-once")
    ready, done = threading.Event(), threading.Event()

    async def hold() -> None:
        async with client.lock("mine"):
            ready.set()
            await asyncio.to_thread(done.wait, 10)

    async def intrude() -> None:
        async with client.lock("other"):
            pass

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    assert ready.wait(10)
    try:
        with pytest.raises(ConfigurationError, match="another event loop"):
            asyncio.run(intrude())
    finally:
        done.set()
        thread.join(10)


# Fork ------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["memory://fork", "sqlite://{tmp}/x.db"])
def test_in_a_forked_child_the_parents_leases_are_not_held_and_stay_the_parents(
    url: str, tmp_path: Path
) -> None:
    with Client(url.format(tmp=tmp_path)) as client:
        lease = client.lock("x").acquire()

        def child() -> dict[str, Any]:
            try:
                lease.check()
                reason = ""
            except Exception as error:
                reason = str(error)
            facts = {
                "held": lease.is_held(),
                "reason": reason,
                "lost": lease.lost.is_set(),
                "released": lease.release(),
                "pid": client.lock("y").acquire().owner and client.inspect("y").holders[0].pid == os.getpid(),
            }
            client.close()
            return facts

        facts = in_fork(child)
        assert facts["held"] is False
        assert "parent" in facts["reason"]
        assert facts["lost"] is True
        assert facts["released"] is False
        assert facts["pid"] is True
        assert lease.verify()
        assert client.inspect("y").is_free


def test_a_child_of_a_client_with_a_store_of_its_own_starts_empty() -> None:
    with Client(MemoryBackend(Store())) as client, client.lock("x"):
        assert in_fork(lambda: client.lock("x").try_acquire() is not None)


def test_a_child_of_an_async_client_starts_anew() -> None:
    client = AsyncClient("memory://fork-async")

    async def main() -> None:
        async with client.lock("x") as lease:

            def child() -> list[bool]:
                async def anew() -> bool:
                    async with client.lock("x") as mine:
                        return mine.is_held()

                asyncio._set_running_loop(None)
                return [lease.is_held(), asyncio.run(anew())]

            assert in_fork(child) == [False, True]
            assert await lease.verify()
        await client.close()

    asyncio.run(main())


# Where a client does not belong -----------------------------------------------------------


def things(client: Client) -> list[object]:
    lease = client.lock("pickled").acquire()
    lease.release()
    several = client.multi(["a", "b"]).acquire()
    several.release()
    rw = client.rwlock("r")
    return [
        client,
        client.lock("x"),
        rw,
        rw.read(),
        client.multi(["a"]),
        client.election("e"),
        lease,
        several,
    ]


@pytest.mark.parametrize("copying", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_a_process_says_so_when_it_is_pickled(copying: Callable[[object], object]) -> None:
    with Client("memory://") as client:
        for thing in things(client):
            with pytest.raises(
                TypeError, match=r"cannot be pickled, it belongs to this process: .*child process"
            ) as no:
                copying(thing)
            assert "\n" not in str(no.value) and type(thing).__name__ in str(no.value)


def test_a_pool_of_processes_says_what_to_do(tmp_path: Path) -> None:
    with (
        Client(f"sqlite://{tmp_path}/x.db") as client,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(TypeError, match="make a new one in the child process, with the same URL"),
    ):
        pool.submit(print, client).result(60)


def test_an_async_client_is_closed_on_its_own_loop(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/x.db"
    client = AsyncClient(url)
    kept: list[object] = []

    async def use() -> None:
        kept.append(await client.lock("x", ttl=60).acquire())

    asyncio.run(use())
    with pytest.raises(ConfigurationError, match="another event loop: close it there, before that loop ends"):
        asyncio.run(client.close())
    asyncio.run(client.close())  # it is closed: what could be given back without its loop was
    with Client(url) as other:
        assert other.inspect("x").is_free


def test_an_async_client_whose_loop_still_runs_is_not_closed_elsewhere() -> None:
    async def main() -> None:
        async with AsyncClient("memory://") as client, client.lock("x") as lease:

            def elsewhere() -> None:
                asyncio.run(client.close())

            with pytest.raises(ConfigurationError, match="another event loop: close it there"):
                await asyncio.to_thread(elsewhere)
            assert lease.is_held() and await lease.verify()

    asyncio.run(main())
