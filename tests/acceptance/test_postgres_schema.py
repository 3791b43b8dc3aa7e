"""The schema: made by whoever comes first, as a whole or not at all; and made again when it is gone."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from postgres_desk import FLAVOURS, Desk, activity, ask, desk_for, nothing_left, residue, role
from tools.servers import start

from fencelock import BackendUnavailable, Client, ConfigurationError
from fencelock.backends.postgres.records import Places
from fencelock.backends.postgres.schema import BUCKETS, VERSION

LONG = 60.0
GRANTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT ON {schema}.version TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.buckets, {schema}.queue TO {role}",
)


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres") as group:
        yield group


@pytest.fixture
def server(group: Any) -> Iterator[Any]:
    """An empty database."""
    server = group.members[0]
    drop(server)
    yield server
    wait_until(lambda: not activity(server), "nobody is connected")
    drop(server)


def drop(server: Any) -> None:
    for (name,) in ask(
        server, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_|public)'"
    ):
        ask(server, f'DROP SCHEMA "{name}" CASCADE')


def schemas(server: Any) -> list[str]:
    rows = ask(
        server, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_|public)' ORDER BY 1"
    )
    return [name for (name,) in rows]


def objects(server: Any, schema: str = "fencelock") -> dict[str, int]:
    """How many tables, functions and buckets there are."""
    tables = ask(server, "SELECT count(*) FROM pg_tables WHERE schemaname = %s", schema)[0][0]
    functions = ask(
        server,
        "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = %s",
        schema,
    )[0][0]
    buckets = ask(server, f'SELECT count(*) FROM "{schema}".buckets')[0][0]
    versions = ask(server, f'SELECT version FROM "{schema}".version')
    return {"tables": tables, "functions": functions, "buckets": buckets, "versions": len(versions)}


def script(url: str) -> str:
    with Client(url) as locks:
        return str(locks._session.backend.schema())


START = """if True:
    import asyncio, json, sys
    from fencelock import AsyncClient, Client
    url, flavour, number = sys.argv[1:]

    async def main():
        async with AsyncClient(url) as locks:
            print(json.dumps({"ready": True}), flush=True)
            sys.stdin.readline()
            async with locks.lock("job") as lease, locks.lock(f"job-{number}"):
                print(json.dumps({"token": lease.token}), flush=True)

    if flavour == "asyncio":
        asyncio.run(main())
    else:
        with Client(url) as locks:
            print(json.dumps({"ready": True}), flush=True)
            sys.stdin.readline()
            with locks.lock("job") as lease, locks.lock(f"job-{number}"):
                print(json.dumps({"token": lease.token}), flush=True)
    """


def test_many_processes_that_start_at_once_on_an_empty_database(server: Any) -> None:
    whole: list[dict[str, int]] = []
    for _ in range(2):
        with Crew() as crew:
            members = [crew.python(START, server.url, FLAVOURS[n % 2], n) for n in range(8)]
            for member in members:
                assert member.hear()["ready"]
            for member in members:
                member.tell()
            tokens = [member.hear()["token"] for member in members]
            for member in members:
                assert member.end() == 0, member.errors
                assert not member.errors, member.errors
        assert len(set(tokens)) == 8
        whole.append(objects(server))
        nothing_left(server)
        drop(server)
    assert whole[0] == whole[1]
    assert whole[0]["buckets"] == BUCKETS
    assert whole[0]["versions"] == 1


def test_the_schema_has_the_name_that_was_asked_for(server: Any, flavour: str) -> None:
    with (
        desk_for(flavour, f"{server.url}?schema=Turns_2") as desk,
        desk_for(flavour, f"{server.url}?schema=other") as other,
        desk_for(flavour, f"{server.url}?schema=select") as reserved,
    ):
        lease = desk.acquire("job", ttl=LONG)
        elsewhere = other(other.locks.lock("job").try_acquire)  # another schema, another lock
        assert other(elsewhere.release)
        assert reserved(reserved.acquire("job").release)
        assert schemas(server) == ["Turns_2", "other", "select"]
        waits = desk.waiting("job", ttl=LONG)
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        assert desk(lease.release)
        assert desk(waits.result(30).release)
        assert residue(server, '"Turns_2"') == []


def one_line(error: BaseException) -> str:
    text = str(error)
    assert len(text.splitlines()) == 1
    assert len(text) < 400
    return text


def test_a_role_that_may_not_create_is_told_so_and_nothing_is_half_done(server: Any, flavour: str) -> None:
    with role(server, "worker") as url, desk_for(flavour, url) as desk:
        lock = desk.locks.lock("job")
        for attempt in (lock.try_acquire, lambda: lock.acquire(timeout=5)):
            with pytest.raises(BackendUnavailable) as caught:
                desk(attempt)
            told = one_line(caught.value)
            assert "fencelock schema --print" in told
            assert "may not create" in told
        assert schemas(server) == []


def test_a_role_that_may_not_use_the_schema_is_told_so(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as owner:
        owner(owner.acquire("job").release)
    with role(server, "worker") as url:
        for grants, says in [((), "may not use schema"), (GRANTS[:1], "may not"), (GRANTS[:2], "may not")]:
            for grant in grants:
                ask(server, grant.format(schema="fencelock", role="worker"))
            with desk_for(flavour, url) as desk, pytest.raises(BackendUnavailable) as caught:
                desk.acquire("job", timeout=5)
            assert says in one_line(caught.value)
            assert residue(server) == []


@pytest.mark.parametrize("schema", ["fencelock", "turns"])
def test_a_role_without_rights_to_create_works_with_what_the_owner_made(
    server: Any, flavour: str, schema: str
) -> None:
    """What `backend.schema()` returns is run by psql, as the owner, twice: it may be there already."""
    url = f"{server.url}?schema={schema}"
    for _ in range(2):
        server.query(script(url))
    with role(server, "worker", *(g.format(schema=schema, role="worker") for g in GRANTS)) as come:
        use_all(f"{come}?schema={schema}", flavour)
        assert residue(server, schema) == []


def use_all(url: str, flavour: str) -> None:
    """Every kind of step."""
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        lease = desk.acquire("job", ttl=LONG)
        waits = other.waiting("job", ttl=LONG)
        wait_until(lambda: desk.inspect("job").waiters, "it waits")
        desk(lease.extend, LONG)
        assert desk(lease.verify)
        assert [state.name for state in desk(desk.locks.list)] == ["job"]
        assert desk(lease.release)
        assert other(waits.result(30).verify)
        assert desk(desk.locks.force_release, "job")
        wait_until(lambda: not waits.result().is_held(), "it was told")
        assert desk(desk(desk.locks.semaphore("permit", 2).acquire).release)
        assert desk(desk(desk.locks.rwlock("page").read().acquire).release)


def test_a_newer_schema_is_not_touched(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        desk(desk.acquire("job").release)
    ask(server, "UPDATE fencelock.version SET version = %s", VERSION + 1)
    before = objects(server)
    with desk_for(flavour, server.url) as desk:
        for _ in range(2):
            with pytest.raises(ConfigurationError) as caught:
                desk.acquire("job", timeout=5)
            told = one_line(caught.value)
            assert f"version {VERSION + 1}" in told
            assert "upgrade fencelock" in told
    assert objects(server) == before
    assert residue(server) == []


OLDER = """
DROP FUNCTION fencelock.acquire;
DROP FUNCTION fencelock.leave;
CREATE FUNCTION fencelock.acquire(
    integer, bytea, text, text, integer, double precision, double precision, text, text, bigint, boolean
) RETURNS text LANGUAGE sql AS $$ SELECT 'the older one' $$;
CREATE FUNCTION fencelock.leave(integer, bytea, text, bigint, boolean) RETURNS boolean
LANGUAGE sql AS $$ SELECT false $$;
INSERT INTO fencelock.queue VALUES ('\\x006f6c64', 1, 'older-client', 'exclusive', 0, true,
    clock_timestamp() + interval '1 hour', clock_timestamp(), '',
    '{"client": "old", "host": "there", "pid": 1}');
"""
"""The tables are the same. Older clients give two functions other parameters; one holds the lock "old"."""


def make_older(server: Any) -> None:
    server.query(script(server.url))
    for statement in OLDER.split(";\n"):
        if statement.strip():
            ask(server, statement)


def check_both_versions(server: Any, url: str, flavour: str) -> None:
    with desk_for(flavour, url) as desk:
        assert desk(desk.locks.lock("old").try_acquire) is None
        assert [holder.owner for holder in desk.inspect("old").holders] == ["older-client"]
    ask(server, "DELETE FROM fencelock.queue")
    use_all(url, flavour)
    functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace AND proname = %s"
    assert [ask(server, functions, name) for name in ("acquire", "leave")] == [[(2,)], [(2,)]]


def test_an_older_schema_gets_what_is_missing_and_older_clients_go_on(server: Any, flavour: str) -> None:
    make_older(server)
    check_both_versions(server, server.url, flavour)


def test_a_role_that_may_not_create_is_told_what_to_do_about_an_older_schema(
    server: Any, flavour: str
) -> None:
    make_older(server)
    with role(server, "worker", *(g.format(schema="fencelock", role="worker") for g in GRANTS)) as url:
        with desk_for(flavour, url) as desk, pytest.raises(BackendUnavailable) as caught:
            desk.acquire("job", timeout=5)
        told = one_line(caught.value)
        assert "incomplete" in told
        assert "fencelock schema --print" in told
        server.query(script(server.url))
        check_both_versions(server, url, flavour)


@pytest.mark.parametrize(
    "harm",
    [
        "DROP SCHEMA fencelock CASCADE",
        "DROP TABLE fencelock.queue CASCADE",
        "DROP TABLE fencelock.buckets CASCADE",
        "DROP FUNCTION fencelock.acquire",
        "DROP FUNCTION fencelock.hand_over",
        "DELETE FROM fencelock.buckets",
        "TRUNCATE fencelock.buckets, fencelock.queue",
        "DELETE FROM fencelock.queue",
    ],
)
def test_what_an_operator_removes_is_made_again_and_tokens_still_rise(
    server: Any, flavour: str, harm: str
) -> None:
    with desk_for(flavour, server.url) as desk, desk_for(flavour, server.url) as other:
        last = 0
        for _ in range(3):
            lease = desk.acquire("job", ttl=LONG)
            assert lease.token > last
            last = lease.token
            waits = other.waiting("job", ttl=LONG)
            wait_until(lambda: desk.inspect("job").waiters, "it waits")
            ask(server, harm)
            desk(lease.release)  # it may be gone
            taken = waits.result(30)
            assert taken.token > last
            last = taken.token
            assert other(taken.verify)
            assert other(taken.release)
        assert objects(server)["buckets"] == BUCKETS or "DELETE" in harm
        nothing_left(server)


def test_a_bucket_that_is_missing_is_repaired_alone(server: Any, flavour: str) -> None:
    with desk_for(flavour, server.url) as desk:
        lease = desk.acquire("job", ttl=LONG)
        others = ask(server, "SELECT bucket, token FROM fencelock.buckets ORDER BY 1")
        mine = int(Places("", BUCKETS).find("job").bucket)
        ask(server, "DELETE FROM fencelock.buckets WHERE bucket = %s", mine)
        assert desk(desk.locks.lock("job").try_acquire) is None, "the holder was forgotten"
        assert desk(lease.verify)
        assert desk(lease.release)
        again = desk.acquire("job")
        assert again.token > lease.token
        assert desk(again.release)
        now = dict(ask(server, "SELECT bucket, token FROM fencelock.buckets"))
        assert len(now) == BUCKETS
        assert all(now[bucket] == token for bucket, token in others if bucket != mine)


# Names ------------------------------------------------------------------------------------------------


def test_names_that_share_a_bucket_do_not_block_each_other(server: Any, flavour: str) -> None:
    places = Places("", BUCKETS)
    names = (f"name-{number}" for number in itertools.count())
    shared = (name for name in names if places.find(name).bucket == b"7")
    alike = list(itertools.islice(shared, 20))
    with desk_for(flavour, server.url) as desk, desk_for(flavour, server.url) as other:
        leases = [desk(desk.locks.lock(name, ttl=LONG).try_acquire) for name in alike]
        assert all(leases), "one was blocked by another name"
        assert len({lease.token for lease in leases}) == len(leases)
        waits = [other.waiting(name, ttl=LONG) for name in alike]
        wait_until(lambda: all(desk.inspect(name).waiters for name in alike), "all wait")
        for number, lease in enumerate(leases):
            assert desk(lease.release)
            assert other(waits[number].result(30).release)
            assert not any(wait.done() for wait in waits[number + 1 :])


def colliding(server: Any, mask: int, count: int) -> list[str]:
    """Names whose hashes, as the server computes them for advisory locks, are the same in these bits."""
    found = ask(
        server,
        f"SELECT string_agg(name, ' ') FROM (SELECT 'n' || g AS name, hashtext('n' || g) & {mask} AS h "
        f"FROM generate_series(1, {count}) g) names GROUP BY h HAVING count(*) > 1 LIMIT 1",
    )
    return str(found[0][0]).split()[:2]


@pytest.mark.parametrize(("mask", "count"), [(0xFFFF, 20_000), (-1, 400_000)], ids=["16 bits", "32 bits"])
def test_names_that_collide_do_not_block_each_other(server: Any, flavour: str, mask: int, count: int) -> None:
    one, other = colliding(server, mask, count)
    check_apart(server, flavour, one, other)


@pytest.mark.parametrize(
    ("one", "other"), [("plumless", "buckeroo"), ("codding", "gnu")], ids=["crc32", "crc32 too"]
)
def test_names_with_the_same_crc_do_not_block_each_other(
    server: Any, flavour: str, one: str, other: str
) -> None:
    assert zlib.crc32(one.encode()) == zlib.crc32(other.encode())
    check_apart(server, flavour, one, other)


def check_apart(server: Any, flavour: str, one: str, other: str) -> None:
    assert one != other
    with desk_for(flavour, server.url) as desk:
        first = desk.acquire(one, ttl=LONG)
        second = desk(desk.locks.lock(other).try_acquire)
        assert second is not None, "one name blocks another"
        assert desk(first.release)
        assert desk(second.verify)
        assert desk(second.release)


ALIKE = [
    "a/b",
    "a:b",
    "{a}b",
    "A/B",
    "a/b ",
    " a/b",
    "a%2Fb",
    "é",
    "e\u0301",
    "a\\b",
    "a'b",
    'a"b',
    "\\x61",
    "a",
    "aa",
]


def test_names_that_look_alike_are_different_locks(server: Any, flavour: str) -> None:
    desks: dict[str, Desk] = {}
    try:
        for space in ("", "n", "n:m"):
            desks[space] = desk_for(flavour, server.url, namespace=space)
        leases = [
            (desk, desk(desk.locks.lock(name).try_acquire))
            for desk in desks.values()
            for name in [*ALIKE, "x" * 512]
        ]
        assert all(lease for _, lease in leases)
        for desk in desks.values():
            assert [state.name for state in desk(desk.locks.list)] == sorted(
                [*ALIKE, "x" * 512], key=str.encode
            )
            assert [state.name for state in desk(desk.locks.list, "a/")] == ["a/b", "a/b "]
        for desk, lease in leases:
            assert desk(lease.release)
    finally:
        for desk in desks.values():
            desk.close()
