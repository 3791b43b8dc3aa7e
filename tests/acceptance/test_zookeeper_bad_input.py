"""What is wrong with a ZooKeeper, in one line each; and what doctor, TLS and users make of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import fencelock_command
from crew import wait_until
from kazoo.security import make_digest_acl
from redis_desk import FLAVOURS, Desk, desk_for
from tests.conformance.rows import certificate
from tools.servers import ports, start
from zookeeper_desk import operator, znodes

from fencelock import BackendUnavailable, ConfigurationError

PASSWORD = "swordfish"


class Setting:
    """A server with a plain port and one for TLS."""

    def __init__(self, server: Any, sealed: str, cert: str) -> None:
        self.server, self.sealed, self.cert = server, sealed, cert
        self.address = str(server.address)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    folder = tmp_path_factory.mktemp("tls")
    made = certificate(folder)
    both = folder / "both.pem"
    both.write_text(Path(made["tls-key-file"]).read_text() + Path(made["tls-cert-file"]).read_text())
    port = ports.take()
    settings = {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": made["tls-cert-file"],
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "none",
        "maxSessionTimeout": "40000",
        "4lw.commands.whitelist": "srvr,ruok,dump",
    }
    # Debian's zookeeper.jar names too few of the libraries that TLS needs.
    jars = ":".join(str(jar) for jar in Path("/usr/share/java").glob("netty-*.jar"))
    try:
        with start(
            "zookeeper", settings=settings, env={"JDK_JAVA_OPTIONS": f"-Xbootclasspath/a:{jars}"}
        ) as group:
            yield Setting(group.members[0], f"127.0.0.1:{port}", made["tls-cert-file"])
    finally:
        ports.give_back(port)


def refusal(flavour: str, url: str, **terms: Any) -> BackendUnavailable:
    with desk_for(flavour, url) as desk:
        began = time.monotonic()
        with pytest.raises(BackendUnavailable) as raised:
            desk.acquire("job", **{"ttl": 5, "timeout": 3, **terms})
        assert time.monotonic() - began < terms.get("timeout", 3) + 10
    told = str(raised.value)
    assert "\n" not in told
    assert PASSWORD not in told
    assert len(told) < 250
    return raised.value


def use(desk: Desk) -> None:
    """Take a lock, wait for it, hand it over."""
    held = desk.acquire("job", ttl=5)
    wait = desk.waiting("job", ttl=5)
    wait_until(lambda: desk.inspect("job").waiters, "one waits")
    assert desk(held.release)
    assert desk(wait.result(10).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_chroot_that_is_not_there(setting: Setting, flavour: str) -> None:
    error = refusal(flavour, f"zookeeper://{setting.address}/no/such/place")
    assert "there is no /no/such/place" in str(error)
    assert "create /no/such/place" in str(error)
    assert not error.transient


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_chroot_keeps_applications_apart(setting: Setting, flavour: str) -> None:
    with operator(setting.server) as client:
        client.ensure_path("/apps/one")
    url = f"zookeeper://{setting.address}"
    with desk_for(flavour, f"{url}/apps/one") as desk, desk_for(flavour, url) as other:
        held = desk.acquire("job", ttl=5)
        assert other(other.acquire("job", ttl=5, timeout=1).release)
        use_beside = desk.waiting("job", ttl=5)
        wait_until(lambda: desk.inspect("job").waiters, "one waits")
        assert [state.name for state in desk(desk.locks.list)] == ["job"]
        with operator(setting.server) as client:
            change = client.transaction()  # its client has no chroot: the guard finds the znode all the same
            held.guard(change)
            change.set_data("/apps", b"x")
            assert not [result for result in change.commit() if isinstance(result, Exception)]
        assert desk(held.release)
        assert desk(use_beside.result(10).release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_users(setting: Setting, flavour: str) -> None:
    """What ann makes is ann's: bob, and whoever gives no name, may not use it."""
    place = f"/{flavour}"
    with operator(setting.server) as client:
        client.create(place, acl=[make_digest_acl("ann", PASSWORD, all=True)])
    with desk_for(flavour, f"zookeeper://ann:{PASSWORD}@{setting.address}{place}") as desk:
        use(desk)
    for login in ("", f"bob:{PASSWORD}@", "ann:wrong@"):
        error = refusal(flavour, f"zookeeper://{login}{setting.address}{place}")
        assert "may not make, read and delete znodes" in str(error)
        assert not error.transient


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls(setting: Setting, flavour: str) -> None:
    with desk_for(flavour, f"zookeeper://{setting.sealed}?cacert={setting.cert}") as desk:
        use(desk)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_certificates_and_their_lack(setting: Setting, flavour: str, tmp_path: Path) -> None:
    unknown = refusal(flavour, f"zookeeper://{setting.sealed}?tls=yes")
    assert "its certificate is not accepted" in str(unknown)
    assert not unknown.transient
    localhost = setting.sealed.replace("127.0.0.1", "localhost")
    wrong_name = refusal(flavour, f"zookeeper://{localhost}?cacert={setting.cert}")
    assert "its certificate is not accepted" in str(wrong_name)
    with desk_for(flavour, f"zookeeper://{localhost}?cacert={setting.cert}&check_hostname=no") as desk:
        use(desk)
    plain = refusal(flavour, f"zookeeper://{setting.sealed}", timeout=2)
    assert "zookeeper" in str(plain)
    nothing = tmp_path / "nothing.crt"
    with (
        desk_for(flavour, f"zookeeper://{setting.sealed}?cacert={nothing}") as desk,
        pytest.raises(ConfigurationError, match=r"nothing\.crt"),
    ):
        desk.acquire("job", timeout=5)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_tls_to_a_server_that_has_none(setting: Setting, flavour: str) -> None:
    told = str(refusal(flavour, f"zookeeper://{setting.address}?cacert={setting.cert}"))
    assert "TLS" in told


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
                with connection, closing(connection):
                    try:
                        connection.sendall(b"-ERR unknown command\r\n")
                        while connection.recv(1 << 16):
                            pass
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        host, port = server.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_is_something_else(stranger: str, flavour: str) -> None:
    error = refusal(flavour, f"zookeeper://{stranger}")
    assert "does not speak ZooKeeper's protocol" in str(error)
    assert not error.transient


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nobody_there(flavour: str) -> None:
    port = ports.take()
    try:
        error = refusal(flavour, f"zookeeper://127.0.0.1:{port}", timeout=1)
        assert "connection refused" in str(error)
        assert error.transient
    finally:
        ports.give_back(port)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_that_says_nothing(flavour: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        error = refusal(flavour, f"zookeeper://127.0.0.1:{server.getsockname()[1]}", timeout=1)
        assert "no answer in time" in str(error)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("ttl", [0.2, 45, 10_000_000_000])
def test_a_ttl_outside_the_limits(setting: Setting, flavour: str, ttl: float) -> None:
    with (
        desk_for(flavour, f"zookeeper://{setting.address}") as desk,
        pytest.raises(ConfigurationError, match="ttl") as raised,
    ):
        desk.acquire("job", ttl=ttl, timeout=5)
    assert "\n" not in str(raised.value)
    wait_until(lambda: znodes(setting.server) == [], "nothing is left")


def test_the_command_line_says_so_in_one_line(setting: Setting, stranger: str) -> None:
    for url in (f"zookeeper://ann:{PASSWORD}@{setting.address}/nowhere", f"zookeeper://{stranger}"):
        done = fencelock_command("", "run", "--url", url, "--wait", "1", "job", "--", "echo", "granted")
        assert done.returncode == 69, done.stderr
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert PASSWORD not in done.stderr


def test_doctor(setting: Setting) -> None:
    done = fencelock_command(f"zookeeper://ann:{PASSWORD}@{setting.address}", "doctor")
    for words in (
        "one server alone",
        "ZooKeeper 3.",
        "sessions of 1 s to 40 s",
        "no wall clock decides anything",
    ):
        assert words in done.stdout, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
