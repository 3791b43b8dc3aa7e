"""Keys, records and rounds, without a server."""

from __future__ import annotations

import hiredis
import pytest

from fencelock.backends.base import Origin, Request
from fencelock.backends.redlock import commands
from fencelock.backends.redlock.failures import Silence
from fencelock.backends.redlock.keys import BUCKETS, Place, Places, Record, about, milliseconds
from fencelock.backends.redlock.rounds import Asking, Collecting, Releasing, Renewing, Undoing, Writing
from fencelock.backends.redlock.states import Polled, holder
from fencelock.core.quorum import BUSY, GRANTED, SILENT, Claim

OWNER = "0123456789abcdef" * 2
LABELS = ["a:1", "b:2", "c:3"]


def request(metadata: str | None = None) -> Request:
    return Request(OWNER, "job", "exclusive", 1, 10.0, Origin("app", "host-ä", 7), metadata)


def raw(owner: str = OWNER, token: int = 5, metadata: str | None = None) -> bytes:
    return f"{owner}{token:016d}{1_000_000:016d}{3:016d}".encode() + about(request(metadata))


def test_no_two_names_meet() -> None:
    keys = {
        Places(namespace).find(name).key
        for namespace, name in [
            ("", "a:b"),
            ("a", "b"),
            ("", "b"),
            ("a:b", ""),
            ("a%3Ab", ""),
            ("a%", "b"),
            ("A", "b"),
        ]
    }
    assert len(keys) == 7
    assert all(0 <= int(Places("").find(name).bucket) < BUCKETS for name in ("x", "ü", "{a}b"))


def test_names_come_back_from_keys_and_patterns_are_quoted() -> None:
    places = Places("x:y")
    assert places.name_of(places.find("a:*[").key) == "a:*["
    assert places.pattern("a*[") == rb"fencelock:redlock:x%3Ay:a\*\[*"


def test_places_are_remembered_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelock.backends.redlock.keys.CACHED", 2)
    places = Places("")
    first = places.find("a")
    assert places.find("a") is first
    places.find("b")
    places.find("c")
    assert places.find("a") is not first


def test_nodes_keep_locks_a_little_longer() -> None:
    assert milliseconds(10) == b"10102"


def test_a_record_as_people_see_it() -> None:
    record = Record.read([raw(metadata='{"n":1}'), 9500])
    assert record is not None
    entry = record.entry(3_000_000)
    assert (entry.owner, entry.token, entry.client, entry.host, entry.pid) == (OWNER, 5, "app", "host-ä", 7)
    assert (entry.since, entry.age, entry.expires_in, entry.metadata) == (1.0, 2.0, 9.5, {"n": 1})


@pytest.mark.parametrize("text", [b"", b"somebody else's", b"x" * 80, raw()[:80] + b"[1]"])
def test_a_record_that_is_not_ours(text: bytes) -> None:
    assert Record.read([text, 5]) is None
    assert Record.read([]) is None


# Who holds ----------------------------------------------------------------------------------


def seen(owner: str, token: int, left: float) -> Polled:
    record = Record.read([raw(owner * 32, token), int(left * 1000)])
    assert record is not None
    return Polled(record, 2_000_000)


def test_the_holder_is_who_a_quorum_has() -> None:
    found = [seen("a", 5, 9), seen("a", 5, 7), seen("a", 9, 8), seen("b", 6, 9)]
    entry = holder(found, 5, 0)
    assert entry is not None
    assert (entry.owner, entry.token) == ("a" * 32, 5), "a node whose vote came late has another counter"
    assert entry.expires_in == 7, "when the quorum is broken"


def test_a_minority_holds_nothing_unless_the_silent_nodes_may_have_it() -> None:
    found = [seen("a", 5, 9), seen("a", 5, 8)]
    assert holder(found, 5, 0) is None
    assert holder([], 5, 5) is None
    entry = holder(found, 5, 1)
    assert entry is not None
    assert entry.expires_in == 8


# Rounds -------------------------------------------------------------------------------------


def asking(alarms: list[None]) -> Asking:
    return Asking(Claim(3), b"", b"", Place(b"k", 1), lambda: alarms.append(None))


def test_votes_in_words() -> None:
    asked = asking([])
    asked.take(0, 7)
    asked.take(1, [raw(), 5, 1])
    asked.miss(2, Silence("connection refused", lasting=True))
    assert asked.over
    assert asked.claim.outcome == BUSY
    assert asked.votes(LABELS) == {"a:1": "granted", "b:2": "taken", "c:3": "connection refused"}


def test_a_node_that_is_left_out_raises_the_alarm_also_late() -> None:
    alarms: list[None] = []
    asked = asking(alarms)
    asked.take(0, 7)
    asked.take(1, 7)
    assert (asked.over, asked.claim.outcome, asked.claim.token) == (True, GRANTED, 7)
    asked.take(2, b"left out")
    assert alarms == [None]
    assert asked.is_left_out


def test_a_late_vote_changes_nothing_but_what_is_known() -> None:
    asked = asking([])
    asked.take(0, 7)
    asked.take(1, 7)
    asked.take(2, 9)
    assert asked.claim.outcome == GRANTED
    assert asked.place.highest == 9


def test_the_time_is_over() -> None:
    asked = asking([])
    asked.take(0, hiredis.ReplyError("OOM command not allowed"))
    asked.expire()
    assert asked.over
    assert asked.claim.outcome == SILENT
    error = asked.failure(LABELS)
    assert error.votes["a:1"].startswith("it is out of memory")
    assert error.votes["b:2"] == "no answer in time"
    assert error.transient


def test_where_waiting_does_not_help() -> None:
    asked = asking([])
    for node in range(2):
        asked.miss(node, Silence("the password is wrong", lasting=True))
    asked.take(2, 4)
    assert not asked.failure(LABELS).transient


def test_writing_counts_those_who_agree_already() -> None:
    claim = Claim(3)
    claim.grant(0, 5)
    claim.grant(1, 6)
    token, others = claim.write_back()
    asked = Writing(claim, b"", b"", others)
    asked.take(0, -8)
    asked.take(2, token)
    assert claim.outcome == GRANTED
    assert asked.votes(LABELS) == {"a:1": "disagreed", "b:2": "agreed", "c:3": "agreed"}


def test_releasing_tells_whether_it_was_held_and_is_waited_for() -> None:
    asked = Releasing(3, b"", 0.0)
    asked.take(0, 1)
    asked.miss(1, Silence("gone"))
    asked.take(2, 2)
    assert asked.tally.won
    assert asked.awaited
    asked = Releasing(3, b"", 0.0)
    asked.take(0, 0)
    asked.take(1, 0)
    assert asked.tally.lost
    assert asked.votes(LABELS)["a:1"] == "not held"


def test_renewing_is_over_when_every_lease_is_decided() -> None:
    asked = Renewing(3, b"", 2)
    asked.take(0, [1, 1])
    asked.take(1, [1, 0])
    assert not asked.over
    asked.take(2, b"left out")
    assert asked.over
    assert [(tally.won, tally.lost) for tally in asked.tallies] == [(True, False), (False, False)]
    assert asked.heard == 2
    assert [*asked.votes(LABELS).values()] == ["held", "held in part", "left out: it lost its memory"]


def test_undoing_brings_its_script_along() -> None:
    call = Place(b"k", 1).releasing(OWNER, 0, 3)
    undoing = Undoing(3, call)
    assert undoing.over
    assert commands.RELEASE.text.encode() in undoing.call
    assert Undoing(3, undoing.call).call == undoing.call


def test_collected_votes() -> None:
    asked = Collecting(3, b"", None)
    asked.take(0, [1, [raw(), 5]])
    asked.take(1, [1, []])
    asked.miss(2, Silence("gone"))
    assert asked.votes(LABELS) == {"a:1": f"held by {OWNER[:8]}", "b:2": "free", "c:3": "gone"}


@pytest.mark.parametrize(
    "script", ["ACQUIRE", "WRITE_BACK", "RELEASE", "RENEW", "LOOK", "BREAK", "GREET", "JOIN"]
)
def test_a_script_tells_its_keys_and_arguments_and_is_called_by_its_hash(script: str) -> None:
    one: commands.Script = getattr(commands, script)
    head = one.text.split("\n\n")[0]
    assert "-- KEYS  memory" in head
    assert "-- Answers" in head
    call = one.call([b"memory"], b"x")
    assert one.sha.encode() in call
    assert one.text.encode() in one.in_full(call)
    assert one.sha.encode() not in one.in_full(call)
