"""Finding a backend by its URL, and saying what is wrong when there is none."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from fencelock import Client, ConfigurationError
from fencelock.backends import GROUP, OWN, backend_from_url, hide_password, known_schemes, load
from fencelock.backends.memory import MemoryBackend
from fencelock.backends.sqlite import SQLiteBackend


def test_schemes_lead_to_backends() -> None:
    assert isinstance(backend_from_url("memory://"), MemoryBackend)
    assert isinstance(backend_from_url("MEMORY://"), MemoryBackend)
    assert isinstance(backend_from_url("sqlite:///nowhere/locks.db"), SQLiteBackend)


@pytest.mark.parametrize(
    "url", ["", "locks.db", "/var/lib/locks.db", "://x", "redis:localhost", "localhost:6379"]
)
def test_what_is_not_a_url_is_told_how_to_write_one(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        backend_from_url(url)
    message = str(caught.value)
    assert repr(url) in message
    assert "scheme://" in message
    assert "memory://, mysql://" in message


@pytest.mark.parametrize(
    "url", ["carrier-pigeon://x", "two\nlines://x", "sqlite3:///x.db", " sqlite:///x.db"]
)
def test_an_unknown_scheme_lists_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        backend_from_url(url)
    message = str(caught.value)
    assert "\n" not in message
    assert "memory://, mysql://" in message
    assert url.split("\n", maxsplit=1)[0].split(":", maxsplit=1)[0] in message


# Entry points ----------------------------------------------------------------------------


class Installed(EntryPoint):
    """An entry point of a package that is not fencelock."""

    @property
    def dist(self) -> object:  # type: ignore[override]
        class Distribution:
            name = "fencelock-pigeon"

        return Distribution()


def install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == GROUP
        return [point for point in points if name is None or point.name == name]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_a_third_party_may_add_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("pigeon", "fencelock.backends.memory:MemoryBackend", GROUP))
    assert isinstance(backend_from_url("pigeon://"), MemoryBackend)
    assert known_schemes() == sorted([*OWN, "pigeon"])


@pytest.mark.parametrize(
    ("point", "command"),
    [
        (EntryPoint("finch", "no_such_driver:Backend [redis]", GROUP), "pip install 'fencelock[redis]'"),
        (Installed("pigeon", "no_such_driver:Backend [bird]", GROUP), "pip install 'fencelock-pigeon[bird]'"),
    ],
)
def test_a_missing_driver_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, point: EntryPoint, command: str
) -> None:
    install(monkeypatch, point)
    with pytest.raises(ConfigurationError) as caught:
        Client(f"{point.name}://user:secret@host")
    message = str(caught.value)
    assert command in message
    assert "no_such_driver" in message
    assert "secret" not in message
    assert "\n" not in message
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_missing_driver_of_an_own_backend_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OWN, "finch", "no_such_driver:Backend [redis]")
    with pytest.raises(ConfigurationError, match=r"finch:// needs .* pip install 'fencelock\[redis\]'"):
        Client("finch://")


def test_a_backend_that_is_broken_is_not_blamed_on_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        load(EntryPoint("broken", "no_such_module:Backend", GROUP))


# Passwords -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost", "redis://localhost"),
        ("redis://user@localhost", "redis://user@localhost"),
        ("redis://user:secret@localhost/0", "redis://user:***@localhost/0"),
        ("redis://:secret@localhost", "redis://:***@localhost"),
        ("redis://u:se:cret@h1,h2/x?y=a@b", "redis://u:***@h1,h2/x?y=a@b"),
        ("redis://u:se@cret@host", "redis://u:***@host"),
        ("memory://", "memory://"),
        ("redis://h/0?password=secret", "redis://h/0?password=***"),
        ("rediss://h?db=1&ssl_password=se%20cret&db=2", "rediss://h?db=1&ssl_password=***&db=2"),
        ("redis+sentinel://h/x?sentinel_password=secret#f", "redis+sentinel://h/x?sentinel_password=***#f"),
    ],
)
def test_a_password_is_not_shown(url: str, shown: str) -> None:
    assert hide_password(url) == shown


SECRETS = [
    "carrier-pigeon://user:secret@host",
    "carrier-pigeon://:secret@host",
    "user:secret@host:6379",
    ":secret@host:6379",
    "redis:user:secret@host",
    "memory://user:secret@host/path",
    "memory://user:secret@host?option=1",
    "sqlite://user:secret@host/locks.db",
    "sqlite://user:secret@/locks.db?mkdir=perhaps",
    "redis://user:secret@host/zero",
    "redis://host?password=secret&colour=red",
    "unix://user:secret@host",
]


@pytest.mark.parametrize("url", SECRETS)
def test_no_message_tells_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Client(url)
    assert "secret" not in str(caught.value)


def test_a_client_shows_where_it_is_connected_without_the_password() -> None:
    with Client("memory://user:secret@here") as client:
        assert repr(client) == "<Client memory://user:***@here>"
