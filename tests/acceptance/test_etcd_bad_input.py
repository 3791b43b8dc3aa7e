"""What is wrong with an etcd, in one line each; and what doctor, TLS and users make of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command
from etcd_desk import coded, keys
from redis_desk import FLAVOURS, Desk, desk_for
from tests.conformance.rows import certificate
from tools.servers import ports, start

from fencelock import BackendUnavailable, ConfigurationError

PASSWORD = "swordfish"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Any]:
    """An etcd with users: root, ann who may use locks, and bob who may not."""
    with start("etcd") as group:
        server = group.members[0]
        for user in ("root", "ann", "bob"):
            server.ask("auth/user/add", {"name": user, "password": PASSWORD})
        for role in ("root", "locks"):
            server.ask("auth/role/add", {"name": role})
        grant = {"permType": "READWRITE", "key": coded("fencelock/"), "range_end": coded("fencelock0")}
        server.ask("auth/role/grant", {"name": "locks", "perm": grant})
        server.ask("auth/user/grant", {"user": "root", "role": "root"})
        server.ask("auth/user/grant", {"user": "ann", "role": "locks"})
        server.ask("auth/enable", {})
        yield group


def address(group: Any) -> str:
    return str(group.members[0].address)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An etcd that speaks TLS beside plain HTTP: the port, and the certificate."""
    made = certificate(tmp_path_factory.mktemp("tls"))
    port = ports.take()
    try:
        settings = {
            "cert-file": made["tls-cert-file"],
            "key-file": made["tls-key-file"],
            "also-listen": f"https://127.0.0.1:{port}",
        }
        with start("etcd", settings=settings):
            yield f"127.0.0.1:{port}", made["tls-cert-file"]
    finally:
        ports.give_back(port)


def refusal(flavour: str, url: str, **terms: Any) -> BackendUnavailable:
    with desk_for(flavour, url) as desk:
        began = time.monotonic()
        with pytest.raises(BackendUnavailable) as raised:
            desk.acquire("job", **{"ttl": 5, "timeout": 5, **terms})
        assert time.monotonic() - began < terms.get("timeout", 5) + 10
    told = str(raised.value)
    assert "\n" not in told
    assert PASSWORD not in told
    assert len(told) < 200
    return raised.value


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(
    ("login", "words"),
    [
        ("ann:wrong@", "the user name or the password is wrong"),
        ("eve:wrong@", "the user name or the password is wrong"),
        (f"bob:{PASSWORD}@", "needs readwrite on the prefixes of its keys"),
        ("", "it asks for a user"),
    ],
)
def test_users(guarded: Any, flavour: str, login: str, words: str) -> None:
    error = refusal(flavour, f"etcd://{login}{address(guarded)}")
    assert words in str(error)
    assert not error.transient


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_user_with_the_right_to_its_keys(guarded: Any, flavour: str) -> None:
    with desk_for(flavour, f"etcd://ann:{PASSWORD}@{address(guarded)}") as desk:
        held = desk.acquire("job", ttl=5)
        wait = desk.waiting("job", ttl=5)
        while not desk.inspect("job").waiters:
            time.sleep(0.01)
        assert desk(held.release)
        assert desk(wait.result(10).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_user_where_there_are_none(flavour: str) -> None:
    with start("etcd") as group:
        error = refusal(flavour, f"etcd://ann:{PASSWORD}@{address(group)}")
        assert "it has no users" in str(error)
        assert keys(group.members[0]) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls(sealed: tuple[str, str], flavour: str) -> None:
    where, cert = sealed
    with desk_for(flavour, f"etcd://{where}?cacert={cert}") as desk:
        held = desk.acquire("job", ttl=5)
        wait = desk.waiting("job", ttl=5)
        while not desk.inspect("job").waiters:
            time.sleep(0.01)
        assert desk(held.release)
        assert desk(wait.result(10).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_certificates_and_their_lack(sealed: tuple[str, str], flavour: str, tmp_path: Path) -> None:
    where, cert = sealed
    unknown = refusal(flavour, f"etcd://{where}?tls=yes")
    assert "its certificate is not accepted" in str(unknown)
    assert not unknown.transient
    wrong_name = refusal(flavour, f"etcd://{where}?cacert={cert}&server_name=elsewhere")
    assert "its certificate is not accepted" in str(wrong_name)
    assert "perhaps it wants TLS" in str(refusal(flavour, f"etcd://{where}"))
    nothing = tmp_path / "nothing.crt"
    with (
        desk_for(flavour, f"etcd://{where}?cacert={nothing}") as desk,
        pytest.raises(ConfigurationError, match=r"nothing\.crt"),
    ):
        desk.acquire("job", timeout=5)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls_to_a_server_that_has_none(guarded: Any, flavour: str) -> None:
    assert "does it speak TLS" in str(refusal(flavour, f"etcd://{address(guarded)}?tls=yes"))


@pytest.fixture
def stranger() -> Iterator[str]:
    """A server that is something else: it answers everything with a line of its own."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(ConnectionError):
                    connection.sendall(b"-ERR unknown command\r\n")
                    while connection.recv(1 << 16):
                        pass

        threading.Thread(target=serve, daemon=True).start()
        host, port = server.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_is_something_else(stranger: str, flavour: str) -> None:
    assert "does not speak etcd's protocol" in str(refusal(flavour, f"etcd://{stranger}"))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nobody_there(flavour: str) -> None:
    port = ports.take()
    try:
        error = refusal(flavour, f"etcd://127.0.0.1:{port}", timeout=1)
        assert "connection refused" in str(error)
        assert error.transient
    finally:
        ports.give_back(port)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("ttl", [0.2, 10_000_000_000])
def test_a_ttl_outside_the_limits(guarded: Any, flavour: str, ttl: float) -> None:
    url = f"etcd://ann:{PASSWORD}@{address(guarded)}"
    with desk_for(flavour, url) as desk, pytest.raises(ConfigurationError, match="ttl"):
        desk.acquire("job", ttl=ttl, timeout=5)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("etcd://localhost:port", "is not an address"),
        ("etcd://localhost:0", "is not an address"),
        ("etcd://ann@localhost", "a user without a password"),
        ("etcd://localhost?color=red", "unknown option color"),
        ("etcd://localhost?tls=maybe", "unknown option tls"),
        ("etcd://localhost?cert=a.crt", "one of cert and key"),
        ("etcd://localhost?tls=no&cacert=a.crt", "tls=no and options of TLS"),
    ],
)
def test_urls(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Desk(url)


def test_doctor_names_the_version_with_the_bug(guarded: Any) -> None:
    done = fencelock_command(f"etcd://ann:{PASSWORD}@{address(guarded)}", "doctor")
    assert "renews leases that are gone" in done.stdout
    assert "no clock decides anything" in done.stdout
    assert "the password crosses the network as it is" in done.stdout
    assert "one member" in done.stdout
    assert "Clocks, beside this machine's" in done.stdout, "each member dates its answers"
    assert PASSWORD not in done.stdout + done.stderr
