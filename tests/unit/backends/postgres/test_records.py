"""Places and rows: no two names meet, and what is stored is shown as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencelock.backends.base import Origin, Request
from fencelock.backends.postgres.records import REMEMBERED, Places, Waiting, details, entry, states

OWNER = "0123456789abcdef0123456789abcdef"
ALIKE = ["a", "A", "a ", "a/b", "a:b", "{a}b", "a%2Fb", "é", "e\u0301", "x" * 512, "\u0001", "\U0001f512"]


def request(metadata: str | None = None, client: str = "c") -> Request:
    return Request(OWNER, "job", "exclusive", 1, 30.0, Origin(client, "host", 7), metadata)


def words(**other: Any) -> list[bytes]:
    told = json.dumps({"client": "c", "host": "h", "pid": 7, **other.pop("more", {})})
    fields = {"owner": OWNER, "token": 5, "mode": "exclusive", "slots": 1}
    fields |= {"since": 1000.5, "age": 2.25, "expires": 27.75, "details": told, **other}
    return [str(value).encode() for value in fields.values()]


class Result:
    """What libpq gives: text in cells."""

    def __init__(self, rows: list[list[bytes]]) -> None:
        self._rows = rows
        self.ntuples = len(rows)

    def get_value(self, row: int, column: int) -> bytes:
        return self._rows[row][column]


def test_names_and_namespaces_never_meet() -> None:
    keys = {
        Places(space, 256).find(name).key
        for space in ("", "n", "n:m", "a")
        for name in [*ALIKE, "n", "m", "n:m", ":m"]
    }
    assert len(keys) == 4 * (len(ALIKE) + 4)


@pytest.mark.parametrize("space", ["", "n", "é"])
@pytest.mark.parametrize("name", ALIKE)
def test_a_place_tells_its_name(space: str, name: str) -> None:
    places = Places(space, 256)
    assert places.name_of(places.find(name).key) == name
    assert places.find(name) is places.find(name)


def test_buckets_are_used_evenly_and_always_the_same() -> None:
    places = Places("", 256)
    count = [0] * 256
    for number in range(25_600):
        count[int(places.find(f"job-{number}").bucket)] += 1
    assert min(count) > 50
    assert max(count) < 200
    # Processes of other versions find the same place, or there would be two latches for one name.
    assert Places("", 256).find("job").bucket == b"225"
    assert Places("n", 256).find("job").bucket == b"72"


def test_not_all_names_are_remembered() -> None:
    places = Places("", 256)
    for number in range(3 * REMEMBERED):
        places.find(f"job-{number}")
    assert len(places._known) <= REMEMBERED


@pytest.mark.parametrize("prefix", ["", "a", "a/", "é", "\U0010ffff"])
def test_a_prefix_is_a_range(prefix: str) -> None:
    places = Places("n", 256)
    low, high = places.range_of(prefix)
    for name in [*ALIKE, "\U0010ffff", "\U0010ffff\U0010ffff"]:
        key = places.find(name).key
        assert (low <= key < high) == name.startswith(prefix), name
        assert not low <= Places("m", 256).find(name).key < high


@pytest.mark.parametrize("metadata", [None, "null", '{"n": "é\\u0000"}', "[1, 2.5, true]", '"x y"'])
def test_details_are_ascii_and_come_back(metadata: str | None) -> None:
    told = details(request(metadata, client="a é \n \\ ' \""))
    assert told.isascii()
    assert b"\n" not in told
    assert b"\0" not in told
    shown = entry([*words()[:-1], told])
    assert shown.client == "a é \n \\ ' \""
    assert shown.metadata == (None if metadata is None else json.loads(metadata))


def test_an_entry_is_read_from_its_words() -> None:
    shown = entry(words(more={"metadata": {"a": 1}}))
    assert (shown.owner, shown.token, shown.mode, shown.limit) == (OWNER, 5, "exclusive", 1)
    assert (shown.client, shown.host, shown.pid) == ("c", "h", 7)
    assert (shown.since, shown.age, shown.expires_in) == (1000.5, 2.25, 27.75)
    assert shown.metadata == {"a": 1}
    assert entry([word.decode() for word in words()]).owner == OWNER
    late = entry(words(age=-0.001, expires=-1.5))
    assert (late.age, late.expires_in) == (0.0, 0.0)


def row(places: Places, name: str, **fields: Any) -> list[bytes]:
    return [b"\\x" + places.find(name).key.hex().encode(), *words(**fields)]


def test_states_have_their_holders_first() -> None:
    places = Places("n", 256)
    result = Result(
        [
            row(places, "job", owner="a" * 32, token=1),
            row(places, "job", owner="b" * 32, token=2),
            row(places, "page", owner="c" * 32, token=3, mode="shared", slots=0),
            row(places, "page", owner="d" * 32, token=4, mode="shared", slots=0),
            row(places, "page", owner="e" * 32, token=5),
            row(places, "page", owner="f" * 32, token=6, mode="shared", slots=0),
            row(places, "permit", owner="g" * 32, token=7, mode="permit", slots=2),
            row(places, "permit", owner="h" * 32, token=8, mode="permit", slots=2),
            row(places, "permit", owner="i" * 32, token=9, mode="permit", slots=2),
        ]
    )
    shown = {
        state.name: ([e.token for e in state.holders], [e.token for e in state.waiters])
        for state in states(result, places)
    }
    assert shown == {"job": ([1], [2]), "page": ([3, 4], [5, 6]), "permit": ([7, 8], [9])}
    assert states(Result([]), places) == []


def test_a_waiter_is_told_who_holds_if_it_asks() -> None:
    told = '{"client": "a b", "host": "h", "pid": 7, "metadata": "x  y"}'
    waiting = Waiting(f"b 9 1.5 {OWNER} 5 exclusive 1 1000.5 2.25 27.75 {told}", is_sure=True)
    assert waiting.token == 9
    assert waiting.recheck == 1.5
    holder = waiting.holder
    assert holder is not None
    assert (holder.owner, holder.token, holder.client, holder.metadata) == (OWNER, 5, "a b", "x  y")
