"""Records, verdicts, and when to refresh early."""

from __future__ import annotations

import inspect
import math
import random

import pytest

from fencelock import flight
from fencelock.flight.places.memory import SWEEP_FROM, MemoryPlace, Shelf
from fencelock.flight.records import (
    Kept,
    Terms,
    Verdict,
    compute_failed,
    failure,
    is_early,
    judge,
    lock_name,
    packed,
    unpacked,
)

TERMS = Terms(60, 5, 0, "raise")
SHARE = Terms(60, 5, 0, "share")
OWNER = b"0" * 32


def kept(left: float, *, is_error: bool = False, codec: str = "json") -> Kept:
    return Kept(OWNER, left, 1.0, codec, is_error, b"")


@pytest.mark.parametrize(
    ("found", "terms", "verdict"),
    [
        (None, TERMS, Verdict.MISS),
        (kept(1), TERMS, Verdict.HIT),
        (kept(1, codec="pickle"), TERMS, Verdict.MISS),
        (kept(0), TERMS, Verdict.REFRESH),
        (kept(-4.9), TERMS, Verdict.REFRESH),
        (kept(-5), TERMS, Verdict.MISS),
        (kept(1, is_error=True), TERMS, Verdict.MISS),
        (kept(1, is_error=True), SHARE, Verdict.HIT),
        (kept(0, is_error=True), SHARE, Verdict.MISS),
        (kept(1), Terms(60, 0, 1, "raise"), Verdict.REFRESH),
    ],
)
def test_what_a_record_is_good_for(found: Kept | None, terms: Terms, verdict: Verdict) -> None:
    assert judge(found, terms, "json", 0.9) is verdict


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("left", [0.1, 1.0, 4.0])
def test_early_is_as_likely_as_it_should_be(beta: float, left: float) -> None:
    """With a cost of 1 the probability is exp(-left / beta): within four standard deviations, seeded."""
    draws = random.Random(7)
    count = 20_000
    seen = sum(is_early(left, 1.0, beta, draws.random()) for _ in range(count)) / count
    expected = math.exp(-left / beta)
    assert abs(seen - expected) < 4 * math.sqrt(expected * (1 - expected) / count)


def test_early_at_the_edges() -> None:
    assert not is_early(0.0, 1.0, 0.0, 0.5), "beta 0 is never"
    assert not is_early(1.0, 0.0, 1.0, 0.999999), "what costs nothing is not refreshed early"
    assert is_early(1e9, 1.0, 1e9, math.nextafter(1.0, 0.0))
    assert not is_early(0.001, 1.0, 1.0, 0.0)


def test_a_record_survives_its_journey() -> None:
    record = packed(OWNER, TERMS, "json", b"a\nb\0", cost=0.25)
    found = unpacked(record, 8000)
    assert found == Kept(OWNER, 3.0, 0.25, "json", False, b"a\nb\0")
    assert unpacked(packed(OWNER, TERMS, "json", b"", cost=0, is_error=True), 1000).left == 1.0


@pytest.mark.parametrize(
    "junk",
    [b"", b"junk", b"x" * 100, b"a b c d e\nf", b"a v json 1 1\n{}", b"a v json 1\n", b"a v \xff 1 1\n"],
)
def test_junk_is_a_record_that_may_be_replaced(junk: bytes) -> None:
    found = unpacked(junk, 1000)
    assert found.owner == junk[:32]
    assert judge(found, SHARE, "json", 0.5) is Verdict.MISS


def test_an_error_says_what_it_was_and_no_more() -> None:
    told = compute_failed("k", failure(LookupError("x" * 5000)))
    assert (told.key, told.kind, told.detail) == ("k", "LookupError", "x" * 1000)


def test_locks_of_keys_do_not_meet() -> None:
    keys = ["a", "flight:a", "a" * 505, "a" * 506, "a" * 512, "b" * 512, "ä" * 256]
    names = [lock_name(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all(len(name.encode()) <= 512 for name in names)
    assert names[2].startswith("flight:a") and names[3].startswith("flight#")


def test_memory_is_swept() -> None:
    shelf = Shelf()
    for number in range(SWEEP_FROM - 1):
        shelf.records["", str(number)] = b"", 0.0
        shelf.claims["", str(number)] = b"", 0.0
        shelf.sweep()
    shelf.records["", "alive"] = b"", math.inf
    assert len(shelf.records) == SWEEP_FROM
    shelf.sweep()
    assert list(shelf.records) == [("", "alive")]
    assert shelf.claims == {}


@pytest.mark.parametrize("name", ["__init__", "get", "put", "forget", "cached", "close"])
def test_both_flavours_are_called_alike(name: str) -> None:
    shapes = [
        [
            (one.name, one.kind, one.default)
            for one in inspect.signature(getattr(cls, name)).parameters.values()
        ]
        for cls in (flight.Flight, flight.AsyncFlight)
    ]
    assert shapes[0] == shapes[1]


def test_memory_place_is_per_store() -> None:
    from fencelock.backends.memory import Store
    from fencelock.runtime.blocking import run

    one, two = Store(), Store()
    run(MemoryPlace(one, "").put("k", packed(OWNER, TERMS, "json", b"1", cost=0), 60))
    assert run(MemoryPlace(one, "").look("k")) is not None
    assert run(MemoryPlace(two, "").look("k")) is None
