"""What the tests on Consul share: questions to a server, past fencelock, and a look at who asks what.

A client of either flavour is a `Desk` (see `redis_desk.py`); `server` is a member of a group of
tools/servers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

from crew import wait_until
from redis_desk import FLAVOURS, AsyncDesk, Desk, desk_for, proxied

__all__ = [
    "FLAVOURS",
    "AsyncDesk",
    "Counter",
    "Desk",
    "ask",
    "counted",
    "desk_for",
    "destroy",
    "keys",
    "leader",
    "nothing_left",
    "proxied",
    "requests",
    "session_of",
    "sessions",
    "settled_session",
]

SESSION_ENDS = 75.0
"""Seconds after which Consul has ended a session for a ttl of 30 seconds that nobody renews."""


def ask(
    server: Any, method: str, path: str, body: Any = None, token: str = "", seconds: float = 20.0
) -> tuple[int, Any]:
    """Make one request; return the status and what was said."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=seconds)
    with contextlib.closing(connection):
        text = None if body is None else json.dumps(body)
        connection.request(method, f"/v1/{path}", text, {"X-Consul-Token": token} if token else {})
        answer = connection.getresponse()
        said = answer.read().decode()
    try:
        return answer.status, json.loads(said)
    except ValueError:
        return answer.status, said


def read(server: Any, path: str, token: str = "") -> list[Any]:
    status, said = ask(server, "GET", path, token=token)
    assert status in {200, 404}, said
    return said if status == 200 else []


def keys(server: Any, token: str = "") -> list[str]:
    """Return every key that there is."""
    return read(server, "kv/?keys&consistent", token)


def requests(server: Any, token: str = "") -> list[dict[str, Any]]:
    """Return the records of requests, in the order in which they were made."""
    found = read(server, "kv/?recurse&consistent", token)
    return sorted((one for one in found if "/~/" not in one["Key"][-40:]), key=lambda one: one["CreateIndex"])


def sessions(server: Any, token: str = "") -> list[dict[str, Any]]:
    """Return the sessions that there are."""
    return read(server, "session/list?consistent", token)


def session_of(server: Any, owner: str) -> str:
    """Return the session that a request is in."""
    (record,) = [one for one in requests(server) if one["Key"].endswith(owner)]
    return str(record["Session"])


def settled_session(server: Any, owner: str) -> str:
    """Return the session that a waiter is in, once it has moved to the one for waiters."""

    def known() -> str | None:
        session = session_of(server, owner)
        return session if any(key.endswith(f"/~/{session}") for key in keys(server)) else None

    return str(wait_until(known, "it has settled"))


def destroy(server: Any, session: str) -> None:
    assert ask(server, "PUT", f"session/destroy/{session}") == (200, True)


def nothing_left(server: Any, token: str = "") -> None:
    """Check that no key is left, and no session that does not end by itself.

    A client that was closed before it heard of a session that it had asked for cannot end it: Consul does.
    """
    wait_until(lambda: keys(server, token) == [], "no key is left", seconds=9.0)
    wait_until(lambda: sessions(server, token) == [], "no session is left", seconds=SESSION_ENDS)


def leader(group: Any) -> Any:
    """Return the member that leads."""

    def known() -> Any:
        for member in group.nodes:
            with contextlib.suppress(OSError, http.client.HTTPException):
                status, address = ask(member, "GET", "status/leader", seconds=2.0)
                if status == 200 and address:
                    return next((one for one in group.nodes if address.endswith(f":{one.server_port}")), None)
        return None

    return wait_until(known, "there is a leader")


class Counter:
    """Counts the requests that pass a proxy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[bytes] = []

    def __call__(self, data: bytes) -> bool:
        with self._lock:
            self._seen.append(data[:200])
        return False

    def of(self, words: str) -> int:
        with self._lock:
            return sum(words.encode() in data for data in self._seen)

    def reset(self) -> None:
        with self._lock:
            self._seen.clear()


@contextlib.contextmanager
def counted(url: str) -> Iterator[tuple[Counter, str]]:
    """Yield what counts requests, and the URL under which they are counted."""
    counter = Counter()
    with proxied(url) as (proxy, through):
        proxy.fail(match=counter)
        yield counter, through
