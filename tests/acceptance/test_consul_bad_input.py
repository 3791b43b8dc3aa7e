"""Bad input: each is one line that names the cause, without the token, and never a grant.

Both flavours, and the command line: exit status 69 (unavailable) or 64 (usage), one line, no traceback.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli_helpers import fencelock_command
from consul_desk import FLAVOURS, ask, desk_for, nothing_left, requests
from tests.conformance.rows import certificate
from tools.servers import ports, start

from fencelock import BackendUnavailable, Client, ConfigurationError

SECRET = "5ec4e700-0000-4000-8000-000000000000"
MASTER = "3a57e400-0000-4000-8000-000000000000"
UNAVAILABLE, USAGE = 69, 64
HTTP = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
ABSENT = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>"
SSH = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"


class Relay:
    """Gives one answer to all, or passes what it hears on to a server; in TLS, if it has a context."""

    def __init__(self, answer: bytes, server: Any, context: ssl.SSLContext | None) -> None:
        self._answer = answer
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._listening = self._loop.run_until_complete(
            asyncio.start_server(self._talk, sock=self._socket, ssl=context)
        )
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._server is None:
                await reader.read(65536)
                writer.write(self._answer)
                await writer.drain()
                return
            back, forth = await asyncio.open_connection(self._server.host, self._server.port)
            try:
                await asyncio.gather(self._copy(reader, forth), self._copy(back, writer))
            finally:
                forth.transport.abort()
        except OSError:
            return
        finally:
            writer.transport.abort()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    def close(self) -> None:
        async def end() -> None:
            self._listening.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0.01)  # the loop closes the sockets in its next turn

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def relaying(answer: bytes = b"", server: Any = None, context: ssl.SSLContext | None = None) -> Iterator[str]:
    relay = Relay(answer, server, context)
    try:
        yield relay.address
    finally:
        relay.close()


class Place(NamedTuple):
    """What a case may need."""

    server: Any
    folder: Path
    stack: ExitStack


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    acl = {"enabled": True, "default_policy": "allow", "tokens": {"master": MASTER}}
    with start("consul", settings={"acl": json.dumps(acl)}) as group:
        server = group.members[0]
        rules = {
            "none": 'key_prefix "" { policy = "deny" } session_prefix "" { policy = "deny" }',
            "read": 'key_prefix "" { policy = "read" } session_prefix "" { policy = "write" }',
            "keys": 'key_prefix "" { policy = "write" } session_prefix "" { policy = "deny" }',
            "sessions": 'session "fencelock" { policy = "write" } node_prefix "" { policy = "read" }',
            "locks": 'key_prefix "" { policy = "deny" } key_prefix "fencelock/" { policy = "write" } '
            'session_prefix "" { policy = "deny" } session "fencelock" { policy = "write" } '
            'node_prefix "" { policy = "deny" } node "fencelock" { policy = "write" } '
            'agent_prefix "" { policy = "deny" }',
        }
        for name, rule in rules.items():
            status, said = ask(server, "PUT", "acl/policy", {"Name": name, "Rules": rule}, MASTER)
            assert status == 200, said
        yield server
        nothing_left(server, MASTER)


@pytest.fixture
def place(server: Any, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(server, tmp_path, stack)


def token(place: Place, policy: str) -> str:
    """Return the secret of a new token."""
    status, said = ask(place.server, "PUT", "acl/token", {"Policies": [{"Name": policy}]}, MASTER)
    assert status == 200, said
    return str(said["SecretID"])


def tls(place: Place, *, client: bool = False) -> str:
    """Return where Consul is to be had by TLS only."""
    settings = certificate(place.folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings["tls-cert-file"], settings["tls-key-file"])
    if client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(settings["tls-cert-file"])
    return place.stack.enter_context(relaying(server=place.server, context=context))


def trusted(place: Place) -> str:
    return f"cacert={place.folder / 'server.crt'}"


def nobody(place: Place) -> str:
    port = ports.take()
    place.stack.callback(ports.give_back, port)
    return f"127.0.0.1:{port}"


class Case(NamedTuple):
    """A mistake, what it leads to, and words that the message must have."""

    url: Callable[[Place], str]
    says: str
    may_pass: bool = False


UNREACHED = {
    "wrong token": Case(lambda p: f"consul://:{SECRET}@{p.server.address}", "does not know this token"),
    "no rights": Case(lambda p: f"consul://:{token(p, 'none')}@{p.server.address}", "session write"),
    "keys only": Case(lambda p: f"consul://:{token(p, 'keys')}@{p.server.address}", "session write"),
    "reading only": Case(lambda p: f"consul://:{token(p, 'read')}@{p.server.address}", "key_prefix write"),
    "rights elsewhere": Case(
        lambda p: f"consul://:{token(p, 'locks')}@{p.server.address}/other", "key_prefix write"
    ),
    "no such datacentre": Case(lambda p: f"consul://{p.server.address}?dc=mars", "datacentre"),
    "TLS to a plain port": Case(lambda p: f"consul://:{SECRET}@{p.server.address}?tls=yes", "TLS"),
    "plain to a TLS port": Case(lambda p: f"consul://:{SECRET}@{tls(p)}", "TLS", True),
    "untrusted certificate": Case(lambda p: f"consul://:{SECRET}@{tls(p)}?tls=yes", "certificate"),
    "a certificate for somebody else": Case(
        lambda p: f"consul://{tls(p)}?{trusted(p)}&server_name=other.example", "certificate"
    ),
    "no certificate of our own": Case(
        lambda p: f"consul://{tls(p, client=True)}?{trusted(p)}", "cert=", True
    ),
    "a web server": Case(lambda p: f"consul://{p.stack.enter_context(relaying(HTTP))}", "Consul's protocol"),
    "a web page": Case(lambda p: f"consul://{p.stack.enter_context(relaying(PAGE))}", "Consul's protocol"),
    "an SSH server": Case(lambda p: f"consul://{p.stack.enter_context(relaying(SSH))}", "Consul's protocol"),
    "connection refused": Case(lambda p: f"consul://{nobody(p)}", "refused", True),
    "no such host": Case(lambda p: "consul://nowhere.invalid:8500", "nowhere.invalid", True),
}


def one_line(error: BaseException) -> str:
    text = str(error)
    assert len(text.splitlines()) == 1, text
    assert len(text) < 300, text
    assert SECRET not in text
    return text


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("case", UNREACHED.values(), ids=UNREACHED)
def test_what_is_wrong_is_said_in_one_line(place: Place, case: Case, flavour: str) -> None:
    with desk_for(flavour, case.url(place)) as desk:
        assert SECRET not in repr(desk.locks)
        lock = desk.locks.lock("job", ttl=30)
        # What may pass is tried for as long as one may try; the rest is said as soon as it is known.
        attempts = [lambda: lock.acquire(timeout=0.5)]
        if not case.may_pass:
            attempts = [lambda: lock.acquire(timeout=10), lock.try_acquire]
        for attempt in attempts:
            with pytest.raises(BackendUnavailable) as caught:
                desk(attempt)
            assert case.says.lower() in one_line(caught.value).lower()
            assert caught.value.transient is case.may_pass
    assert requests(place.server, MASTER) == []
    for left in ask(place.server, "GET", "session/list", token=MASTER)[1]:
        ask(place.server, "PUT", f"session/destroy/{left['ID']}", token=MASTER)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("answer", [HTTP, PAGE, SSH, ABSENT], ids=["405", "200", "ssh", "404"])
def test_something_else_is_not_taken_for_a_free_lock(answer: bytes, flavour: str) -> None:
    with relaying(answer) as address, desk_for(flavour, f"consul://{address}") as desk:
        for look in (lambda: desk.inspect("job"), lambda: desk(desk.locks.list)):
            with pytest.raises(BackendUnavailable, match="Consul's protocol"):
                look()


TOLD = ["wrong token", "no rights", "untrusted certificate", "a web server", "connection refused"]


@pytest.mark.parametrize("case", [UNREACHED[name] for name in TOLD], ids=TOLD)
def test_the_command_line_says_so_in_one_line(place: Place, case: Case) -> None:
    done = fencelock_command(
        "", "run", "--url", case.url(place), "--wait", "1", "job", "--", "echo", "granted"
    )
    assert done.returncode == UNAVAILABLE, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert case.says.lower() in done.stderr.lower()
    assert SECRET not in done.stderr


WRONG = {
    "an unknown option": (f"consul://:{SECRET}@127.0.0.1?datacenter=x", "datacenter"),
    "a token as an option": (f"consul://127.0.0.1?token={SECRET}", "token"),
    "an empty option": (f"consul://:{SECRET}@127.0.0.1?dc=", "option"),
    "a user": (f"consul://me:{SECRET}@127.0.0.1", ":TOKEN@"),
    "a token without a colon": (f"consul://{SECRET}@127.0.0.1", ":TOKEN@"),
    "a token with a line break": (f"consul://:{SECRET}%0Ax@127.0.0.1", "token"),
    "a port that is no number": (f"consul://:{SECRET}@127.0.0.1:http", "address"),
    "a port that is too high": (f"consul://:{SECRET}@127.0.0.1:99999", "address"),
    "an empty host": (f"consul://:{SECRET}@one:1,,two:2", "address"),
    "a certificate without its key": (f"consul://:{SECRET}@127.0.0.1?cert=/nowhere/crt", "needs both"),
    "TLS and none": (f"consul://:{SECRET}@127.0.0.1?tls=no&cacert=/nowhere/ca", "TLS"),
    "a name without TLS": (f"consul://:{SECRET}@127.0.0.1?tls=no&server_name=x", "tls=no"),
    "a wrong yes or no": (f"consul://:{SECRET}@127.0.0.1?tls=perhaps", "tls"),
    "a prefix that is no path": (f"consul://:{SECRET}@127.0.0.1/a//b", "prefix"),
    "a prefix that leads up": (f"consul://:{SECRET}@127.0.0.1/a/../b", "prefix"),
    "a file that is not there": (f"consul://:{SECRET}@127.0.0.1:1?cacert=/nowhere/ca.pem", "/nowhere/ca.pem"),
}


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("url", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_url_is_a_configuration_error(url: str, says: str, flavour: str) -> None:
    def use() -> None:
        with desk_for(flavour, url) as desk:
            desk.acquire("job", timeout=1)

    with pytest.raises(ConfigurationError) as caught:
        use()
    assert says.lower() in one_line(caught.value).lower()


def test_the_command_line_says_what_is_wrong_with_the_url() -> None:
    done = fencelock_command("", "ls", "--url", WRONG["a token as an option"][0])
    assert done.returncode == USAGE, done.stderr
    assert SECRET not in done.stderr + done.stdout


def test_a_token_is_not_shown() -> None:
    with Client(f"consul://:{SECRET}@127.0.0.1") as locks:
        for thing in (locks, locks._session.backend, locks._session.backend._address):  # type: ignore[attr-defined]
            assert SECRET not in repr(thing)


# What is enough ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_rights_that_the_page_names_will_do(place: Place, flavour: str) -> None:
    url = f"consul://:{token(place, 'locks')}@{place.server.address}"
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        held = desk.acquire("job", ttl=30)
        waits = other.waiting("job", ttl=30)
        while not desk.inspect("job").waiters:
            pass
        assert [state.name for state in desk(desk.locks.list)] == ["job"]
        assert desk(held.release)
        lease = waits.result(10)
        assert other(lease.verify)
        assert [entry.owner for entry in desk(desk.locks.force_release, "job")] == [lease.owner]
        assert desk(desk.locks.list) == []
    done = fencelock_command("", "doctor", url)
    assert done.returncode in {0, 1}, done.stderr
    assert "may not read the agent's settings" in " ".join(done.stdout.split())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_node_that_sessions_belong_to(place: Place, flavour: str) -> None:
    """Whoever may not register it says so; once it is there nobody needs to."""
    ask(place.server, "PUT", "catalog/deregister", {"Node": "fencelock"}, MASTER)
    url = f"consul://:{token(place, 'sessions')}@{place.server.address}"
    with desk_for(flavour, url) as desk, pytest.raises(BackendUnavailable) as caught:
        desk.acquire("job", ttl=30)
    assert "node write" in one_line(caught.value)
    with desk_for(flavour, f"consul://{place.server.address}") as desk:
        lease = desk.acquire("job", ttl=30)
        (session,) = ask(place.server, "GET", "session/list", token=MASTER)[1]
        assert (session["Node"], session["NodeChecks"], session["LockDelay"]) == ("fencelock", [], 0)
        assert desk(lease.release)
    with desk_for(flavour, url) as desk:
        assert desk(desk.acquire("job", ttl=30).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls_with_a_certificate_of_our_own(place: Place, flavour: str) -> None:
    """Calls and queries that wait, both."""
    address = tls(place, client=True)
    own = f"cert={place.folder / 'server.crt'}&key={place.folder / 'server.key'}"
    url = f"consul://:{MASTER}@{address}?{trusted(place)}&{own}&dc=dc1"
    with desk_for(flavour, url) as desk, desk_for(flavour, url) as other:
        held = desk.acquire("job", ttl=30)
        waits = other.waiting("job", ttl=30)
        while not desk.inspect("job").waiters:
            pass
        assert desk(held.release)
        lease = waits.result(10)
        assert lease.token > held.token
        assert other(lease.release)


def test_doctor_says_what_there_is_to_say(place: Place) -> None:
    said = fencelock_command("", "doctor", "--json", f"consul://:{MASTER}@{place.server.address}")
    assert said.returncode == 0, said.stderr
    assert MASTER not in said.stdout
    findings = {one["subject"]: one for one in json.loads(said.stdout)["findings"]}
    assert {name: one["severity"] for name, one in findings.items() if name != "latency"} == {
        "leader": "ok",
        "servers": "warning",
        "addresses": "notice",
        "version": "ok",
        "sessions": "ok",
        "access": "notice",
        "clocks": "ok",
        "clock": "ok",
    }
    assert place.server.version() in findings["version"]["detail"]
