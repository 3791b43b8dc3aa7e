"""Keys, values and answers of the fence on Redis. tests/acceptance has the servers."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.crc import key_slot

from fencelock import ConfigurationError
from fencelock.fencing import AsyncRedisFence, RedisFence
from fencelock.fencing.redis import fence_key

AWKWARD = ["a", "{a}", "a{b}c", "{}a", "a}b", "}{", "{a", "a{}b{c}", "{{a}}", "ü", " ", "{a}b}c", "a{b}{c}"]
TEXTS = st.text(alphabet="{}ab:", min_size=1, max_size=8)


@pytest.mark.parametrize("key", AWKWARD)
def test_a_fence_is_in_the_slot_of_its_key(key: str) -> None:
    assert key_slot(fence_key(key)) == key_slot(key.encode())


def test_what_fences_are_called() -> None:
    """Those who upgrade must find the fences that are there."""
    assert fence_key("document:1") == b"fencelock:fence:{document:1}"
    assert fence_key("{tag}one") == b"fencelock:fence:{tag}:{tag}one"
    assert fence_key("a}b") == b"fencelock:fence:{20658}:a}b"


@given(TEXTS)
@settings(max_examples=200)
def test_any_key(key: str) -> None:
    assert key_slot(fence_key(key)) == key_slot(key.encode())
    assert fence_key(key) == fence_key(key.encode())


@given(st.lists(TEXTS, unique=True, max_size=20))
@settings(max_examples=100)
def test_no_two_share_a_fence(keys: list[str]) -> None:
    fences = {fence_key(key) for key in keys}
    assert len(fences) == len(keys)
    assert not fences & {key.encode() for key in keys}


class Answers:
    """A client that gives one answer, and notes what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def execute_command(self) -> None: ...

    def evalsha(self, *words: Any) -> Any:
        self.asked.append(words)
        return self.answer


def test_bad_input_is_refused_before_anything_is_sent() -> None:
    client = Answers([1, b"OK"])
    fence = RedisFence(client)
    calls: list[Any] = [
        lambda: fence.set("", "v", token=1),
        lambda: fence.set("k", None, token=1),  # type: ignore[arg-type]
        lambda: fence.set("k", True, token=1),
        lambda: fence.set("k", "v", token=0),
        lambda: fence.set("k", "v", token=2**63),
        lambda: fence.set("k", "v", token="1"),  # type: ignore[arg-type]
        lambda: fence.set("k", "v", token=1, ttl=0),
        lambda: fence.set("k", "v", token=1, ttl=float("nan")),
        lambda: fence.set(7, "v", token=1),  # type: ignore[arg-type]
        lambda: fence.hset("k", {}, token=1),
        lambda: fence.hset("k", {"f": []}, token=1),  # type: ignore[dict-item]
        lambda: fence.incr("k", 1.5, token=1),  # type: ignore[arg-type]
        lambda: fence.incr("k", 2**63, token=1),
        lambda: fence.script(""),
        lambda: fence.script("#!lua flags=no-writes\nreturn 1"),
        lambda: fence.script("return 1")(keys=[], token=1),
        lambda: fence.script("return 1")(keys="k", token=1),
        lambda: RedisFence(client, keep=0),
        lambda: RedisFence(client, keep=-1),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()
    assert client.asked == []


def test_clients_of_the_other_flavour() -> None:
    blocking, asynchronous = redis.Redis(), redis.asyncio.Redis()
    RedisFence(blocking)
    AsyncRedisFence(asynchronous)
    with pytest.raises(ConfigurationError, match="use AsyncRedisFence"):
        RedisFence(asynchronous)
    with pytest.raises(ConfigurationError, match="use RedisFence"):
        AsyncRedisFence(blocking)
    for client in (None, "redis://", blocking.pipeline()):
        with pytest.raises(ConfigurationError, match="is not a client of redis-py"):
            RedisFence(client)


def test_an_error_that_a_script_returns_is_raised() -> None:
    fence = RedisFence(Answers([1, redis.ResponseError("no")]))
    with pytest.raises(redis.ResponseError, match="no"):
        fence.script("return redis.error_reply('no')")(keys=["k"], token=1)
    assert RedisFence(Answers([1])).script("return nil")(keys=["k"], token=1) is None
