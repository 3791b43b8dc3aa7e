"""What the tests on ZooKeeper share: questions to the server itself, and ways to disturb it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]

from fencelock.backends.zookeeper.sessions import Session
from fencelock.backends.zookeeper.wire import Connection

ROOT = "/fencelock"


@contextmanager
def operator(server: Any) -> Iterator[KazooClient]:
    """A client of kazoo's own."""
    client = KazooClient(server.address, timeout=10)
    client.start(30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def znodes(server: Any) -> list[str]:
    """Return the path of every request's znode."""
    with operator(server) as client:
        client.sync("/")
        if client.exists(ROOT) is None:
            return []
        buckets = client.get_children(ROOT)
        assert len(buckets) <= 256
        return sorted(
            f"{ROOT}/{bucket}/{child}"
            for bucket in buckets
            for child in client.get_children(f"{ROOT}/{bucket}")
        )


def znodes_of(server: Any, owner: str) -> list[str]:
    """Return the znodes of one request."""
    return [path for path in znodes(server) if owner in path]


def session_of(server: Any, path: str) -> int:
    """Return the number of the session that a znode lives in."""
    with operator(server) as client:
        return int(client.get(path)[1].ephemeralOwner)


def delete(server: Any, path: str) -> None:
    """Delete a znode, as an operator might."""
    with operator(server) as client:
        client.delete(path)


def sessions(server: Any) -> list[str]:
    """Return the id of every session, as a leader or a server alone knows them."""
    told = server.ask("dump").partition("ephemeral nodes dump")[0]
    return re.findall(r"^\s+(0x[0-9a-f]+)$", told, flags=re.MULTILINE)


def expire(server: Any, locks: Any, ident: int) -> None:
    """End a session of a client's behind its back."""
    session = locks._session.backend._ensemble.sessions[ident]
    thief = KazooClient(server.address, timeout=10, client_id=(ident, session.client._session_passwd))
    thief.start(30)
    thief.stop()
    thief.close()


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the kind of every request from now on."""
    requests: list[str] = []
    ask = Connection.ask

    def counted(self: Connection, asked: Sequence[Any]) -> None:
        requests.extend(type(request).__name__ for request, _ in asked)
        ask(self, asked)

    monkeypatch.setattr(Connection, "ask", counted)
    return requests


def count_endings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the reason of every session which is lost from now on."""
    endings: list[str] = []
    end = Session._end

    def counted(self: Session, reason: str) -> None:
        if not self.is_over:
            endings.append(reason)
        end(self, reason)

    monkeypatch.setattr(Session, "_end", counted)
    return endings


def count_events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return a list that gets every event which a watch brings from now on."""
    events: list[tuple[str, str]] = []
    heard = Session.heard

    def counted(self: Session, event: Any) -> None:
        events.append((event.type, event.path))
        heard(self, event)

    monkeypatch.setattr(Session, "heard", counted)
    return events
