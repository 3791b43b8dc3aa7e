"""The smallest rights on a server suffice; one less is refused with one clear line; to look is not to take.

The rights are read from the pages of the backends, so those pages are right. `SECURITY.md` says what follows
from it: whoever has these rights can take and break every lock that they reach.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mysql_desk
import postgres_desk
import pytest
import redis
from tools.servers import start

from fencelock import BackendUnavailable, Client

BACKENDS = Path(__file__).parents[2] / "docs" / "backends"
PASSWORD = "marlinspike"
UNSEEN = {"+eval", "+select", "+info", "+config|get", "+pttl", "+publish", "+subscribe"}
"""Where these lack, locks work for a while, or without pushes, and only `doctor` tells."""


class Server(NamedTuple):
    """A server, and how to come to it as a user with these rights."""

    rights: list[str]
    url: str
    come: Callable[[list[str]], str]


def page(name: str, pattern: str) -> list[str]:
    """Return what the page of a backend says."""
    found = re.findall(pattern, (BACKENDS / name).read_text(), flags=re.MULTILINE)
    assert found, f"{name} says nothing of {pattern}"
    return found


@contextmanager
def on_redis() -> Iterator[Server]:
    (line,) = page("redis.md", r"^ACL SETUSER locks on >PASSWORD (.*)$")
    with start("redis") as group, redis.Redis.from_url(group.url) as client:

        def come(rights: list[str]) -> str:
            client.execute_command("ACL", "SETUSER", "locks", "reset", "on", f">{PASSWORD}", *rights)
            return group.url.replace("redis://", f"redis://locks:{PASSWORD}@")

        yield Server(line.split(), group.url, come)


@contextmanager
def on_postgres() -> Iterator[Server]:
    schema, tables = page("postgresql.md", r"^GRANT (USAGE|[A-Z, ]+ ON ALL TABLES).*;$")
    rights = [f"{schema} ON SCHEMA fencelock"]
    rights += [f"{right} IN SCHEMA fencelock" for right in each_of(tables)]
    with start("postgres", settings={"fsync": "off"}) as group:
        server = group.members[0]
        everything(group.url)
        postgres_desk.ask(server, f"CREATE ROLE locks LOGIN PASSWORD '{PASSWORD}'")

        def come(rights: list[str]) -> str:
            postgres_desk.ask(server, "DROP OWNED BY locks")
            for right in rights:
                postgres_desk.ask(server, f"GRANT {right} TO locks")
            return f"postgresql://locks:{PASSWORD}@{server.address}/fencelock"

        yield Server(rights, group.url, come)


@contextmanager
def on_mariadb() -> Iterator[Server]:
    (line,) = page("mysql.md", r"^GRANT ([A-Z, ]+ ON) app\.\* TO .*-- to use them$")
    with start("mariadb") as group:
        server = group.members[0]
        everything(group.url)

        def come(rights: list[str]) -> str:
            mysql_desk.ask(server, f"CREATE OR REPLACE USER locks IDENTIFIED BY '{PASSWORD}'")
            for right in rights:
                mysql_desk.ask(server, f"GRANT {right} fencelock.* TO locks")
            return f"mysql://locks:{PASSWORD}@{server.address}/fencelock"

        yield Server(each_of(line), group.url, come)


@contextmanager
def on_etcd() -> Iterator[Server]:
    page("etcd.md", r"role grant-permission locks readwrite --prefix=true (fencelock/)$")
    with start("etcd") as group:
        ask = group.members[0].ask
        ends = {"key": "ZmVuY2Vsb2NrLw==", "range_end": "ZmVuY2Vsb2NrMA=="}  # fencelock/ to fencelock0
        ask("auth/user/add", {"name": "root", "password": PASSWORD})
        ask("auth/user/grant", {"user": "root", "role": "root"})
        for right in ("READ", "WRITE", "READWRITE", "none"):
            ask("auth/role/add", {"name": right})
            ask("auth/user/add", {"name": right, "password": PASSWORD})
            ask("auth/user/grant", {"user": right, "role": right})
            if right != "none":
                ask("auth/role/grant", {"name": right, "perm": {"permType": right, **ends}})
        ask("auth/enable", {})

        def come(rights: list[str]) -> str:
            return group.url.replace("etcd://", f"etcd://{''.join(rights) or 'none'}:{PASSWORD}@")

        yield Server(["READ", "WRITE"], come(["root"]), come)


def each_of(grant: str) -> list[str]:
    """Return a right each: `SELECT, INSERT ON x` is two."""
    words, _, where = grant.partition(" ON")
    return [f"{word} ON{where}" for word in words.split(", ")]


PLACES = {"redis": on_redis, "postgres": on_postgres, "mariadb": on_mariadb, "etcd": on_etcd}


@pytest.fixture(scope="module", params=PLACES)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with PLACES[request.param]() as server:
        yield server


def everything(url: str) -> None:
    """Take, renew, look and break; names are new ones, since what fails may leave something behind."""
    name = secrets.token_hex(8)
    with Client(url) as one, Client(url) as other:
        lease = one.lock(name, ttl=10).acquire(timeout=10)
        assert other.lock(name).try_acquire() is None
        lease.extend(20)
        assert lease.verify()
        assert name in {state.name for state in one.list()}
        (holder,) = other.force_release(name)
        assert holder.owner == lease.owner
        assert lease.lost.wait(20)
        with one.semaphore(f"{name}-2", 2, timeout=10), other.rwlock(f"{name}-3", timeout=10).read():
            pass


def is_one_clear_line(told: str) -> None:
    assert "may not" in told, told
    assert told.isprintable() and len(told) < 300, told
    assert PASSWORD not in told


def needed(rights: list[str]) -> list[str]:
    """Return those of the rights without which a lock cannot be used."""
    return [
        right for right in rights if right not in UNSEEN and right[:1] not in "-&" and "reset" not in right
    ]


def test_the_smallest_rights_suffice_and_one_less_does_not(server: Server) -> None:
    everything(server.come(server.rights))
    for right in needed(server.rights):
        url = server.come([other for other in server.rights if other != right])
        with pytest.raises(BackendUnavailable) as caught:
            everything(url)
        is_one_clear_line(str(caught.value))


LOOKING = {
    "postgres": ["USAGE ON SCHEMA fencelock", "SELECT ON ALL TABLES IN SCHEMA fencelock"],
    "mariadb": ["SELECT ON", "EXECUTE ON"],
    "etcd": ["READ"],
}


@pytest.mark.parametrize("kind", LOOKING)
def test_who_may_only_read_can_look_and_neither_take_nor_break(kind: str) -> None:
    with PLACES[kind]() as server, Client(server.url) as owner, Client(server.come(LOOKING[kind])) as eye:
        lease = owner.lock("job", ttl=60).acquire()
        assert [state.holders[0].owner for state in eye.list()] == [lease.owner]
        for act in (eye.lock("other").try_acquire, lambda: eye.force_release("job")):
            with pytest.raises(BackendUnavailable) as caught:
                act()
            is_one_clear_line(str(caught.value))
        assert lease.verify()


def test_on_redis_who_looks_can_break() -> None:
    """Its scripts ask for the right to write whatever they do: SECURITY.md says so."""
    with on_redis() as server, Client(server.url) as owner:
        eye = Client(server.come(["%R~fencelock:*", "+@all"]))
        with eye, owner.lock("job"), pytest.raises(BackendUnavailable) as caught:
            eye.list()
        is_one_clear_line(str(caught.value))
