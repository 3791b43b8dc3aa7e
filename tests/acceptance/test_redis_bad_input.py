"""Bad input: each is one line that names the cause, without the password, and never a grant.

Both flavours, and the command line: exit status 69 (unavailable) or 64 (usage), one line, no traceback.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from cli_helpers import fencelock_command
from crew import wait_until
from redis_desk import FLAVOURS, desk_for, residue
from tests.conformance.rows import certificate
from tools.servers import ports, start

from fencelock import BackendUnavailable, Client, ConfigurationError, FencelockError
from fencelock.testing.conformance.expect import took

SECRET = "s3cr3t-and-never-shown"
UNAVAILABLE, USAGE = 69, 64


class Listener:
    """Something that is no Redis: it takes connections, and gives one answer to all, or none."""

    def __init__(self, answer: bytes) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._answer = answer
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                return
            self._taken.append(taken)
            if self._answer:
                threading.Thread(target=self._talk, args=(taken,), daemon=True).start()

    def _talk(self, taken: socket.socket) -> None:
        try:
            taken.recv(65536)
            taken.sendall(self._answer)
            taken.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        for taken in self._taken:
            taken.close()


@contextmanager
def listening(answer: bytes = b"") -> Iterator[str]:
    listener = Listener(answer)
    try:
        yield listener.address
    finally:
        listener.close()


class Place(NamedTuple):
    """What a case may need."""

    server: Any
    folder: Path
    stack: ExitStack


def with_password(place: Place) -> str:
    other = place.stack.enter_context(start("redis")).members[0]
    other.ask("CONFIG", "SET", "requirepass", SECRET)
    return str(other.address)


def with_tls(place: Place) -> str:
    settings, port = certificate(place.folder), ports.take()
    place.stack.callback(ports.give_back, port)
    place.stack.enter_context(start("redis", settings={**settings, "tls-port": str(port)}))
    return f"127.0.0.1:{port}"


def with_user(place: Place, *rules: str) -> str:
    place.server.ask("ACL", "SETUSER", "worker", "on", f">{SECRET}", *rules)
    return f"redis://worker:{SECRET}@{place.server.address}"


def a_replica(place: Place) -> str:
    replica = place.stack.enter_context(start("redis")).members[0]
    replica.ask("REPLICAOF", place.server.host, place.server.port)
    wait_until(lambda: not replica.is_primary(), "it is a replica")
    return f"redis://{replica.address}"


def out_of_memory(place: Place) -> str:
    place.server.ask("CONFIG", "SET", "maxmemory", "1")
    return f"redis://{place.server.address}"


def nobody(place: Place) -> str:
    port = ports.take()
    place.stack.callback(ports.give_back, port)
    return f"redis://127.0.0.1:{port}"


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"


class Case(NamedTuple):
    """A mistake, what it leads to, and words that the message must have."""

    url: Callable[[Place], str]
    says: str


UNREACHED = {
    "wrong password": Case(lambda p: f"redis://:{SECRET}x@{with_password(p)}", "password"),
    "wrong user": Case(lambda p: f"redis://nobody:{SECRET}@{p.server.address}", "password"),
    "wrong password of a user": Case(
        lambda p: with_user(p, "~*", "&*", "+@all").replace(SECRET, SECRET + "x"), "password"
    ),
    "missing password": Case(lambda p: f"redis://{with_password(p)}", "asks for a password"),
    "no such database": Case(lambda p: f"redis://{p.server.address}/99", "database"),
    "TLS to a plain port": Case(lambda p: f"rediss://:{SECRET}@{p.server.address}", "TLS"),
    "plain to a TLS port": Case(lambda p: f"redis://:{SECRET}@{with_tls(p)}", "TLS"),
    "plain to a TLS port, no password": Case(lambda p: f"redis://{with_tls(p)}", "TLS"),
    "untrusted certificate": Case(lambda p: f"rediss://:{SECRET}@{with_tls(p)}", "certificate"),
    "certificate of another": Case(
        lambda p: (
            f"rediss://{with_tls(p)}".replace("127.0.0.1", "localhost")
            + f"?ssl_ca_certs={quote(str(p.folder / 'server.crt'))}"
        ),
        "certificate",
    ),
    "a web server": Case(lambda p: f"redis://{p.stack.enter_context(listening(HTTP))}", "Redis"),
    "a web server, with a password": Case(
        lambda p: f"redis://:{SECRET}@{p.stack.enter_context(listening(HTTP))}", "Redis"
    ),
    "an SSH server": Case(lambda p: f"redis://{p.stack.enter_context(listening(SSH))}", "Redis"),
    "TLS to a web server": Case(lambda p: f"rediss://{p.stack.enter_context(listening(HTTP))}", "TLS"),
    "one that says nothing": Case(lambda p: f"redis://{p.stack.enter_context(listening())}", "no answer"),
    "one that says nothing, with a password": Case(
        lambda p: f"redis://:{SECRET}@{p.stack.enter_context(listening())}", "no answer"
    ),
    "connection refused": Case(nobody, "refused"),
    "unknown host": Case(lambda p: f"redis://:{SECRET}@no-such-host.invalid", "no-such-host.invalid"),
    "no such socket": Case(lambda p: f"unix://{quote(str(p.folder))}/redis.sock", "no such file"),
    "a replica": Case(a_replica, "replica"),
    "out of memory": Case(out_of_memory, "memory"),
    "no permission for scripts": Case(lambda p: with_user(p, "~*", "&*", "+@all", "-@scripting"), "may not"),
    "no permission for the keys": Case(lambda p: with_user(p, "~other*", "&*", "+@all"), "may not"),
    "no permission for a command of the script": Case(
        lambda p: with_user(p, "~*", "&*", "+@all", "-hset"), "may not"
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        server = stack.enter_context(start("redis")).members[0]
        yield Place(server, tmp_path, stack)


def one_line(error: BaseException, url: str) -> str:
    text = str(error)
    assert len(text.splitlines()) == 1
    assert len(text) < 400
    assert SECRET not in text
    assert SECRET not in repr(error)
    return text


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", UNREACHED.values(), ids=UNREACHED)
def test_it_is_unavailable_in_one_line_that_names_the_cause(place: Place, case: Case, flavour: str) -> None:
    url = case.url(place)
    with desk_for(flavour, url) as desk:
        assert SECRET not in repr(desk.locks)
        lock = desk.locks.lock("job", ttl=30)
        for attempt in (lock.try_acquire, lambda: lock.acquire(timeout=0.5)):
            with pytest.raises(BackendUnavailable) as caught:
                desk(attempt)
            assert case.says.lower() in one_line(caught.value, url).lower()
    place.server.ask("CONFIG", "SET", "maxmemory", "0")
    assert residue(place.server) == []


TOLD = ["wrong password", "no such database", "plain to a TLS port", "untrusted certificate", "a web server"]
TOLD += ["connection refused", "a replica", "out of memory", "no permission for a command of the script"]


@pytest.mark.parametrize("case", [UNREACHED[name] for name in TOLD], ids=TOLD)
def test_the_command_line_says_so_in_one_line(place: Place, case: Case) -> None:
    url = case.url(place)
    done = fencelock_command("", "run", "--url", url, "--wait", "1", "job", "--", "echo", "granted")
    assert done.returncode == UNAVAILABLE, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert case.says.lower() in done.stderr.lower()
    assert SECRET not in done.stderr
    assert "Traceback" not in done.stderr


WRONG = {
    "a database that is no number": (f"redis://:{SECRET}@127.0.0.1:6379/first", "database"),
    "a negative database": (f"redis://:{SECRET}@127.0.0.1/-1", "database"),
    "two databases": (f"redis://:{SECRET}@127.0.0.1/1/2", "database"),
    "an unknown option": (f"redis://:{SECRET}@127.0.0.1?sokcet_timeout=5", "sokcet_timeout"),
    "an unknown option beside the password": (f"redis://127.0.0.1?password={SECRET}&colour=red", "colour"),
    "a port that is no number": (f"redis://:{SECRET}@127.0.0.1:redis", "address"),
    "a port that is too high": (f"redis://:{SECRET}@127.0.0.1:99999", "address"),
    "an empty host": (f"redis://:{SECRET}@:6379", "address"),
    "several hosts": (f"redis://:{SECRET}@one:1,two:2", "address"),
    "a broken IPv6 address": (f"redis://:{SECRET}@[::1", "address"),
    "a fragment": (f"redis://:{SECRET}@127.0.0.1#1", "#"),
    "a slash in the password": (f"redis://:pa/{SECRET}@127.0.0.1:6379/0", "%2F"),
    "a question mark in the password": (f"redis://:pa?{SECRET}@127.0.0.1:6379/0", "%3F"),
    "a hash in the password": (f"redis://:pa#{SECRET}@127.0.0.1:6379/0", "%23"),
    "no path of a socket": ("unix://", "unix:///"),
    "an empty path of a socket": (f"unix://:{SECRET}@/", "unix:///"),
    "a relative path of a socket": ("unix://redis.sock", "unix:///"),
    "a wrong yes or no": (f"rediss://:{SECRET}@127.0.0.1?ssl_check_hostname=perhaps", "ssl_check_hostname"),
    "a certificate file that is not there": (
        f"rediss://:{SECRET}@127.0.0.1?ssl_ca_certs=/nowhere/ca.pem",
        "/nowhere/ca.pem",
    ),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("url", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_url_is_a_configuration_error(url: str, says: str, flavour: str) -> None:
    def use() -> None:
        with desk_for(flavour, url) as desk:
            desk.acquire("job", timeout=1)

    with pytest.raises(ConfigurationError) as caught:
        use()
    assert says.lower() in one_line(caught.value, url).lower()


USED = ["a database that is no number", "an unknown option", "no path of a socket", "a slash in the password"]


@pytest.mark.parametrize(("url", "says"), [WRONG[name] for name in USED], ids=USED)
def test_the_command_line_says_what_is_wrong_with_the_url(url: str, says: str) -> None:
    done = fencelock_command("", "ls", "--url", url)
    assert done.returncode == USAGE, done.stderr
    assert says.lower() in done.stderr.lower()
    assert SECRET not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_password_is_not_shown_wherever_it_stands() -> None:
    for url in (f"redis://:{SECRET}@127.0.0.1", f"redis://127.0.0.1?password={SECRET}"):
        with Client(url) as locks:
            assert SECRET not in repr(locks)
            assert SECRET not in repr(locks._session.backend)


def test_ls_show_and_break_of_what_cannot_be_reached(place: Place) -> None:
    url = f"redis://:{SECRET}@{with_password(place)}".replace(SECRET, SECRET + "x")
    for command in (["ls"], ["show", "job"], ["break", "--yes", "job"]):
        done = fencelock_command("", *command, "--url", url)
        assert done.returncode == UNAVAILABLE, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "password" in done.stderr
        assert SECRET not in done.stderr + done.stdout


# What is missing, and does not matter -----------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_permission_for_channels_waiters_poll(scheme: str, flavour: str) -> None:
    """A new user of Redis 7 has none unless told: pushes do not come through, the poll behind them does."""
    with start(scheme) as group:
        server = group.members[0]
        server.ask("ACL", "SETUSER", "worker", "on", f">{SECRET}", "~*", "+@all", "resetchannels")
        url = f"redis://worker:{SECRET}@{server.address}"
        with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
            held = desk.acquire("job", ttl=30)
            waits = [other.waiting("job", ttl=30) for _ in range(3)]
            wait_until(lambda: len(desk.inspect("job").waiters) == 3, "they wait")
            assert desk(held.release), "a release that was one is told as a loss"
            for _ in range(3):
                done = wait_until(
                    lambda: next((wait for wait in waits if wait.done()), None), "the next has it"
                )
                waits.remove(done)
                assert other(done.result().release)
            assert residue(server) == []

            write = desk(desk.locks.rwlock("page", ttl=30).write().acquire)
            reads = [other.begin(other.locks.rwlock("page", ttl=30).read().acquire) for _ in range(3)]
            wait_until(lambda: len(desk.inspect("page").waiters) == 3, "they wait")
            assert desk(write.release)
            for read in reads:
                assert other(read.result(30).release)
            taken = desk.acquire("broken", ttl=30)
            (broken,) = other(other.locks.force_release, "broken")
            assert broken.owner == taken.owner
            assert residue(server) == []


@pytest.mark.timing
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_timeout_holds_while_another_tries_to_connect(flavour: str) -> None:
    """The one with more time tries for seconds."""
    with listening() as address, desk_for(flavour, f"redis://:{SECRET}@{address}") as desk:
        for _ in range(2):
            patient = desk.waiting("job", timeout=20)
            hasty = desk.begin(desk.locks.lock("job").try_acquire)
            started = time.monotonic()
            error = desk.waiting("job", timeout=0.3).exception(30)
            took(0.0, time.monotonic() - started, 0.3 + 1.5, "the wait")
            for failure in (error, patient.exception(30), hasty.exception(30)):
                assert isinstance(failure, BackendUnavailable)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_leases_survive_a_server_that_is_out_of_memory(place: Place, flavour: str) -> None:
    """Nothing new is granted, but what is held is renewed and released."""
    ttl = 1.5
    with desk_for(flavour, f"redis://{place.server.address}") as desk:
        leases = [desk.acquire("job", ttl=ttl)]
        # Several holders of one lock, of which one keeps the key for long: it needs no new expiry.
        leases.append(desk(desk.locks.rwlock("page", ttl=60).read().acquire))
        leases.append(desk(desk.locks.rwlock("page", ttl=ttl).read().acquire))
        place.server.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(FencelockError, match="memory"):
            desk(desk.locks.lock("another").try_acquire)
        time.sleep(2 * ttl)
        assert [lease.is_held() for lease in leases] == [True, True, True]
        assert all(desk(lease.verify) for lease in leases)
        assert all(desk(lease.release) for lease in leases)
        assert residue(place.server) == []
        place.server.ask("CONFIG", "SET", "maxmemory", "0")
        assert desk(desk.acquire("another").release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_strange_keys_of_others_are_left_alone(place: Place, flavour: str) -> None:
    """Whoever shares the database may have keys that look like ours."""
    for key in (
        "fencelock:{1}",
        "fencelock:{1}:",
        "fencelock:{x}:y",
        "fencelock:{300}::\\xff",
        "fencelock:{7}::foreign",
    ):
        place.server.ask("SET", key, "1")
    place.server.ask("EVAL", "return redis.call('SET', 'fencelock:{9}::\\255\\254', 'x')", "0")
    with desk_for(flavour, f"redis://{place.server.address}") as desk:
        lease = desk.acquire("job")
        assert [state.name for state in desk(desk.locks.list)] == ["job"]
        assert desk(lease.release)
        assert desk(desk.locks.list) == []
