"""TLS: both drivers, both forms; and what is not trusted, or not spoken, is one clear line."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mysql_desk import FLAVOURS, ask, desk_for, getlock, ours
from tests.conformance.rows import certificate
from tools.servers import start

from fencelock import BackendUnavailable


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Any, str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = certificate(folder)
        cert, key = made["tls-cert-file"], made["tls-key-file"]
        for file in (folder, Path(cert), Path(key)):  # the server is another user
            file.chmod(0o755)
        settings = {"ssl-cert": cert, "ssl-key": key, "ssl-ca": cert}
        with start("mariadb", settings=settings) as group:
            yield group.members[0], quote(cert)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("form", ["mysql", "mysql+getlock"])
def test_a_connection_is_encrypted(place: tuple[Any, str], form: str, flavour: str) -> None:
    server, cert = place
    ask(server, "DROP USER IF EXISTS safe", "CREATE USER safe IDENTIFIED BY 'pässword' REQUIRE SSL")
    ask(server, "GRANT ALL ON fencelock.* TO safe")
    url = f"mysql://safe:{quote('pässword')}@{server.address}/fencelock?ssl_ca={cert}"
    with desk_for(flavour, url if form == "mysql" else getlock(url)) as desk:
        lease = desk.acquire("job", ttl=30)
        assert ours(server)
        assert desk(lease.verify)
        assert desk(lease.release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_certificate_that_nobody_vouches_for(place: tuple[Any, str], flavour: str) -> None:
    server, _ = place
    desk = desk_for(flavour, f"{server.url}?ssl=yes")
    with desk, pytest.raises(BackendUnavailable, match="certificate is not trusted") as caught:
        desk(desk.locks.lock("job").try_acquire)
    assert not caught.value.transient
    with desk_for(flavour, f"{server.url}?ssl_verify=no") as desk:
        assert desk(desk.acquire("job").release)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_speaks_no_tls(flavour: str) -> None:
    with start("mariadb") as group:
        desk = desk_for(flavour, f"{group.url}?ssl_verify=no")
        with desk, pytest.raises(BackendUnavailable, match="it does not speak TLS") as caught:
            desk(desk.locks.lock("job").try_acquire)
        assert "\n" not in str(caught.value)
