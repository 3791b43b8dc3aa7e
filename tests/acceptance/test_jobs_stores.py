"""Jobs on real servers: tables of the user's own, plans, both flavours, and a database that goes away."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from crew import wait_until
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from tools.servers import Group, start

from fencelock import AsyncClient, Client, jobs

DRIVERS = {
    "postgres": ("postgresql:", "postgresql+psycopg:", "postgresql+psycopg:"),
    "mariadb": ("mysql:", "mysql+pymysql:", "mysql+asyncmy:"),
}
KINDS = list(DRIVERS)
OWN = {
    "postgres": "CREATE TABLE outbox (ref UUID PRIMARY KEY DEFAULT gen_random_uuid(), body JSONB NOT NULL, "
    "state VARCHAR(10) NOT NULL DEFAULT 'new', fence BIGINT, tries INTEGER, send_at {}, error TEXT)",
    "mariadb": "CREATE TABLE outbox (ref UUID PRIMARY KEY DEFAULT UUID(), body JSON NOT NULL, "
    "state VARCHAR(10) NOT NULL DEFAULT 'new', fence BIGINT, tries INTEGER, send_at {}, error TEXT)",
}
TIMES = {"postgres": ["TIMESTAMPTZ", "TIMESTAMP", "DOUBLE PRECISION"], "mariadb": ["DATETIME(6)", "DOUBLE"]}
COLUMNS = {
    "id": "ref",
    "payload": "body",
    "status": "state",
    "token": "fence",
    "attempts": "tries",
    "due": "send_at",
    "reason": "error",
}


class Store:
    """A server, with an engine of each flavour."""

    def __init__(self, kind: str, group: Group) -> None:
        self.kind = kind
        self.group = group
        plain, blocking, asynchronous = DRIVERS[kind]
        self.url = str(group.url)
        self.async_url = self.url.replace(plain, asynchronous)
        self.engine = create_engine(self.url.replace(plain, blocking))

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.begin() as conn:
            found = conn.execute(text(statement), values)
            return [*found] if found.returns_rows else []

    def table(self, name: str) -> jobs.Table:
        self.sql(f"DROP TABLE IF EXISTS {name}")
        table = jobs.Table(self.engine, name)
        table.create()
        return table


class Stores(dict[str, Store]):
    """Each started when it is first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._stack = stack

    def __missing__(self, kind: str) -> Store:
        self[kind] = Store(kind, self._stack.enter_context(start(kind)))
        self._stack.callback(self[kind].engine.dispose)
        return self[kind]


@pytest.fixture(scope="module")
def stores() -> Iterator[dict[str, Store]]:
    with ExitStack() as stack:
        yield Stores(stack)


@pytest.fixture(params=KINDS)
def store(stores: dict[str, Store], request: pytest.FixtureRequest) -> Store:
    return stores[request.param]


@pytest.fixture
def locks() -> Iterator[Client]:
    with Client("memory://") as locks:
        yield locks


def nothing(job: Any) -> None:
    """A handler for what is not to be looked at."""


@pytest.mark.parametrize("form", ["locked", "unlocked"])
def test_every_ending(store: Store, locks: Client, form: str) -> None:
    """What the unit tests show on SQLite: done, failed, rejected, unreadable, crashed, overtaken, kept."""
    table = store.table("endings")
    store.sql("DROP TABLE IF EXISTS effects")
    store.sql("CREATE TABLE effects (job BIGINT)")
    for word in ("done", "fails", "rejected", "unreadable", "crashed", "overtaken", "finished"):
        table.enqueue("mail", {"word": word}, key=word, priority=3)
    assert table.enqueue("mail", {"word": "again"}, key="done") == table.ls(limit=1)[0].id
    store.sql("UPDATE endings SET payload = '{' WHERE unique_key = 'unreadable'")
    store.sql("UPDATE endings SET status = 'running', attempts = 1, token = 5 WHERE unique_key = 'crashed'")
    seen: list[tuple[str, int]] = []

    def handler(job: jobs.Job) -> None:
        word = job.payload["word"]
        seen.append((word, job.attempt))
        if word == "fails":
            raise ValueError(f"it's no good, \\ {job.attempt}")
        if word == "rejected":
            raise jobs.Reject("never")
        if word == "overtaken":
            with pytest.raises(AssertionError), job.finish():
                raise AssertionError
            store.sql("UPDATE endings SET token = token + 1, due = due + 1000 WHERE id = :id", id=job.id)
            with job.finish() as conn:
                conn.execute(text("INSERT INTO effects VALUES (0)"))
        if word == "finished":
            job.checkpoint({"half": True})
            with job.finish() as conn:
                conn.execute(text("INSERT INTO effects VALUES (:id)"), {"id": job.id})

    worker = jobs.Worker(locks if form == "locked" else None, table, {"mail": handler}, backoff=0, attempts=3)
    tally = worker.run_once()
    assert (tally.done, tally.retried, tally.dead, tally.overtaken) == (3, 2, 3, 1)
    states = {job.key: job for job in table.ls()}
    assert states["fails"].reason == "ValueError: it's no good, \\ 3"
    assert states["rejected"].reason == "never"
    assert (states["unreadable"].reason or "").startswith("the payload cannot be read")
    assert ("crashed", 2) in seen and states["crashed"].token > 5
    assert states["overtaken"].status == "running" and states["finished"].progress == {"half": True}
    assert store.sql("SELECT job FROM effects") == [(states["finished"].id,)]
    assert table.purge(older_than=0) == 6


@pytest.mark.parametrize(("kind", "time"), [(kind, time) for kind in KINDS for time in TIMES[kind]])
def test_your_own_table(stores: dict[str, Store], locks: Client, kind: str, time: str) -> None:
    """Ids that are UUIDs, payloads of JSON, times of the server's own, one kind only, NULLs everywhere."""
    store = stores[kind]
    store.sql("DROP TABLE IF EXISTS outbox")
    store.sql(OWN[kind].format(time))
    for word in ("plain", "fails", '"quoted"'):
        store.sql("INSERT INTO outbox (body) VALUES (:body)", body=json.dumps(word))
    statuses = {"pending": "new", "running": "busy", "done": "sent", "dead": "failed"}
    table = jobs.Table(store.engine, "outbox", columns=COLUMNS, statuses=statuses, kind="mail")
    later = table.enqueue("mail", "later", delay=3600) or table.ls(status="pending")[-1].id
    job = table.get(str(later))
    assert job is not None and job.payload == "later" and 3500 < job.due_in <= 3601
    seen: list[Any] = []

    def handler(job: jobs.Job) -> None:
        seen.append(job.payload)
        if job.payload == "fails":
            raise ValueError

    for form in (locks, None):
        jobs.Worker(form, table, {"mail": handler}, attempts=2, backoff=0).run_once()
    assert sorted(seen) == ['"quoted"', "fails", "fails", "plain"]
    assert [tuple(row) for row in store.sql("SELECT state, count(*) FROM outbox GROUP BY 1 ORDER BY 1")] == [
        ("failed", 1),
        ("new", 1),
        ("sent", 2),
    ]
    assert table.purge(older_than=3600) == 0 and table.purge(older_than=0) == 3


def test_a_token_column_that_is_too_narrow(store: Store) -> None:
    store.sql("DROP TABLE IF EXISTS outbox")
    store.sql(OWN[store.kind].format("DOUBLE PRECISION").replace("fence BIGINT", "fence INTEGER"))
    table = jobs.Table(store.engine, "outbox", columns=COLUMNS, kind="mail")
    with pytest.raises(ValueError, match="too few bits for a token: ALTER TABLE") as caught:
        table.check()
    store.sql(str(caught.value).partition("token: ")[2])
    table.check()


def test_looking_for_nothing_is_one_indexed_query(store: Store, locks: Client) -> None:
    """Among 20,000 jobs that have ended and 1,000 of the future, without sorting or reading the table."""
    table = store.table("many")
    row = "INSERT INTO many (kind, payload, status, due) VALUES "
    for first in range(0, 20_000, 5000):
        store.sql(row + ", ".join(f"('mail', '1', 'done', {due})" for due in range(first, first + 5000)))
    store.sql(row + ", ".join(f"('mail', '1', 'pending', 4e9 + {due})" for due in range(1000)))
    store.sql("ANALYZE many" if store.kind == "postgres" else "ANALYZE TABLE many")
    for form in (locks, None):
        asked: list[tuple[str, Any]] = []
        worker = jobs.Worker(form, table, {"mail": nothing}, poll=0.3, concurrency=4)
        with listening(store.engine, asked, lambda polls, own=worker: len(polls) < 4 or own.stop()):  # type: ignore[misc]
            worker.run()
        polls = [one for one in asked if "UNION ALL" in one[0]]
        times = [one[2] for one in polls]
        assert all(after - before > 0.2 for before, after in pairwise(times)), "not one for each slot"
        rest = [one[0] for one in asked if "many" in one[0] and one not in polls]
        assert [one for one in rest if " DISTINCT " not in one and "SHOW CREATE" not in one] == []
        with store.engine.begin() as conn:
            plan = [*conn.exec_driver_sql(f"EXPLAIN {polls[0][0]}", polls[0][1]).mappings()]
        if store.kind == "postgres":
            told = "\n".join(line["QUERY PLAN"] for line in plan)
            assert told.count("many_due") >= 2 and "Seq Scan" not in told
            sorts = [line for line in told.splitlines() if "Sort Key" in line]
            assert all("r.priority" in line for line in sorts), "only the few rows that were found are sorted"
        else:
            uses = [line for line in plan if line["table"] == "many"]
            assert [line["key"] for line in uses] == ["many_due"] * 2
            assert "filesort" not in "".join(line["Extra"] for line in uses)


@contextmanager
def listening(engine: Engine, asked: list[Any], seen: Callable[[list[Any]], Any]) -> Iterator[None]:
    """Write down every statement with its values and its time; tell `seen` of those that look for jobs."""

    def note(conn: Any, cursor: Any, statement: str, values: Any, *_: Any) -> None:
        asked.append((statement, values, time.monotonic()))
        if "UNION ALL" in statement:
            seen([one for one in asked if "UNION ALL" in one[0]])

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize("form", ["locked", "unlocked"])
def test_asyncio(store: Store, form: str) -> None:
    table = store.table("tasks")
    store.sql("DROP TABLE IF EXISTS effects")
    store.sql("CREATE TABLE effects (job BIGINT)")
    for number in range(20):
        table.enqueue("mail", number)
    kept: list[int] = []

    async def handler(job: jobs.AsyncJob) -> None:
        await job.checkpoint(job.attempt)
        if job.payload == 7:
            kept.append(job.progress)
            if job.attempt == 1:
                raise OSError("again")
        if job.payload == 8:
            raise jobs.Reject("no")
        async with job.finish() as conn:
            await conn.execute(text("INSERT INTO effects VALUES (:id)"), {"id": job.id})

    async def main() -> Any:
        engine = create_async_engine(store.async_url)
        try:
            async with AsyncClient("memory://") as locks:
                source = jobs.AsyncTable(engine, "tasks")
                given = locks if form == "locked" else None
                worker = jobs.AsyncWorker(given, source, {"mail": handler}, concurrency=5, backoff=0)
                # Twice: what was tried again may be due when the others have found nothing more.
                return [await worker.run_once(), await worker.run_once()]
        finally:
            await engine.dispose()

    tallies = asyncio.run(main())
    assert [sum(getattr(one, what) for one in tallies) for what in ("done", "retried", "dead")] == [19, 1, 1]
    assert kept == [1, 2]
    assert (
        len(store.sql("SELECT DISTINCT job FROM effects")) == len(store.sql("SELECT job FROM effects")) == 19
    )


def test_enqueue_in_a_transaction_of_psycopg(stores: dict[str, Store]) -> None:
    table = stores["postgres"].table("outer_jobs")
    with psycopg.connect(stores["postgres"].url) as conn:
        table.enqueue("mail", conn=conn)
        conn.rollback()
        table.enqueue("mail", conn=conn)
    assert table.counts()["pending"] == 1


@pytest.mark.parametrize("form", ["locked", "unlocked"])
def test_a_database_that_goes_away(locks: Client, form: str) -> None:
    """While a job runs and while there is none: no spinning, nothing lost, and it goes on by itself."""
    with start("postgres") as group:
        store = Store("postgres", group)
        table = store.table("away")
        away, back, ends = threading.Event(), threading.Event(), []

        def handler(job: jobs.Job) -> None:
            if job.attempt == 1 and job.payload == "first":
                away.set()
                assert back.wait(60)
            ends.append((job.payload, job.attempt))

        table.enqueue("mail", "first")
        worker = jobs.Worker(locks if form == "locked" else None, table, {"mail": handler}, ttl=3, poll=0.1)
        tried: list[float] = []
        event.listen(store.engine, "do_connect", lambda *_: tried.append(time.monotonic()) or None)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert away.wait(60)
            group.members[0].kill()
            began = time.monotonic()
            back.set()
            wait_until(lambda: len(tried) > 4, "it was tried again")
            seconds = time.monotonic() - began
            group.members[0].restart()
            assert len(tried) <= 12 + 12 * seconds, f"{len(tried)} connections in {seconds:.1f}s"
            wait_until(lambda: table.counts()["done"] == 1, "the job was done")
            table.enqueue("mail", "second")
            wait_until(lambda: table.counts()["done"] == 2, "the next job was done")
            assert {word for word, _ in ends} == {"first", "second"}
        finally:
            worker.stop(grace=0)
            back.set()
            thread.join(60)
            store.engine.dispose()
