"""What a flight does, in both flavours, with values in memory and in a file."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flight.desk import FLAVOURS, PATIENCE, Desk, Gate, desk_for

from holdfast import AcquireTimeout, BackendUnavailable, ConfigurationError
from holdfast.flight import ComputeFailed, course


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.002)


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}"


@pytest.fixture(params=["memory", "sqlite"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> str:
    return url if request.param == "memory" else f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def desk(flavour: str, url: str) -> Iterator[Desk]:
    with desk_for(flavour, url) as desk:
        yield desk


@pytest.fixture
def stored(flavour: str, any_url: str) -> Iterator[Desk]:
    with desk_for(flavour, any_url) as desk:
        yield desk


def counted(result: Any = None) -> Callable[[], Any]:
    """Return a computation that returns 1, 2, 3 … unless it is told otherwise."""
    calls: list[None] = []

    def compute() -> Any:
        calls.append(None)
        if isinstance(result, Exception):
            raise result
        return len(calls) if result is None else result

    compute.calls = calls  # type: ignore[attr-defined]
    return compute


# Values ---------------------------------------------------------------------------------------


def test_it_is_computed_once_and_kept(stored: Desk) -> None:
    compute = counted()
    assert [stored.get("k", compute, 60) for _ in range(3)] == [1, 1, 1]
    assert stored.get("other", compute, 60) == 2
    assert stored.ask("list") == []


def test_it_is_computed_anew_when_it_has_expired(stored: Desk) -> None:
    compute = counted()
    assert stored.get("k", compute, 0.05) == 1
    time.sleep(0.06)
    assert stored.get("k", compute, 60) == 2


@pytest.mark.parametrize("value", [None, 0, "", False, [], {"a": [1, 2.5, None]}, "ü"])
def test_any_value_is_a_value(desk: Desk, value: Any) -> None:
    calls: list[None] = []

    def compute() -> Any:
        calls.append(None)
        return value

    for _ in range(2):
        assert desk.get("k", compute, 60) == value
    assert len(calls) == 1


def test_everybody_has_a_value_of_its_own(desk: Desk) -> None:
    first = desk.get("k", lambda: ({"a": 1},), 60)
    assert first == [{"a": 1}], "the same for who computes as for all others"
    first[0]["a"] = 2
    assert desk.get("k", lambda: None, 60) == [{"a": 1}]


def test_put_and_forget(stored: Desk) -> None:
    compute = counted()
    assert stored.forget("k") is False
    stored.put("k", "put", 60)
    assert stored.get("k", compute, 60) == "put"
    assert stored.forget("k") is True
    assert stored.get("k", compute, 60) == 1
    stored.put("k", "put", 60)
    assert stored.get("k", compute, 60) == "put"


def test_namespaces_are_apart(flavour: str, any_url: str) -> None:
    with (
        desk_for(flavour, f"{any_url}?namespace=a") as one,
        desk_for(flavour, f"{any_url}?namespace=b") as two,
    ):
        assert one.get("k", lambda: "a", 60) == "a"
        assert two.get("k", lambda: "b", 60) == "b"
        assert one.get("k", lambda: "c", 60) == "a"


def test_flights_of_one_process_share_values(flavour: str, any_url: str) -> None:
    with desk_for("blocking", any_url) as one, desk_for("asyncio", any_url) as two:
        assert one.get("k", lambda: 1, 60) == 1
        assert two.get("k", lambda: 2, 60) == 1


# One flight -----------------------------------------------------------------------------------


def test_many_in_one_process_compute_once(stored: Desk) -> None:
    gate = Gate()
    first = stored.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    rest = [stored.begin("get", "k", gate, 60) for _ in range(50)]
    assert stored.ask("inspect", "flight:k").holders and not stored.ask("inspect", "flight:k").waiters
    gate.may_end.set()
    assert {future.result(PATIENCE) for future in [first, *rest]} == {"value"}
    assert gate.calls == 1


def test_two_processes_compute_once(flavour: str, any_url: str) -> None:
    """Two clients are as good as two processes: each has a waiter of its own."""
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        rest = [two.begin("get", "k", gate, 60) for _ in range(20)]
        until(lambda: len(one.ask("inspect", "flight:k").waiters) == 1, "one waits")
        gate.may_end.set()
        assert {future.result(PATIENCE) for future in [first, *rest]} == {"value"}
        assert gate.calls == 1


def test_patience_ends(flavour: str, url: str) -> None:
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        for desk in (one, two):  # in the same process, and in another
            for seconds in (0, 0.05):
                with pytest.raises(AcquireTimeout, match="lock 'flight:k' not acquired within"):
                    desk.get("k", gate, 60, timeout=seconds)
        gate.may_end.set()
        assert first.result(PATIENCE) == "value"
        assert two.get("k", gate, 60, timeout=0) == "value"
        assert two.get("new", gate, 60, timeout=0) == "value", "patience is for others, not for oneself"
        assert two.ask("list") == []


def test_patience_of_the_leader_is_its_own(flavour: str, url: str) -> None:
    """Somebody who waits for another process gives up: those who wait behind it do not."""
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate()
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        hasty = two.begin("get", "k", gate, 60, timeout=0.3)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the hasty one waits")
        patient = two.begin("get", "k", gate, 60)
        with pytest.raises(AcquireTimeout):
            hasty.result(PATIENCE)
        gate.may_end.set()
        assert patient.result(PATIENCE) == first.result(PATIENCE) == "value"
        assert gate.calls == 1


def test_it_cannot_ask_for_itself(desk: Desk, flavour: str) -> None:
    if flavour == "blocking":
        with pytest.raises(ConfigurationError, match="asks for it itself"):
            desk.get("k", lambda: desk.flight.get("k", lambda: 1, 60), 60)
        return

    async def inner() -> Any:
        async def outer() -> Any:
            return await desk.flight.get("k", outer, 60)

        return await desk.flight.get("k", outer, 60)

    with pytest.raises(ConfigurationError, match="asks for it itself"):
        desk._wait(inner())


# Something newer ------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", ["put", "forget"])
def test_what_was_being_computed_is_not_kept_over_something_newer(stored: Desk, newer: str) -> None:
    gate = Gate("old")
    old = stored.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    if newer == "put":
        stored.put("k", "new", 60)
    else:
        stored.forget("k")
    late = stored.begin("get", "k", lambda: "new", 60)
    gate.may_end.set()
    assert old.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert stored.get("k", lambda: "newest", 60) == "new"


def test_an_overtaken_computation_is_not_kept(flavour: str, any_url: str) -> None:
    """Its lease is broken, as if it had been paused for longer than its ttl."""
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate("old")
        old = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        two.ask("force_release", "flight:k")
        slow = Gate("new")
        new = two.begin("get", "k", slow, 60)
        assert slow.begun.wait(PATIENCE)
        gate.may_end.set()
        assert old.result(PATIENCE) == "old", "who asked gets what was computed"
        assert two.begin("get", "other", lambda: 1, 60).result(PATIENCE) == 1
        slow.may_end.set()
        assert new.result(PATIENCE) == "new"
        assert one.get("k", lambda: "newest", 60) == "new"


# Errors ---------------------------------------------------------------------------------------


def test_raised_for_all_who_wait_here(desk: Desk) -> None:
    gate = Gate(LookupError("no such thing"))
    futures = [desk.begin("get", "k", gate, 60)]
    assert gate.begun.wait(PATIENCE)
    futures += [desk.begin("get", "k", gate, 60) for _ in range(5)]
    until(lambda: _followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    for future in futures:
        with pytest.raises(LookupError, match="no such thing"):
            future.result(PATIENCE)
    assert gate.calls == 1
    assert desk.get("k", lambda: 1, 60) == 1, "an error is not kept"
    assert desk.ask("list") == []


def _followers(desk: Desk, key: str) -> int:
    flight = desk.flight._flights.find(key)
    if flight is None:
        return 0
    if desk.is_async:
        return int(flight._callers) - 1
    return len(flight._ended._cond._waiters)


def test_others_compute_again_one_at_a_time(flavour: str, url: str) -> None:
    with desk_for(flavour, url) as one, desk_for(flavour, url) as two:
        gate = Gate(LookupError("no"))
        first = one.begin("get", "k", gate, 60)
        assert gate.begun.wait(PATIENCE)
        second = two.begin("get", "k", lambda: "second", 60)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the second waits")
        gate.may_end.set()
        with pytest.raises(LookupError):
            first.result(PATIENCE)
        assert second.result(PATIENCE) == "second"


def test_shared_with_everybody(flavour: str, any_url: str) -> None:
    options = {"error_ttl": 1.0}
    with desk_for(flavour, any_url, **options) as one, desk_for(flavour, any_url, **options) as two:
        gate = Gate(LookupError("no such thing"))
        futures = [one.begin("get", "k", gate, 60, errors="share")]
        assert gate.begun.wait(PATIENCE)
        futures += [two.begin("get", "k", gate, 60, errors="share") for _ in range(5)]
        until(lambda: one.ask("inspect", "flight:k").waiters, "the others wait")
        gate.may_end.set()
        for future in futures:
            with pytest.raises(ComputeFailed) as caught:
                future.result(PATIENCE)
            assert (caught.value.key, caught.value.kind, caught.value.detail) == (
                "k",
                "LookupError",
                "no such thing",
            )
        assert gate.calls == 1
        with pytest.raises(ComputeFailed, match=r"^computing 'k' failed: LookupError: no such thing$"):
            one.get("k", counted(), 60, errors="share")
        assert two.get("k", counted("mine"), 60) == "mine", "who does not want it is not given it"


def test_an_error_that_is_shared_is_not_for_who_waits_and_wants_a_value(flavour: str, any_url: str) -> None:
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        gate = Gate(LookupError("no"))
        first = one.begin("get", "k", gate, 60, errors="share")
        assert gate.begun.wait(PATIENCE)
        second = two.begin("get", "k", lambda: "mine", 60)
        until(lambda: one.ask("inspect", "flight:k").waiters, "the second waits")
        gate.may_end.set()
        with pytest.raises(ComputeFailed):
            first.result(PATIENCE)
        assert second.result(PATIENCE) == "mine"
        assert one.get("k", lambda: "again", 60, errors="share") == "mine"


def test_a_shared_error_is_kept_for_a_moment(flavour: str, url: str) -> None:
    with desk_for(flavour, url, error_ttl=0.05) as desk:
        with pytest.raises(ComputeFailed) as caught:
            desk.get("k", counted(LookupError()), 60, errors="share")
        assert isinstance(caught.value.__cause__, LookupError), "here it is known"
        assert str(caught.value) == "computing 'k' failed: LookupError"
        time.sleep(0.06)
        assert desk.get("k", lambda: 1, 60, errors="share") == 1


def test_the_next_one_tries(desk: Desk) -> None:
    gate = Gate(LookupError("no"))
    first = desk.begin("get", "k", gate, 60, errors="retry")
    assert gate.begun.wait(PATIENCE)
    good = counted()
    rest = [desk.begin("get", "k", good, 60, errors="retry") for _ in range(5)]
    until(lambda: _followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    with pytest.raises(LookupError):
        first.result(PATIENCE)
    assert [future.result(PATIENCE) for future in rest] == [1] * 5


def test_a_value_that_cannot_be_kept_is_an_error(desk: Desk) -> None:
    with pytest.raises(ConfigurationError, match="is not JSON"):
        desk.get("k", lambda: {1, 2}, 60)
    with pytest.raises(ConfigurationError, match="is not JSON"):
        desk.put("k", object(), 60)
    assert desk.get("k", lambda: 1, 60) == 1


# Refreshing -----------------------------------------------------------------------------------


def test_stale_values_are_given_while_one_refreshes(flavour: str, any_url: str) -> None:
    with desk_for(flavour, any_url) as one, desk_for(flavour, any_url) as two:
        one.put("k", "old", 0.02, stale=60)
        time.sleep(0.03)
        gate = Gate("new")
        for _ in range(5):
            assert one.get("k", gate, 60, stale=60) == "old"
            assert two.get("k", gate, 60, stale=60) == "old"
        assert gate.begun.wait(PATIENCE)
        assert one.get("k", gate, 60, stale=60) == "old"
        gate.may_end.set()
        until(lambda: two.get("k", gate, 60, stale=60) == "new", "it is refreshed")
        assert gate.calls == 1
        until(lambda: one.ask("list") == [], "nobody holds anything")


def test_who_may_have_an_old_value_does_not_wait_for_a_new_one(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    gate = Gate("new")
    strict = desk.begin("get", "k", gate, 60)
    assert gate.begun.wait(PATIENCE)
    assert desk.get("k", gate, 60, stale=60) == "old"
    gate.may_end.set()
    assert strict.result(PATIENCE) == "new"


def test_who_may_have_an_old_value_and_finds_none_joins(desk: Desk) -> None:
    gate = Gate("new")
    futures = [desk.begin("get", "k", gate, 60, stale=60)]
    assert gate.begun.wait(PATIENCE)
    futures += [desk.begin("get", "k", gate, 60, stale=60) for _ in range(5)]
    until(lambda: _followers(desk, "k") == 5, "five wait")
    gate.may_end.set()
    assert {future.result(PATIENCE) for future in futures} == {"new"}
    assert gate.calls == 1


def test_too_stale_is_computed(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.05)
    assert desk.get("k", lambda: "new", 60, stale=0.01) == "new", "it is the reader who says how stale"


def test_without_stale_it_is_computed(desk: Desk) -> None:
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    assert desk.get("k", lambda: "new", 60) == "new"


def test_a_refresh_that_fails_is_logged_and_not_tried_at_once(
    flavour: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with desk_for(flavour, url, error_ttl=60) as desk:
        desk.put("k", "old", 0.01, stale=60)
        time.sleep(0.02)
        compute = counted(LookupError("no"))
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert desk.get("k", compute, 60, stale=60) == "old"
            until(lambda: "refreshing 'k' failed: LookupError: no" in caplog.text, "the warning")
        for _ in range(5):
            assert desk.get("k", compute, 60, stale=60, errors="share") == "old"
        assert len(compute.calls) == 1  # type: ignore[attr-defined]


def test_who_refreshes_is_forgotten_in_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "REMEMBERED", 3)
    desk.flight._quiet.update({"old": 0.0, "older": 0.0, "busy": float("inf")})
    desk.put("k", "old", 0.01, stale=60)
    time.sleep(0.02)
    assert desk.get("k", lambda: "new", 60, stale=60) == "old"
    until(lambda: desk.get("k", lambda: "", 60) == "new", "it is refreshed")
    until(lambda: set(desk.flight._quiet) == {"busy"}, "only what is being refreshed is remembered")


def test_early_refresh(flavour: str, url: str) -> None:
    """It took 0.2 s and has 30 left: with a draw of almost 1 and a beta of 100 it is refreshed, else not."""
    with desk_for(flavour, url) as desk:
        assert desk.get("k", lambda: time.sleep(0.2), 30) is None
        compute = counted()
        desk.flight._random = lambda: 0.0
        assert desk.get("k", compute, 30, early=100) is None
        desk.flight._random = lambda: 0.999
        assert desk.get("k", compute, 30) is None
        assert not compute.calls  # type: ignore[attr-defined]
        assert desk.get("k", compute, 30, early=100) is None
        until(lambda: desk.get("k", compute, 30) == 1, "it is refreshed")


# Bad input, and what cannot be read -----------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        (("", None, 60), {}, "key='' is empty"),
        (("k" * 513, None, 60), {}, "has 513 bytes, 512 are possible"),
        (("k", None, 0), {}, "ttl=0 is no time at all"),
        (("k", None, -1), {}, "ttl=-1 is out of range"),
        (("k", None, 60), {"stale": "x"}, "stale='x' is not a duration"),
        (("k", None, 60), {"early": -1}, "early=-1 is out of range"),
        (("k", None, 60), {"early": True}, "early=True is out of range"),
        (("k", None, 60), {"errors": "hide"}, "errors='hide' is not known: give one of raise, share, retry"),
        (("k", None, 60), {"timeout": -1}, "timeout=-1 is out of range"),
    ],
)
def test_bad_input(desk: Desk, arguments: tuple[Any, ...], options: dict[str, Any], told: str) -> None:
    key, _, ttl = arguments
    with pytest.raises(ConfigurationError, match=told.replace("(", r"\(")):
        desk.get(key, lambda: 1, ttl, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"codec": "yaml"}, "codec='yaml' is not known: give one of json, bytes, pickle"),
        ({"codec": 7}, "codec=7 has no name, dumps and loads"),
        ({"lock_ttl": 0}, "lock_ttl=0 is no time at all"),
        ({"lock_ttl": 0.001}, "ttl=0.001 is too short: sqlite needs at least"),
        ({"error_ttl": 0}, "error_ttl=0 is no time at all"),
        ({"store": 7}, "store=7 cannot keep values: give store= a URL of redis:// or sqlite://"),
        ({"store": "etcd://localhost"}, "etcd keeps no values: give store="),
        ({"store": "redlock://:secret@a,b,c"}, "redlock keeps no values: give store="),
        ({"store": "nonsense"}, "'nonsense' is not a URL"),
    ],
)
def test_bad_options(flavour: str, tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with (
        pytest.raises(ConfigurationError) as caught,
        desk_for(flavour, f"sqlite://{tmp_path}/l.db", **options),
    ):
        pass
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_long_key_has_a_lock(desk: Desk) -> None:
    gate = Gate()
    future = desk.begin("get", "k" * 512, gate, 60)
    assert gate.begun.wait(PATIENCE)
    (state,) = desk.ask("list")
    assert state.name.startswith("flight#") and len(state.name) == 71
    gate.may_end.set()
    assert future.result(PATIENCE) == "value"


def test_what_cannot_be_read_is_computed_anew(
    flavour: str, any_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with desk_for(flavour, any_url) as plain, desk_for(flavour, any_url, codec=Broken()) as broken:
        assert broken.get("k", lambda: 1, 60) == 1
        assert plain.get("k", lambda: 2, 60) == 2, "a record of another codec is none"
        assert broken.get("k", lambda: 3, 60) == 3
        Broken.is_broken = True
        try:
            with caplog.at_level(logging.WARNING, "holdfast"), pytest.raises(ValueError, match="broken"):
                broken.get("k", lambda: 4, 60)
        finally:
            Broken.is_broken = False
        assert "what is kept for 'k' cannot be read, and is computed anew: broken" in caplog.text
        assert broken.get("k", lambda: 5, 60) == 4


class Broken:
    name = "broken"
    is_broken = False

    def dumps(self, value: Any) -> bytes:
        return b"%d" % value

    def loads(self, data: bytes) -> Any:
        if Broken.is_broken:
            raise ValueError("broken")
        return int(data)


def test_codecs(flavour: str, url: str) -> None:
    with desk_for(flavour, url, codec="pickle") as desk:
        assert desk.get("set", lambda: {1, 2}, 60) == desk.get("set", lambda: None, 60) == {1, 2}
    with desk_for(flavour, url, codec="bytes") as desk:
        assert desk.get("raw", lambda: b"a\nb\0", 60) == desk.get("raw", lambda: b"", 60) == b"a\nb\0"
        with pytest.raises(ConfigurationError, match="is not bytes"):
            desk.get("text", lambda: "text", 60)


# The end --------------------------------------------------------------------------------------


def test_nothing_after_the_end(flavour: str, any_url: str) -> None:
    with desk_for(flavour, any_url) as desk:
        desk.get("k", lambda: 1, 60)
        desk.close()
        desk.close()
        for call in (
            lambda: desk.get("k", lambda: 1, 60),
            lambda: desk.put("k", 1, 60),
            lambda: desk.forget("k"),
        ):
            with pytest.raises(ConfigurationError, match="this flight is closed: make a new one"):
                call()
        desk.ask("list")  # the locks are still open


def test_nothing_when_the_locks_are_closed(flavour: str, url: str) -> None:
    with desk_for(flavour, url) as desk:
        desk.ask("close")
        with pytest.raises(ConfigurationError, match="this client is closed"):
            desk.get("k", lambda: 1, 60)


def test_closing_ends_refreshes(flavour: str, any_url: str) -> None:
    before = threading.active_count()
    with desk_for(flavour, any_url) as desk:
        desk.put("k", "old", 0.01, stale=60)
        time.sleep(0.02)
        compute = counted("new")
        assert desk.get("k", compute, 60, stale=60) == "old"
    until(lambda: threading.active_count() <= before, "no thread is left")
    with desk_for(flavour, any_url) as desk:
        assert desk.ask("list") == []


def test_a_store_that_goes_meanwhile(flavour: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was computed is good, though it cannot be kept, nor the lock be released."""
    folder = tmp_path / "gone"
    folder.mkdir()

    def compute() -> str:
        shutil.rmtree(folder)
        return "value"

    with desk_for(flavour, f"sqlite://{folder}/locks.db") as desk:
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert desk.get("k", compute, 60) == "value"
        assert "what was computed for 'k' could not be kept: sqlite: " in caplog.text
        folder.mkdir()
        assert desk.get("k", lambda: "again", 60) == "again"


def test_a_store_that_is_gone(flavour: str, tmp_path: Path) -> None:
    with desk_for(flavour, "memory://", store=f"sqlite://{tmp_path}/no/where.db") as desk:
        with pytest.raises(BackendUnavailable, match="does not exist"):
            desk.get("k", lambda: 1, 60)
        assert desk.ask("list") == []
