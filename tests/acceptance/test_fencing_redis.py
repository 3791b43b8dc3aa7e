"""The fence on Redis and Valkey: the holder that slept, 32 writers, each command, scripts, a Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from fencing_drills import WRITES, Cast
from redis_desk import FLAVOURS
from tools.servers import start

from fencelock import StaleToken
from fencelock.fencing import AsyncRedisFence, RedisFence
from fencelock.fencing.redis import fence_key


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@pytest.fixture(scope="module", params=["redis", "valkey"])
def group(request: pytest.FixtureRequest) -> Iterator[Any]:
    with start(request.param) as group:
        yield group


@pytest.fixture
def url(group: Any) -> str:
    group.members[0].ask("FLUSHALL")
    group.members[0].ask("SCRIPT", "FLUSH")
    return str(group.url).replace("valkey://", "redis://")


Do = Callable[..., Any]


@pytest.fixture(params=FLAVOURS)
def do(request: pytest.FixtureRequest, url: str) -> Iterator[Do]:
    """`do("set", …)` calls a method of a fence of either flavour; `do(fence, …)` what it returned."""
    if request.param == "blocking":
        with redis.Redis.from_url(url) as client:
            fence = RedisFence(client)
            yield lambda what, *args, **terms: (getattr(fence, what) if isinstance(what, str) else what)(
                *args, **terms
            )
        return
    with asyncio.Runner() as runner:
        other = redis.asyncio.Redis.from_url(url)
        asynchronous = AsyncRedisFence(other)

        def call(what: Any, *args: Any, **terms: Any) -> Any:
            found = (getattr(asynchronous, what) if isinstance(what, str) else what)(*args, **terms)

            async def main() -> Any:
                return await found

            return runner.run(main()) if asyncio.iscoroutine(found) else found

        yield call
        runner.run(other.aclose())


@pytest.mark.parametrize("kind", ["redis+set", "redis-async+set", "redis+hset", "redis-async+script"])
def test_the_holder_that_slept(cast: Cast, kind: str, url: str, tmp_path: Path) -> None:
    cast.paused_holder(kind, url, tmp_path)


@pytest.mark.parametrize("kind", ["redis+script", "redis-async+script"])
def test_32_writers(cast: Cast, kind: str, url: str) -> None:
    cast.crowd(kind, url, 4 * WRITES)


def test_each_command(do: Do, group: Any) -> None:
    server = group.members[0]
    do("set", "text", "one", token=5)
    do("set", "text", b"two", token=5, ttl=60)
    assert 0 < int(server.ask("PTTL", "text")) <= 60_000
    assert server.ask("PTTL", fence_key("text").decode()) == -1
    assert do("hset", "hash", {"a": 1, "b": "x"}, token=5) == 2
    assert do("hset", "hash", {"a": 2}, token=5) == 0
    many = {f"field{number}": number for number in range(12_345)}
    assert do("hset", "large", many, token=5) == len(many)
    assert server.ask("HLEN", "large") == len(many)
    assert do("incr", "number", token=5) == 1
    assert do("incr", "number", -5, token=2**63 - 1) == -4
    assert do("delete", "text", token=7) is True
    assert do("delete", "text", token=7) is False
    assert do("newest", "text") == 7
    assert do("newest", "unknown") == 0
    for name, args in {
        "set": ("text", "late"),
        "delete": ("text",),
        "hset": ("hash", {"a": 9}),
        "incr": ("number",),
    }.items():
        with pytest.raises(StaleToken) as raised:
            do(name, *args, token=4)
        assert raised.value.resource == args[0]
    assert server.ask("EXISTS", "text") == 0, "what was deleted was brought back"
    assert server.ask("GET", "number") == "-4"
    assert server.ask("HGET", "hash", "a") == "2"
    do("forget", "text")
    do("set", "text", "three", token=1)


def test_tokens_are_exact_beyond_53_bits(do: Do) -> None:
    big = 2**53
    do("admit", "r", big + 1)
    with pytest.raises(StaleToken) as raised:
        do("admit", "r", big)
    assert raised.value.newest == big + 1
    do("admit", "r", big + 1)
    do("admit", "r", 2**63 - 1)
    with pytest.raises(StaleToken):
        do("admit", "r", 2**63 - 2)
    with pytest.raises(StaleToken):
        do("admit", "r", 9)


def test_nine_is_older_than_ten(do: Do) -> None:
    """Tokens are kept as text, and compared as numbers."""
    do("admit", "r", 9)
    do("admit", "r", 10)
    with pytest.raises(StaleToken) as raised:
        do("admit", "r", 9)
    assert raised.value.newest == 10
    do("admit", "r", 100)


def test_a_script_of_your_own(do: Do) -> None:
    script = do(
        "script", "local n = redis.call('LPUSH', KEYS[2], ARGV[1])\nreturn {n, #KEYS, #ARGV, KEYS[1]}"
    )
    assert do(script, keys=["r", "list"], args=["x"], token=5) == [1, 2, 1, b"r"]
    assert do(script, keys=["r", "list"], args=["x"], token=6)[0] == 2
    with pytest.raises(StaleToken):
        do(script, keys=["r", "list"], args=["x"], token=5)
    assert do(do("script", "return nil"), keys=["r"], token=6) is None
    assert do(do("script", "redis.call('PING')"), keys=["r"], token=6) is None
    with pytest.raises(redis.ResponseError, match="no such thing"):
        do(do("script", "return redis.error_reply('no such thing')"), keys=["r"], token=6)
    with pytest.raises(redis.ResponseError, match=r"user_script:2"):
        do(do("script", "local x = 1\nerror('here')"), keys=["r"], token=6)
    with pytest.raises(redis.ResponseError, match="compiling"):
        do(do("script", "return ("), keys=["r"], token=6)


def test_a_write_that_fails_leaves_the_mark(do: Do) -> None:
    do("set", "text", "one", token=5)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        do("hset", "text", {"a": 1}, token=7)
    assert do("newest", "text") == 7
    with pytest.raises(StaleToken):
        do("set", "text", "late", token=6)


def test_a_fence_that_is_damaged_lets_nothing_through(do: Do, group: Any) -> None:
    server = group.members[0]
    for junk in ("", "-1", "abc", "007", "1.5"):
        server.ask("SET", fence_key("r").decode(), junk)
        with pytest.raises(redis.ResponseError, match="is damaged"):
            do("set", "r", "x", token=9)
    server.ask("DEL", fence_key("r").decode())
    server.ask("RPUSH", fence_key("r").decode(), "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        do("set", "r", "x", token=9)
    assert server.ask("EXISTS", "r") == 0


def test_fences_that_are_kept_for_a_while(url: str, group: Any) -> None:
    with redis.Redis.from_url(url) as client:
        RedisFence(client, keep=60).set("r", "x", token=5)
        assert 0 < int(group.members[0].ask("PTTL", fence_key("r").decode())) <= 60_000
        RedisFence(client).set("r", "x", token=5)
        assert group.members[0].ask("PTTL", fence_key("r").decode()) == -1


def test_one_round_trip(url: str, group: Any) -> None:
    with redis.Redis.from_url(url) as client:
        fence = RedisFence(client)
        fence.set("r", "x", token=5)
        group.members[0].ask("CONFIG", "RESETSTAT")
        fence.set("r", "y", token=6)
        stats = group.members[0].info("INFO", "commandstats")
    asked = {name for name in stats if name.startswith("cmdstat_")} - {
        "cmdstat_config|resetstat",
        "cmdstat_info",
    }
    assert asked == {"cmdstat_evalsha", "cmdstat_get", "cmdstat_set"}


def test_a_full_server_lets_nothing_through(do: Do, group: Any) -> None:
    server = group.members[0]
    do("set", "r", "x", token=5)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(redis.ResponseError, match="maxmemory"):
            do("set", "r", "y", token=6)
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")
    assert do("newest", "r") == 5


KEYS = ["plain", "{tag}one", "{tag}two", "odd}key", "{}x", "a{b", "ü"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with start("cluster") as group:
        yield group


@pytest.fixture
def clean_cluster(cluster: Any) -> Any:
    for member in cluster.members:
        if member.is_primary():
            member.ask("FLUSHALL")
    return cluster


@pytest.mark.parametrize("kind", ["cluster+set", "cluster-async+script"])
def test_the_holder_that_slept_on_a_cluster(
    cast: Cast, clean_cluster: Any, kind: str, tmp_path: Path
) -> None:
    member = clean_cluster.members[0]
    cast.paused_holder(kind, f"redis://{member.host}:{member.port}", tmp_path)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_cluster(clean_cluster: Any, flavour: str) -> None:
    host, port = clean_cluster.members[0].host, clean_cluster.members[0].port
    if flavour == "blocking":
        with redis.RedisCluster(host=host, port=port) as client:
            fence = RedisFence(client)
            for key in KEYS:
                fence.set(key, "x", token=5)
                with pytest.raises(StaleToken):
                    fence.set(key, "late", token=4)
                assert fence.newest(key) == 5
                assert fence.delete(key, token=5)
                fence.forget(key)
            script = fence.script("return redis.call('MSET', KEYS[1], 1, KEYS[2], 2)")
            assert script(keys=["{tag}one", "{tag}two"], token=6)
        return

    async def main() -> None:
        client = redis.asyncio.RedisCluster(host=host, port=port)
        fence = AsyncRedisFence(client)
        for key in KEYS:
            await fence.set(key, "x", token=5)
            with pytest.raises(StaleToken):
                await fence.set(key, "late", token=4)
            assert await fence.newest(key) == 5
            await fence.forget(key)
        await client.aclose()

    asyncio.run(main())
