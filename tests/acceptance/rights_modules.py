"""Every module, used as a role of docs/reference/permissions.md uses it: through its public face.

A module is a function of a `Site`, which says how the role reaches the store. Each does what a program does
in a day (take, wait, renew, end; write, read, tidy up), in the flavour of the site. `site.see()` is called
where something is in the store that does not stay.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import redis
from cli_helpers import fencelock_command
from crew import wait_until
from dashboard_desk import Stream, dashboard
from redis_desk import Desk
from rights_site import Site, engine, fresh, made, on_connection, opened

from fencelock import fencing, idempotency, jobs
from fencelock.crdt import AsyncReplica, PNCounter, RedisExchange, Replica
from fencelock.fencing import AsyncRedisFence, AsyncSQLGate, RedisFence, SQLGate
from fencelock.flight import AsyncFlight, Flight
from fencelock.idempotency import AsyncStore, Store
from fencelock.optimistic import AsyncRegister, Register
from fencelock.schedule import AsyncSchedule, Schedule

SOON = 30.0


# Locks --------------------------------------------------------------------------------------------


def locks(site: Site) -> None:
    """Take turns with another client, and use every kind of lock that the store has."""
    name, ttl = fresh(), site.ttl
    with site.desk() as desk, site.desk() as other:
        has = desk.locks._session.backend.capabilities
        held = desk.acquire(name, ttl=ttl)
        assert other(other.locks.lock(name, ttl=ttl).try_acquire) is None
        waits = other.waiting(name, ttl=ttl)
        if desk.locks.guarantees.fairness == "fifo":
            wait_until(lambda: waits.done() or desk.inspect(name).waiters, "the other stands in line")
            assert not waits.done() or waits.result()
        desk(held.extend, 2 * ttl)
        assert desk(held.verify)
        site.see()
        assert desk(held.release)
        assert other(waits.result(SOON).release)
        kinds = [desk.locks.multi([f"{name}-a", f"{name}-b"], ttl=ttl)]
        if "shared" in has:
            page = desk.locks.rwlock(f"{name}-page", ttl=ttl)
            kinds += [page.read(), page.write()]
        if "permit" in has:
            kinds.append(desk.locks.semaphore(f"{name}-slots", 2, ttl=ttl))
        for lock in kinds:
            desk(desk(lock.acquire, timeout=SOON).release)
        _elect(site, desk, other, "inspect" in has)


def _elect(site: Site, desk: Desk, other: Desk, may_look: bool) -> None:
    election = desk.locks.election(fresh(), ttl=site.ttl)
    seen = []

    def lead(lease: Any) -> None:
        if may_look:
            seen.append(other(other.locks.election(election.name, ttl=site.ttl).leader).token == lease.token)

    async def lead_async(lease: Any) -> None:
        await asyncio.to_thread(lead, lease)

    desk(election.run, lead_async if site.is_async else lead)
    assert all(seen)


def looking(site: Site, holder: Site) -> None:
    """See what `holder` holds; `fencelock ls` shows the same."""
    name = fresh()
    with holder.desk() as owner, site.desk() as desk:
        lease = owner.acquire(name, ttl=site.ttl)
        assert [entry.owner for entry in desk.inspect(name).holders] == [lease.owner]
        assert name in {state.name for state in desk(desk.locks.list)}
        shown = fencelock_command(site.url, "ls", "--json")
        assert shown.returncode == 0, shown.stderr
        assert name in shown.stdout
        assert owner(lease.release)


def breaking(site: Site, holder: Site) -> None:
    """Break what `holder` holds, in Python and by `fencelock break`."""
    name = fresh()
    with holder.desk() as owner, site.desk() as desk:
        lease = owner.acquire(name, ttl=site.ttl)
        assert [broken.owner for broken in desk(desk.locks.force_release, name)] == [lease.owner]
        assert not owner(lease.verify)
        lease = owner.acquire(name, ttl=site.ttl)
        done = fencelock_command(site.url, "break", name, "--yes")
        assert done.returncode == 0, done.stderr
        assert not owner(lease.verify)


# What stands beside the locks -----------------------------------------------------------------------


def schedules(site: Site) -> str:
    """Run something once in a period, in Python and by `fencelock once`; return its name."""
    ran: list[Any] = []
    name = fresh()

    async def job(tick: Any) -> None:
        ran.append(tick)

    work = job if site.is_async else ran.append
    kind = AsyncSchedule if site.is_async else Schedule
    with site.desk() as desk, opened(desk, kind, desk.locks, ttl=site.ttl) as schedule:
        for expected in (True, False):
            run = desk(lambda: schedule.once(name, work, per=86400))
            assert (run is not None) is expected
        assert [run.state for run in desk(schedule.history, name)] == ["done"]
        assert name in desk(schedule.names)
    assert len(ran) == 1
    once = ("once", f"{name}-cli", "--per", "24h", "--ttl", f"{site.ttl:g}s", "--", "echo", "ran")
    for printed in ("ran\n", ""):
        done = fencelock_command(site.url, *once)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr
    return name


def runs(site: Site, worker: Site) -> None:
    """See how schedules of `worker` have run."""
    name = schedules(worker)
    shown = fencelock_command(site.url, "cron", "--ls", "--json")
    assert shown.returncode == 0, shown.stderr
    assert name in {run["name"] for run in json.loads(shown.stdout)}


def records_of_a_client(site: Site) -> None:
    """Keep the record of a schedule by a connection, or a client of redis-py, of the user's own."""

    async def nothing() -> None:
        pass

    work = nothing if site.is_async else (lambda: None)
    kind = AsyncSchedule if site.is_async else Schedule
    with site.desk() as desk, site.target(desk) as record:
        schedule = made(desk, kind, desk.locks, ttl=site.ttl, record=record)
        assert desk(lambda: schedule.once(fresh(), work, per=86400)) is not None


def flights(site: Site, store: Any = None) -> None:
    """Compute a value once, replace it, forget it."""
    key = fresh()
    kind = AsyncFlight if site.is_async else Flight

    def compute() -> int:
        site.see()
        return 7

    async def compute_async() -> int:
        return compute()

    with ExitStack() as stack:
        desk = stack.enter_context(site.desk())
        given = stack.enter_context(site.client(desk)) if store == "client" else store
        flight = stack.enter_context(opened(desk, kind, desk.locks, given))
        for _ in range(2):
            found = desk(lambda: flight.get(key, compute_async if site.is_async else compute, ttl=60))
            assert found == 7
        desk(flight.put, key, 8, ttl=60)
        assert desk(flight.forget, key) is True
        desk(flight.put, key, 9, ttl=60)
        site.see()


def idempotency_keys(site: Site, *, crashed: bool = True) -> None:
    """Do it once; give an attempt up; see what crashed; delete what is old."""
    key = fresh()

    async def effect_async(attempt: Any) -> int:
        return 7

    def effect(attempt: Any) -> int:
        return 7

    with site.desk() as desk, site.target(desk) as target:
        options = {"threads": True} if site.is_async and site.threads else {}
        store = made(desk, AsyncStore if site.is_async else Store, target, **options)
        for _ in range(2):
            assert desk(store.run, key, "print", effect_async if site.is_async else effect) == 7
        attempt = desk(store.begin, f"{key}-2", "print")
        desk(store.extend, attempt, 60)
        desk(store.abandon, attempt)
        if crashed:
            assert f"{key}-2" in {one.key for one in desk(store.crashed)}
        if not site.server:
            on_connection(site, desk, idempotency.purge, idempotency.purge_async)


def registers(site: Site) -> None:
    """Write a register, and lose a race for it."""
    kind = AsyncRegister if site.is_async else Register
    with site.desk() as desk, opened(desk, kind, site.url, fresh()) as register:
        assert desk(register.read).value is None
        version = desk(register.set, b"one", 0).row.version
        assert desk(register.set, b"two", version).row.value == b"two"
        assert desk(register.set, b"late", version).row.value == b"two"


def exchanges(site: Site) -> None:
    """Exchange a counter with another replica, often enough that records are replaced."""
    target: Any = site.server or site.database
    if "cluster" in site.url:
        target = RedisExchange(redis.RedisCluster.from_url(site.server))
    name = fresh()
    kind = AsyncReplica if site.is_async else Replica
    with site.desk() as desk:

        def replica(file: str) -> Any:
            options = {"path": site.folder / f"{name}-{file}", "exchange": target}
            return kind(name, PNCounter, **options)

        async def both_async() -> int:
            async with replica("one") as one, replica("two") as two:
                for _ in range(40):
                    await one.update(lambda stock: stock.increment(one.id, 1))
                    await one.sync()
                await two.sync()
                return int(two.value.value)

        def both() -> int:
            with replica("one") as one, replica("two") as two:
                for _ in range(40):
                    one.update(lambda stock: stock.increment(one.id, 1))
                    one.sync()
                two.sync()
                return int(two.value.value)

        assert desk(both_async if site.is_async else both) == 40


# Fences and jobs ------------------------------------------------------------------------------------


def redis_fences(site: Site) -> None:
    """Write the user's own keys behind a fence."""
    key = f"documents:{fresh()}"
    with site.desk() as desk, site.client(desk) as client:
        fence = (AsyncRedisFence if site.is_async else RedisFence)(client)
        desk(fence.admit, f"{key}-1", 34)
        desk(lambda: fence.set(key, "text", token=34))
        desk(lambda: fence.hset(f"{key}-h", {"a": 1}, token=34))
        desk(lambda: fence.incr(f"{key}-n", token=34))
        assert desk(fence.newest, key) == 34
        site.see()
        assert desk(lambda: fence.delete(key, token=35))
        desk(fence.forget, key)


def sql_fences(site: Site) -> None:
    """Admit a token in a transaction, take a turn at a gate, forget a resource."""
    name = fresh()
    with site.desk() as desk:
        on_connection(site, desk, fencing.admit, fencing.admit_async, name, 34)
        assert on_connection(site, desk, fencing.newest, fencing.newest_async, name) == 34
        with engine(site, desk) as made_engine:

            async def turn_async() -> None:
                async with AsyncSQLGate(made_engine.begin).turn(name, 35):
                    pass

            def turn() -> None:
                with SQLGate(made_engine.begin).turn(name, 35):
                    pass

            desk(turn_async if site.is_async else turn)
        on_connection(site, desk, fencing.forget, fencing.forget_async, name)


def do_jobs(site: Site) -> None:
    """Add jobs, do them under locks and without, look at them, cancel and purge."""
    name = fresh()
    with site.desk() as desk, engine(site, desk) as made_engine:
        table = (jobs.AsyncTable if site.is_async else jobs.Table)(made_engine)
        kind = jobs.AsyncWorker if site.is_async else jobs.Worker

        async def handle_async(job: Any) -> None:
            await job.checkpoint(1)

        def handle(job: Any) -> None:
            job.checkpoint(1)

        for client in (desk.locks, None):
            desk(table.enqueue, name, {"a": 1}, key=f"{name}-{client is None}")
            worker = made(
                desk, kind, client, table, {name: handle_async if site.is_async else handle}, ttl=site.ttl
            )
            assert desk(worker.run_once).done == 1
        number = desk(lambda: table.enqueue(name, delay=60))
        desk(table.cancel, number)
        assert desk(table.counts)["done"] >= 2
        assert desk(lambda: table.purge(older_than=0)) >= 1


# Looking at the whole ---------------------------------------------------------------------------------


def doctor(site: Site) -> dict[str, dict[str, Any]]:
    """Return what `fencelock doctor` finds, by subject. It ends in order, whatever it may not read."""
    done = fencelock_command(site.url, "doctor", "--json")
    assert done.returncode in {0, 1, 2}, done.stderr
    assert "Traceback" not in done.stderr
    return {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}


def board(site: Site, holder: Site, *, breaks: bool) -> None:
    """Show a lock on the dashboard; break it there, or be refused."""
    name = fresh()
    with holder.desk() as owner, dashboard(site.url, read_only=not breaks) as browser:
        lease = owner.acquire(name, ttl=60)
        stream = Stream(browser)
        stream.wait("picture", lambda data: data["b"] == "b0" and not data["trouble"])
        shown = stream.wait("checkup", lambda data: data["b"] == "b0")
        assert shown["findings"]
        order = {"backend": "b0", "name": name, "owners": [lease.owner], "reason": "a test"}
        answer = browser.post("/api/break", json=order, headers=stream.csrf)
        assert answer.is_success is breaks, answer.text
        assert owner(lease.verify) is not breaks
        if not breaks:
            owner(lease.release)
