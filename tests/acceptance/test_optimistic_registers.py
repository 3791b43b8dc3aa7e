"""Registers on every store that has them: versions, conflicts, contention, lost answers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from register_desk import Held
from tools.servers import start

from fencelock import ConfigurationError, Unsupported, optimistic
from fencelock.optimistic import Conflicted, Register, Updated, Value
from unit.support import fork

STORES = ["redis", "valkey", "cluster", "etcd", "consul", "zookeeper"]


@pytest.fixture(scope="module", params=STORES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with start(request.param) as group:
        yield str(group.url)


@pytest.fixture
def register(url: str, flavour: str, request: pytest.FixtureRequest) -> Iterator[Held]:
    held = Held(flavour, url, request.node.name)
    yield held
    held.close()


def test_a_value_and_its_versions(register: Held) -> None:
    assert register.read() == Value(None, 0)
    first = register.set(b"one", 0)
    assert isinstance(first, Updated) and first.row.value == b"one" and first.row.version > 0
    assert register.read() == first.row
    second = register.set(b"\0\xff", first.row.version)
    assert isinstance(second, Updated) and second.row.version > first.row.version
    assert register.read() == second.row
    for version in (0, first.row.version, second.row.version + 1000):
        late = register.set(b"late", version)
        assert late == Conflicted(second.row, register._register.name)
    assert register.set(b"", second.row.version).expect().value == b""
    assert register.read().value == b""


def test_names_do_not_meet(url: str, flavour: str) -> None:
    names = ["a/b", "a:b", "{a}b", "A/b", "a/b ", "a%2Fb", ".", "..", "é", "x" * 500, "x" * 499]
    for name in names:
        held = Held(flavour, url, f"{flavour}{name}")
        assert isinstance(held.set(name.encode(), 0), Updated), name
        held.close()
    for name in names:
        held = Held(flavour, url, f"{flavour}{name}")
        assert held.read().value == name.encode()
        held.close()


def test_no_update_is_lost(url: str, flavour: str) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        held = Held(flavour, url, f"counter-{flavour}", timeout=20)

        @optimistic.retry(timeout=60)
        def add() -> Any:
            value, version = held.read()
            return held.set(b"%d" % (int(value or 0) + 1), version)

        try:
            for _ in range(20):
                add()
        except BaseException as error:
            errors.append(error)
        finally:
            held.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    with Register(url, f"counter-{flavour}") as held:
        assert held.read().value == b"120"


def test_bad_input(register: Held) -> None:
    for value, version, message in [
        ("text", 0, "cannot be kept"),
        (b"x" * (1 << 20), 0, "at most"),
        (b"x", -1, "no version"),
        (b"x", True, "no version"),
        (b"x", "1", "no version"),
        (b"x", 2**63, "no version"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            register.set(value, version)
    assert register.read() == Value(None, 0)


def test_a_closed_one(url: str) -> None:
    register = Register(url, "closed")
    register.close()
    register.close()
    with pytest.raises(ConfigurationError, match="closed"):
        register.read()


def test_a_child_has_connections_of_its_own(url: str) -> None:
    with Register(url, "fork") as register:
        version = register.set(b"parent", register.read().version).expect().version
        child = fork()
        if child == 0:
            try:
                good = isinstance(register.set(b"child", version), Updated)
                register.close()
                os._exit(0 if good else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert register.read().value == b"child"


def test_other_stores_have_none() -> None:
    for other in ("memory://", "sqlite:///tmp/x.db", "redlock://a,b,c"):
        with pytest.raises(Unsupported, match="does not support registers"):
            Register(other, "x")
    with pytest.raises(ConfigurationError):
        Register("nonsense", "x")
    with pytest.raises(ConfigurationError, match="is not a URL"):
        Register(5, "x")  # type: ignore[arg-type]
