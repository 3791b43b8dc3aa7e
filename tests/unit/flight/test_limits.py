"""Bad input, what cannot be read, and the end of a flight, in both flavours."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flight.desk import PATIENCE, Desk, Gate, counted, desk_for, until

from fencelock import BackendUnavailable, ConfigurationError

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
            with caplog.at_level(logging.WARNING, "fencelock"), pytest.raises(ValueError, match="broken"):
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
        with caplog.at_level(logging.WARNING, "fencelock"):
            assert desk.get("k", compute, 60) == "value"
        assert "what was computed for 'k' could not be kept: sqlite: " in caplog.text
        folder.mkdir()
        assert desk.get("k", lambda: "again", 60) == "again"


def test_a_store_that_is_gone(flavour: str, tmp_path: Path) -> None:
    with desk_for(flavour, "memory://", store=f"sqlite://{tmp_path}/no/where.db") as desk:
        with pytest.raises(BackendUnavailable, match="does not exist"):
            desk.get("k", lambda: 1, 60)
        assert desk.ask("list") == []
