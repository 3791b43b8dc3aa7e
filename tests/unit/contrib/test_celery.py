"""Tasks that run once, without a broker: policies, names, and what is called as a function."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Retry

from fencelock import AcquireTimeout, BackendUnavailable, ConfigurationError, FencelockError, LeaseLost
from fencelock.contrib.celery import Once, Policy, locks_of
from fencelock.idempotency import FingerprintChanged, Store, create_table


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("unit", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.update(fencelock_url="memory://", fencelock_namespace="n", task_always_eager=True)
    yield app
    assert locks_of(app).list() == []
    locks_of(app).close()
    app.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "once.db", timeout=30)

    conn = connect()
    create_table(conn)
    conn.commit()
    conn.close()
    return Store(connect)


def test_a_task_has_its_lease_and_its_own_name(app: Celery) -> None:
    @app.task(shared=False, base=Once, bind=True, once={"key": "report:{pk}"})
    def report(self: Any, pk: Any, kind: str = "pdf") -> tuple[str, bool]:
        return self.lease.name, self.lease.is_held()

    assert report.delay("a:b").get() == ("report:a%3Ab", True)
    assert report(7) == ("report:7", True)
    with pytest.raises(FencelockError, match="there is no lease here"):
        _ = report.lease


def test_without_a_key_name_and_arguments_say_what_it_is(app: Celery) -> None:
    @app.task(shared=False, base=Once, bind=True, name="one")
    def one(self: Any, a: int, b: int = 2) -> str:
        return str(self.lease.name)

    @app.task(shared=False, base=Once, bind=True, name="two")
    def two(self: Any, a: int, b: int = 2) -> str:
        return str(self.lease.name)

    assert one(1) == one(1, 2) == one(b=2, a=1) == one.delay(1).get()
    assert len({one(1), one(2), one("1"), two(1)}) == 4
    assert one(1).startswith("one:")


@pytest.mark.parametrize("busy", ["skip", "retry", "wait"])
def test_what_is_called_as_a_function_raises_if_its_lock_is_taken(app: Celery, busy: Any) -> None:
    @app.task(shared=False, base=Once, once=Policy("job", busy=busy, timeout=0.01))
    def job() -> str:
        return "done"

    with locks_of(app).lock("job"):
        with pytest.raises(AcquireTimeout):
            job()
        with pytest.raises(AcquireTimeout):
            job.delay().get()
    assert job() == job.delay().get() == "done"


def test_errors_of_the_task_are_its_own_and_leave_no_lock(app: Celery) -> None:
    @app.task(shared=False, base=Once, bind=True, once={"key": "job", "ttl": 0.2})
    def job(self: Any, what: str) -> None:
        if what == "lose":
            locks_of(app).force_release("job")
            assert self.lease.lost.wait(30)
        if what == "raise":
            raise KeyError("of the task")
        if what == "timeout":
            raise AcquireTimeout(name="inner", waited=1.0)

    for what, error in (("raise", KeyError), ("timeout", AcquireTimeout), ("lose", LeaseLost)):
        with pytest.raises(error):
            job(what)
        with pytest.raises(error):
            job.delay(what).get()


def test_a_key_whose_result_is_kept(app: Celery, store: Store) -> None:
    ran: list[int] = []

    @app.task(shared=False, base=Once, once=Policy("pay:{invoice}", store=store, per="key"))
    def pay(invoice: int, amount: int) -> dict[str, int]:
        ran.append(amount)
        if amount < 0:
            raise KeyError("refused")
        return {"paid": amount}

    assert pay(7, 5) == pay.delay(7, 5).get() == {"paid": 5}
    assert ran == [5]
    with pytest.raises(FingerprintChanged):
        pay(7, 500)
    for _ in range(2):
        with pytest.raises(KeyError):
            pay(8, -1)
    assert ran == [5, -1, -1]


def test_a_task_whose_result_is_kept(app: Celery, store: Store) -> None:
    ran: list[int] = []

    @app.task(shared=False, base=Once, once={"store": store})
    def job(number: int) -> int:
        ran.append(number)
        return number

    for _ in range(2):
        assert job.apply([1], task_id="a").get() == 1
    assert job.apply([1], task_id="b").get() == 1
    assert job(1) == 1, "a call has no id to be known by"
    assert ran == [1, 1, 1]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"busy": "maybe"}, r"busy='maybe' is not known: give skip, retry or wait"),
        ({"per": "day"}, r"per='day' is not known: give task or key"),
        ({"key": "a{x}{y}"}, r"run into each other"),
        ({"ttl": -1}, r"ttl=-1 is out of range"),
        ({"countdown": "1"}, r"countdown='1' is not a duration"),
        ({"store": "redis://"}, r"store='redis://' is no fencelock.idempotency.Store"),
        ({"name": "a"}, r"has 'name', which is none of key, busy, ttl"),
        ("a:{x}", r"once='a:\{x\}' is no policy: give a dict"),
        ({"key": "a:{y}"}, r"has the field \{y\}, and \S+ has no such argument"),
    ],
)
def test_bad_policies_are_refused_when_the_application_is_made_ready(
    app: Celery, given: Any, why: str
) -> None:
    @app.task(shared=False, base=Once, once=given)
    def job(x: int) -> None: ...

    with pytest.raises(ConfigurationError, match=why):
        app.finalize()


def test_arguments_that_cannot_be_compared_are_refused(app: Celery) -> None:
    @app.task(shared=False, base=Once)
    def job(x: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"job cannot be compared, give once a key: .* is not JSON"):
        job(object())

    @app.task(shared=False, base=Once, name="keyed", once={"key": "job:{x}"})
    def keyed(x: int, y: Any) -> str:
        return "done"

    assert keyed(1, object()) == "done"


@pytest.mark.parametrize("ignores", [True, False])
def test_a_worker_that_cannot_reach_the_locks_sends_its_task_again(
    app: Celery, monkeypatch: pytest.MonkeyPatch, ignores: bool
) -> None:
    app.conf.task_always_eager = False

    @app.task(shared=False, base=Once, once={"key": "job", "countdown": 3}, ignore_result=ignores)
    def job() -> None:
        raise AssertionError("it was run without its lock")

    async def down(*_: Any, **__: Any) -> Any:
        raise BackendUnavailable(backend="memory", detail="down", transient=False)

    with app.connection() as connection, monkeypatch.context() as patch:
        patch.setattr(locks_of(app)._session.backend, "acquire", down)
        connection.default_channel.queue_declare("celery")
        connection.default_channel.queue_purge("celery")
        with pytest.raises(BackendUnavailable):
            job()
        where = {"exchange": "", "routing_key": "celery"}
        job.push_request(id="t", args=[], kwargs={}, called_directly=False, retries=2, delivery_info=where)
        with pytest.raises(Retry, match="down"):
            job()
        job.pop_request()
        message = connection.default_channel.basic_get("celery", no_ack=True)
        assert message is not None
        assert (message.headers["id"], message.headers["retries"]) == ("t", 2), "it costs no retry"
        assert message.headers["eta"] is not None


MODULES = {
    "fastapi": "fastapi",
    "starlette": "starlette",
    "django": "django",
    "celery": "celery",
    "apscheduler": "apscheduler",
}


def test_a_framework_that_is_missing_is_one_line_with_the_command() -> None:
    code = f"""
import importlib, sys
for module, package in {MODULES}.items():
    sys.modules[package] = None
    try:
        importlib.import_module("fencelock.contrib." + module)
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"fencelock.contrib.{module} needs the package {package!r}: pip install 'fencelock[{module}]'"
        for module, package in MODULES.items()
    ]
