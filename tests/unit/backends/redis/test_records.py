"""Records: what is written of a request can be read back, whatever is in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencelock.backends.base import Origin, Request
from fencelock.backends.redis.records import Waiting, entry, state, tail
from fencelock.core.queue import Mode

NOW = 1_794_740_289_619_177
ORIGIN = Origin("client", "host", 7)
CHANNEL = b"fencelock:0123456789abcdef"


def record(
    mode: Mode = "exclusive",
    limit: int = 1,
    *,
    deadline: int = NOW + 5_000_000,
    token: int = NOW - 1_000_000,
    since: int = NOW - 2_000_000,
    origin: Origin = ORIGIN,
    metadata: Any = None,
) -> bytes:
    told = None if metadata is None else json.dumps(metadata)
    request = Request("f" * 32, "name", mode, limit, 30.0, origin, told)
    return b"%016d %016d %016d k%b" % (deadline, token, since, tail(request, CHANNEL))


@pytest.mark.parametrize(
    ("mode", "limit"), [("exclusive", 1), ("shared", 0), ("permit", 1), ("permit", 12345)]
)
def test_a_record_is_read_as_it_was_written(mode: Mode, limit: int) -> None:
    found = entry(b"a" * 32, record(mode, limit), NOW)
    assert (found.owner, found.mode, found.limit) == ("a" * 32, mode, limit)
    assert (found.client, found.host, found.pid) == ("client", "host", 7)
    assert found.token == NOW - 1_000_000
    assert found.since == pytest.approx((NOW - 2_000_000) / 1e6)
    assert found.age == pytest.approx(2.0)
    assert found.expires_in == pytest.approx(5.0)
    assert found.metadata is None


@pytest.mark.parametrize(
    "metadata", ["é {} \r\n", {"a": [1, None, "}"]}, [], 0, False, "", " ", {"metadata": 1}]
)
def test_metadata_is_kept_whatever_it_is(metadata: Any) -> None:
    assert entry(b"a" * 32, record(metadata=metadata), NOW).metadata == metadata


@pytest.mark.parametrize("name", ['quote"s', "back\\slash", "sp ace", "é", "\n", "\udcff", "{}"])
def test_people_may_be_called_anything(name: str) -> None:
    found = entry(b"a" * 32, record(origin=Origin(name, name, 1)), NOW)
    assert (found.client, found.host) == (name, name)


def fields(*records: bytes) -> list[bytes]:
    """Return a lock's hash as HGETALL gives it; its owners are a, b, c and so on."""
    owners = [letter.encode() * 32 for letter in "abcdef"[: len(records)]]
    told = [word for pair in zip(owners, records, strict=True) if pair[1] for word in pair]
    return [b"holders", b"1", *told, b"queue", b"".join(owners)]


def test_the_channel_stands_where_the_scripts_look_for_it() -> None:
    text = record("permit", 17)
    assert text[51:52] == b"k"
    assert text[52:53] == b"p"
    assert text[53:].split(b" ")[:2] == [b"17", CHANNEL]


def test_a_state_leaves_out_those_whose_time_is_over_and_those_without_a_record() -> None:
    live, dead = record(), record(deadline=NOW)
    found = state("job", fields(dead, live, b"", live), NOW)
    assert [one.owner[0] for one in found.holders] == ["b"]
    assert [one.owner[0] for one in found.waiters] == ["d"]
    assert not found.is_free
    assert state("job", [], NOW).is_free
    assert state("job", fields(dead), NOW).is_free


def test_a_state_has_the_admitted_first() -> None:
    read, write = record("shared", 0), record()
    found = state("job", fields(read, read, write, read), NOW)
    assert [one.owner[0] for one in found.holders] == ["a", "b"]
    assert [one.owner[0] for one in found.waiters] == ["c", "d"]


def test_who_waits_knows_when_to_look_again_and_who_holds() -> None:
    answer = Waiting([NOW, 1_500_000, b"a" * 32, record(), b"%016d" % NOW])
    assert answer.token == NOW
    assert answer.recheck == 1.5
    assert answer.holder is not None
    assert answer.holder.owner == "a" * 32
