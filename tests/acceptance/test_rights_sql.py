"""PostgreSQL and MariaDB: an owner makes the tables, and roles with the GRANTs of the page use them.

The page is docs/reference/permissions.md. One right less is refused, with one clear error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import rights_modules as modules
from cli_helpers import fencelock_command
from redis_desk import FLAVOURS
from rights_page import names, rows
from rights_site import Site, engine
from rights_sql import PASSWORD, Database, Right, database_of, rights_of
from workers.databases import connected, engine_url

from fencelock import BackendUnavailable, Client, jobs
from fencelock.schedule import Schedule


@pytest.fixture(scope="module", params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with database_of(request.param, tmp_path_factory.mktemp("tables")) as found:
        yield found


@pytest.fixture(params=["", "+advisory or GET_LOCK"], ids=["table", "sessions"])
def scheme(database: Database, request: pytest.FixtureRequest) -> str:
    return list(database.forms)[bool(request.param)]


def site(database: Database, role: str, scheme: str, flavour: str, folder: Path) -> Site:
    return Site(database.url(role, scheme), flavour, folder, database=database.url(role))


# The roles ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_uses_every_module(database: Database, scheme: str, flavour: str, tmp_path: Path) -> None:
    database.grant("worker", database.forms[scheme], "Tables worker")
    worker = site(database, "worker", scheme, flavour, tmp_path)
    with Client(worker.url) as locks:
        has = locks._session.backend.capabilities
    for module in (modules.locks, modules.schedules, modules.records_of_a_client, modules.idempotency_keys):
        module(worker)
    for module in (modules.exchanges, modules.sql_fences, modules.do_jobs):
        module(worker)
    if "inspect" in has:
        modules.looking(worker, worker)
    if "force_release" in has:
        modules.breaking(worker, worker)
        modules.board(worker, worker, breaks=True)
    found = modules.doctor(worker)
    assert "locks" not in found and found.get("rights", {"severity": "ok"})["severity"] == "ok"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_looker_sees_everything_and_changes_nothing(
    database: Database, flavour: str, tmp_path: Path
) -> None:
    scheme, heading = next(iter(database.forms.items()))
    database.grant("worker", heading)
    database.grant("looker", heading.replace("worker", "looker"))
    looker, worker = (site(database, role, scheme, flavour, tmp_path) for role in ("looker", "worker"))
    modules.looking(looker, worker)
    modules.runs(looker, worker)
    modules.board(looker, worker, breaks=False)
    found = modules.doctor(looker)
    assert {found[subject]["severity"] for subject in ("rights", "locks") if subject in found} >= {"critical"}
    with worker.desk() as owner, looker.desk() as eye:
        lease = owner.acquire("job", ttl=60)
        for act in (eye.locks.lock("other").try_acquire, lambda: eye.locks.force_release("job")):
            with pytest.raises(BackendUnavailable) as caught:
                eye(act)
            is_clear(caught.value)
        assert owner(lease.verify) and owner(lease.release)


def test_a_looker_of_jobs(database: Database) -> None:
    database.forget("looker")
    table = "public.fencelock_jobs" if database.kind == "postgresql" else "fencelock.fencelock_jobs"
    database.ask(database.server, f"GRANT SELECT ON {table} TO looker")
    where = engine_url(database.url("looker"))
    shown = fencelock_command("", "jobs", "ls", "--db", where)
    assert shown.returncode == 0, shown.stderr
    refused = fencelock_command("", "jobs", "purge", "--db", where)
    assert refused.returncode == 69 and "may not do that" in refused.stderr, refused.stderr


def is_clear(error: BackendUnavailable) -> None:
    told = str(error)
    assert not error.transient, told
    assert "may not" in told and "docs/reference/permissions.md" in told
    assert told.isprintable() and len(told) < 350 and PASSWORD not in told


# The page -----------------------------------------------------------------------------------------


def test_what_schema_prints_ends_with_the_grants_of_the_page(database: Database, scheme: str) -> None:
    text = fencelock_command(database.url("owner", scheme), "schema", "--print").stdout
    printed = [
        line.removeprefix("-- ").rstrip(";") for line in text.splitlines() if line.startswith("-- GRANT")
    ]
    heading = database.forms[scheme]
    lookers = [] if scheme != database.kind else database.grants(heading.replace("worker", "looker"))
    expected = [*database.grants(heading), *lookers]
    plain = [statement.replace(" fencelock.fencelock_", " fencelock_") for statement in expected]
    assert [line.replace('"', "") for line in printed] == (
        expected if database.kind == "postgresql" else plain
    )


RELATIONS = """SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname IN ('fencelock', 'public') AND relkind IN ('r', 'v', 'S') AND relname NOT LIKE '%_id_seq'"""


def test_the_page_names_every_table(database: Database) -> None:
    if database.kind == "mysql":
        column, found = "MySQL, MariaDB", {row[0] for row in database.ask(database.server, "SHOW TABLES")}
    else:
        told = database.ask(database.server, RELATIONS)
        column, found = "PostgreSQL", {f"{space}.{name}".removeprefix("public.") for space, name in told}
    known = {name for cell in rows("What each module uses", column).values() for name in names(cell)}
    assert found - {"other"} == known


# What is not there ----------------------------------------------------------------------------------


USERS: dict[str, Callable[[Site], Any]] = {
    "fencelock_schedule": modules.schedules,
    "public.fencelock_schedule": modules.records_of_a_client,
    "fencelock_fences": modules.sql_fences,
    "fencelock_idempotency": modules.idempotency_keys,
    "fencelock_crdt": modules.exchanges,
    "fencelock_jobs": modules.do_jobs,
}


def use(database: Database, worker: Site, thing: str) -> None:
    """Use a table in every way that is used."""
    name = thing.rpartition(".")[2]
    if thing in USERS or name in USERS:
        USERS.get(thing, USERS.get(name, modules.locks))(worker)
        return
    if "+advisory" in worker.url:
        database.ask(database.server, "DELETE FROM fencelock.advisory_block")  # as a crash does
    modules.locks(worker)
    if worker.url.startswith("mysql:"):
        call_each(database)


CALLS = [
    "leave_v2(0, 'place', 'owner', 0, 1)",
    "acquire_v1(255, 'place', 'other', 'exclusive', 1, 1000000, 1000000, 2, '')",
    "ahead_v1('place', 1, 'exclusive')",
    "renew_v2('')",
    "look_v1('a', 'b')",
    "sweep_v1(0)",
]


def call_each(database: Database) -> None:
    """Call the procedures that a client seldom calls, one of them for a bucket that has lost its row."""
    database.ask(database.server, "DELETE FROM fencelock_buckets WHERE bucket = 255")
    with closing(connected(database.url("worker"))) as conn:
        for call in CALLS:
            with conn.cursor() as cursor:
                cursor.execute(f"CALL fencelock_{call}")


def test_a_right_less_is_told_at_once(database: Database, scheme: str, tmp_path: Path) -> None:
    heads = [database.forms[scheme], *(["Tables worker"] if scheme == database.kind else [])]
    rights = rights_of([statement for heading in heads for statement in database.grants(heading)])
    worker = site(database, "worker", scheme, "blocking", tmp_path)
    for missing in rights:
        database.forget("worker")
        for right in rights:
            if right != missing:
                database.ask(database.server, str(right))
        with refused(missing):
            use(database, worker, missing.thing)


@contextmanager
def refused(missing: Right) -> Iterator[None]:
    """Expect one clear error; modules on a connection of the user's raise what the driver raises."""
    try:
        yield
    except BackendUnavailable as error:
        is_clear(error)
    except (psycopg.errors.InsufficientPrivilege, pymysql.err.OperationalError) as error:
        assert "denied" in str(error)
    else:
        raise AssertionError(f"no module needs {missing}")


OTHERS = {
    "postgresql": ("public.other", "fencelock.version"),
    "mysql": ("other", "fencelock_schema"),
}


def test_a_worker_may_do_nothing_else(database: Database, scheme: str) -> None:
    other, version = OTHERS[database.kind]
    database.ask(database.server, f"CREATE TABLE IF NOT EXISTS {other} (a int)")
    database.grant("worker", database.forms[scheme], "Tables worker")
    errors = pytest.raises((psycopg.Error, pymysql.err.MySQLError), match=r"denied|must be owner")
    for statement in (f"SELECT * FROM {other}", f"DELETE FROM {version}", f"DROP TABLE {other}"):
        with closing(connected(database.url("worker"))) as conn, closing(conn.cursor()) as cursor, errors:
            cursor.execute(statement)
    with closing(connected(database.url("worker"))) as conn, closing(conn.cursor()) as cursor, errors:
        cursor.execute("CREATE TABLE mine (a int)")


def without(database: Database, word: str, table: str) -> None:
    """Give the worker everything but one right."""
    rights = rights_of([*database.grants(database.forms[database.kind]), *database.grants("Tables worker")])
    assert any(right.word == word and right.thing.endswith(table) for right in rights)
    database.forget("worker")
    for right in rights:
        if right.word != word or not right.thing.endswith(table):
            database.ask(database.server, str(right))


def test_a_worker_of_jobs_does_not_wait_for_a_right(database: Database, tmp_path: Path) -> None:
    without(database, "UPDATE", "fencelock_jobs")
    worker = site(database, "worker", database.kind, "blocking", tmp_path)
    with worker.desk() as desk, engine(worker, desk) as made_engine:
        table = jobs.Table(made_engine)
        table.enqueue("kind")
        with pytest.raises(BackendUnavailable) as caught:
            jobs.Worker(None, table, {"kind": lambda job: None}).run()
        is_clear(caught.value)


def test_a_schedule_does_not_wait_for_a_right(database: Database, tmp_path: Path) -> None:
    without(database, "UPDATE", "fencelock_schedule")
    worker = site(database, "worker", database.kind, "blocking", tmp_path)
    with Client(worker.url) as locks, Schedule(locks) as schedule:
        schedule.every(1, name="tick")(lambda: None)
        with pytest.raises(BackendUnavailable) as caught:
            schedule.run()
        is_clear(caught.value)
