"""Bad input: each is one line that names the cause, without the password, and never a grant.

Both flavours, and the command line: exit status 69 (unavailable) or 64 (usage), one line, no traceback.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_helpers import fencelock_command
from crew import wait_until
from postgres_desk import FLAVOURS, activity, ask, desk_for, proxied, residue, role, session
from test_redis_bad_input import HTTP, listening
from tools.servers import start
from tools.servers.packages import program

from fencelock import AcquireTimeout, BackendUnavailable, Client, ConfigurationError

SECRET = "s3cr3t-and-never-shown"
UNAVAILABLE, USAGE = 69, 64
RULE = "host all locked all scram-sha-256\n"


class Place(NamedTuple):
    """What a case may need."""

    server: Any
    stack: ExitStack

    def role(self, *rules: str, name: str = "worker", password: str = SECRET) -> str:
        return self.stack.enter_context(role(self.server, name, *rules, password=password))

    def through(self, url: str) -> tuple[Any, str]:
        return self.stack.enter_context(proxied(url))


@pytest.fixture(scope="module")
def group() -> Iterator[Any]:
    with start("postgres", settings={"max_connections": "30"}) as group:
        server = group.members[0]
        rules = server.data / "pg_hba.conf"
        rules.write_text(RULE + rules.read_text())
        ask(server, "SELECT pg_reload_conf()")
        with desk_for("blocking", group.url) as desk:
            desk(desk.acquire("warm up").release)
        ask(server, "GRANT USAGE ON SCHEMA fencelock TO PUBLIC")
        ask(server, "GRANT ALL ON ALL TABLES IN SCHEMA fencelock TO PUBLIC")
        yield group


@pytest.fixture
def place(group: Any) -> Iterator[Place]:
    server = group.members[0]
    with ExitStack() as stack:
        yield Place(server, stack)
    wait_until(lambda: not activity(server), "nobody is connected")
    assert residue(server) == []


# What the server does not let through -----------------------------------------------------------------


def wrong_password(place: Place) -> str:
    return place.role(name="locked").replace(SECRET, SECRET + "x")


def silent(place: Place) -> str:
    proxy, url = place.through(with_password(place))
    proxy.blackhole()
    return url


def with_password(place: Place) -> str:
    return str(place.server.url).replace("fencelock@", f"fencelock:{SECRET}@")


def redis(place: Place) -> str:
    other = place.stack.enter_context(start("redis")).members[0]
    return f"postgresql://fencelock:{SECRET}@{other.address}/fencelock"


def web(place: Place) -> str:
    return f"postgresql://fencelock:{SECRET}@{place.stack.enter_context(listening(HTTP))}/fencelock"


def nobody(place: Place) -> str:
    proxy, url = place.through(with_password(place))
    proxy.refuse()
    return url


def full(place: Place) -> str:
    """For this role there is no connection at all."""
    return place.role("ALTER ROLE worker CONNECTION LIMIT 0")


def too_many(place: Place) -> str:
    """All are taken, but those that are kept for superusers."""
    url = place.role()
    while True:
        try:
            taken = place.stack.enter_context(closing(session(place.server)))
        except Exception:
            return url
        del taken


class Case(NamedTuple):
    """A mistake, and words that the message must have."""

    url: Callable[[Place], str]
    says: str


READ_ONLY = "ALTER ROLE worker SET default_transaction_read_only = on"
IMPATIENT = "ALTER ROLE worker SET statement_timeout = '1ms'"
CASES = {
    "wrong password": Case(wrong_password, "password is wrong"),
    "no password": Case(lambda p: p.role(name="locked").replace(f":{SECRET}", ""), "asks for a password"),
    "unknown role": Case(lambda p: with_password(p).replace("fencelock:", "nobody:"), "nobody"),
    "a role that may not log in": Case(lambda p: p.role("ALTER ROLE worker NOLOGIN"), "log in"),
    "missing database": Case(lambda p: with_password(p)[: -len("fencelock")] + "nowhere", "no such database"),
    "read-only role": Case(lambda p: p.role(READ_ONLY), "read-only"),
    "one that says nothing": Case(silent, "no answer"),
    "Redis": Case(redis, "no answer"),
    "a web server": Case(web, "no PostgreSQL"),
    "connection refused": Case(nobody, "refused"),
    "no connection for this role": Case(full, "connection"),
    "no such host": Case(lambda p: f"postgresql://w:{SECRET}@no-such-host.invalid/d", "no-such-host.invalid"),
    "no such socket": Case(lambda p: f"postgresql:///d?host=/no/where&user=w&password={SECRET}", "/no/where"),
    "TLS to a server without it": Case(lambda p: with_password(p) + "?sslmode=require", "SSL"),
    "missing rights": Case(
        lambda p: (p.role("REVOKE ALL ON fencelock.queue FROM PUBLIC") and again(p)) or "", "may not"
    ),
}


def again(place: Place) -> str:
    """Give the rights back in the end."""
    place.stack.callback(ask, place.server, "GRANT ALL ON fencelock.queue TO PUBLIC")
    return f"postgresql://worker:{SECRET}@{place.server.address}/fencelock"


def one_line(error: BaseException) -> str:
    text = str(error)
    assert len(text.splitlines()) == 1, text
    assert len(text) < 400
    while error is not None:
        assert SECRET not in str(error) + repr(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return text


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_unavailable_in_one_line_that_names_the_cause(
    place: Place, case: Case, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with desk_for(flavour, case.url(place)) as desk:
        assert SECRET not in repr(desk.locks)
        assert SECRET not in repr(desk.locks._session.backend)
        lock = desk.locks.lock("job", ttl=30)
        for attempt in (lock.try_acquire, lambda: lock.acquire(timeout=0.5)):
            with pytest.raises(BackendUnavailable) as caught:
                desk(attempt)
            assert case.says.lower() in one_line(caught.value).lower()
    assert SECRET not in caplog.text


TOLD = ["wrong password", "unknown role", "missing database", "read-only role", "a web server"]
TOLD += ["connection refused", "no connection for this role", "missing rights"]


@pytest.mark.parametrize("case", [CASES[name] for name in TOLD], ids=TOLD)
def test_the_command_line_says_so_in_one_line(place: Place, case: Case) -> None:
    url = case.url(place)
    commands = [["show", "job"], ["run", "--wait", "0.5", "job", "--", "echo", "granted"]]
    for command in commands[case.says == "read-only" :]:  # whoever may only read may look
        done = fencelock_command("", command[0], "--url", url, *command[1:])
        assert done.returncode == UNAVAILABLE, done.stderr
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert case.says.lower() in done.stderr.lower()
        assert SECRET not in done.stderr
        assert "Traceback" not in done.stderr


def test_no_connection_is_left(place: Place, flavour: str) -> None:
    """It is told so, and goes on when there are some again."""
    with ExitStack() as stack:
        url = too_many(place._replace(stack=stack))
        with desk_for(flavour, url) as desk:
            with pytest.raises(BackendUnavailable) as caught:
                desk(desk.locks.lock("job").try_acquire)
            assert "connection" in one_line(caught.value)
    with desk_for(flavour, place.server.url) as desk:
        assert desk(desk.acquire("job", timeout=30).release)


def test_a_waiter_rides_out_a_moment_without_connections(place: Place, flavour: str) -> None:
    url = place.role()
    with desk_for(flavour, url) as desk:
        ask(place.server, "ALTER ROLE worker CONNECTION LIMIT 0")
        waits = desk.waiting("job", timeout=30)
        time.sleep(0.5)
        assert not waits.done()
        ask(place.server, "ALTER ROLE worker CONNECTION LIMIT -1")
        assert desk(waits.result(30).release)


# What is wrong with the URL ---------------------------------------------------------------------------

WRONG = {
    "a pool size that is no number": (f"postgresql://w:{SECRET}@127.0.0.1/d?pool_size=x", "pool_size"),
    "a pool of none": (f"postgresql://w:{SECRET}@127.0.0.1/d?pool_size=0", "pool_size"),
    "a huge pool": (f"postgresql://w:{SECRET}@127.0.0.1/d?pool_size=100000", "pool_size"),
    "a statement as schema": (f"postgresql://w:{SECRET}@127.0.0.1/d?schema=a;b", "schema"),
    "a quote in the schema": (f"postgresql://w:{SECRET}@127.0.0.1/d?schema=a%22b", "schema"),
    "an empty schema": (f"postgresql://w:{SECRET}@127.0.0.1/d?schema=", "schema"),
    "a schema that is too long": (f"postgresql://w:{SECRET}@127.0.0.1/d?schema={'a' * 64}", "schema"),
    "an unknown option": (f"postgresql://w:{SECRET}@127.0.0.1/d?nonsense=1", "nonsense"),
    "an unknown option beside the password": (
        f"postgresql://127.0.0.1/d?password={SECRET}&colour=red",
        "colour",
    ),
    "a port that is no number": (f"postgresql://w:{SECRET}@127.0.0.1:pg/d", "127.0.0.1"),
    "a port that is too high": (f"postgresql://w:{SECRET}@127.0.0.1:99999/d", "127.0.0.1"),
    "a fragment": (f"postgresql://w:{SECRET}@127.0.0.1/d#1", "#"),
    "a hash in the password": (f"postgresql://w:a#{SECRET}@127.0.0.1/d", "%23"),
    "a broken IPv6 address": (f"postgresql://w:{SECRET}@[::1/d", "::1"),
}


@pytest.mark.parametrize(("url", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_url_is_a_configuration_error(url: str, says: str, flavour: str) -> None:
    def use() -> None:
        with desk_for(flavour, url) as desk:
            desk.acquire("job", timeout=1)

    with pytest.raises(ConfigurationError) as caught:
        use()
    assert says.lower() in one_line(caught.value).lower()


USED = ["a pool size that is no number", "a statement as schema", "an unknown option", "a fragment"]


@pytest.mark.parametrize(("url", "says"), [WRONG[name] for name in USED], ids=USED)
def test_the_command_line_says_what_is_wrong_with_the_url(url: str, says: str) -> None:
    done = fencelock_command("", "show", "job", "--url", url)
    assert done.returncode == USAGE, done.stderr
    assert says.lower() in done.stderr.lower()
    assert SECRET not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


# Roles with settings of their own ---------------------------------------------------------------------


def test_a_role_whose_statements_may_take_a_millisecond_only(place: Place, flavour: str) -> None:
    """Some steps are done in time, others are not. What is not done says why, and nothing is left of it."""
    with desk_for(flavour, place.role(IMPATIENT)) as desk, desk_for(flavour, place.server.url) as other:
        with closing(session(place.server)) as latch:  # so that some are too slow for certain
            latch.execute("BEGIN")
            latch.execute("SELECT 1 FROM fencelock.buckets FOR UPDATE")
            for attempt in (desk.locks.lock("job").try_acquire, lambda: desk.acquire("job", timeout=0.5)):
                with pytest.raises(BackendUnavailable) as caught:
                    desk(attempt)
                assert "statement_timeout" in one_line(caught.value)
            latch.execute("ROLLBACK")
        for _ in range(20):
            try:
                lease = desk.acquire("job", timeout=0.5)
            except BackendUnavailable as error:
                assert "statement_timeout" in one_line(error)
            except AcquireTimeout:
                continue  # behind one that gave up, and whose clean-up takes more than one try
            else:
                assert [entry.owner for entry in other.inspect("job").holders] == [lease.owner]
                other(other.locks.force_release, "job")
                with suppress(BackendUnavailable):
                    assert not desk(lease.release)
        wait_until(lambda: not residue(place.server), "nothing is left", 40)


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_any_isolation_level_will_do(place: Place, flavour: str, level: str) -> None:
    """Serialization failures are retried, and nobody is forgotten."""
    url = place.role(f"ALTER ROLE worker SET default_transaction_isolation = '{level}'")
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        number = 0

        def section() -> None:
            nonlocal number
            seen = number
            time.sleep(0.001)
            number = seen + 1

        def threads(who: Any) -> None:
            for _ in range(15):
                lease = who.locks.lock("job", ttl=30).acquire(timeout=60)
                section()
                assert lease.release()

        async def tasks(who: Any) -> None:
            for _ in range(15):
                lease = await who.locks.lock("job", ttl=30).acquire(timeout=60)
                await asyncio.to_thread(section)
                assert await lease.release()

        work = tasks if flavour == "asyncio" else threads
        for one in [who.begin(work, who) for who in (desk, other) for _ in range(4)]:
            one.result(120)
        assert number == 8 * 15
        # A reader that leaves beside another one must not forget the writer behind them.
        for _ in range(10):
            reads = [desk(desk.locks.rwlock("page", ttl=60).read().acquire) for _ in range(4)]
            write = other.begin(other.locks.rwlock("page", ttl=60).write().acquire)
            wait_until(lambda: desk.inspect("page").waiters, "the writer waits")
            leaving = [desk.begin(lease.release) for lease in reads]
            assert all(one.result(30) for one in leaving)
            assert other(write.result(30).release)


# A real standby ---------------------------------------------------------------------------------------


@contextmanager
def standby(folder: Path) -> Iterator[tuple[Any, Any]]:
    """A primary and a hot standby, which is started in the data folder of another server."""
    with start("postgres") as primary, start("postgres") as other:
        first, second = primary.members[0], other.members[0]
        with (first.data / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all all trust\n")
        ask(first, "SELECT pg_reload_conf()")
        with Client(first.url) as locks:
            locks.lock("warm up").acquire().release()
        second.stop()
        subprocess.run(["rm", "-rf", str(second.data)], check=True, timeout=30)
        second.run(
            [
                *(program("pg_basebackup"), "-h", first.host, "-p", str(first.port), "-U", "fencelock"),
                *("-D", str(second.data), "-R", "-X", "stream", "-c", "fast"),
            ]
        )
        second.start()
        second.wait()
        yield first, second


def test_a_hot_standby_grants_nothing(tmp_path: Path) -> None:
    with standby(tmp_path) as (first, second):
        for flavour in FLAVOURS:
            with desk_for(flavour, first.url) as desk, desk_for(flavour, second.url) as reader:
                lease = desk.acquire("job", ttl=30)
                for attempt in (
                    reader.locks.lock("free").try_acquire,
                    lambda reader=reader: reader.locks.lock("free").acquire(timeout=0.5),
                    lambda reader=reader: reader.locks.force_release("job"),
                ):
                    with pytest.raises(BackendUnavailable) as caught:
                        reader(attempt)
                    assert "read-only" in one_line(caught.value)
                wait_until(lambda reader=reader: reader.inspect("job").holders, "it shows who holds")
                assert desk(lease.release)
        done = fencelock_command("", "run", "--url", second.url, "--try", "job", "--", "echo", "granted")
        assert done.returncode == UNAVAILABLE, done.stderr
        assert "read-only" in done.stderr
        assert done.stdout == ""
        both = f"postgresql://fencelock@{second.host}:{second.port},{first.host}:{first.port}/fencelock"
        with Client(f"{both}?target_session_attrs=read-write") as locks:
            locks.lock("job").acquire(timeout=30).release()
