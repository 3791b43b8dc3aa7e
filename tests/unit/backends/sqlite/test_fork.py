"""Fork: parent and child are two processes with one file, as if they had never met."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fencelock import Client
from unit.support import fork, in_fork


class Child:
    """A forked child that does one thing at a time, when it is told to."""

    def __init__(self, *steps: Any) -> None:
        self._told, tell = os.pipe()
        hear, self._say = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            for step in steps:
                os.read(hear, 1)
                try:
                    answer = str(step())
                except BaseException as error:
                    answer = repr(error)
                os.write(tell, answer.encode() or b"-")
            os.read(hear, 1)
            os._exit(0)

    def step(self) -> str:
        os.write(self._say, b".")
        return os.read(self._told, 1000).decode()

    def end(self) -> None:
        os.write(self._say, b".")
        os.waitpid(self.pid, 0)


def test_parent_and_child_exclude_each_other(path: Path) -> None:
    with Client(f"sqlite://{path}") as client:
        with client.lock("x"):
            assert in_fork(lambda: client.lock("x").try_acquire() is None)
        kept: list[Any] = []
        child = Child(lambda: kept.append(client.lock("x").acquire()) or "held")
        assert child.step() == "held"
        assert client.lock("x").try_acquire() is None
        child.end()


def test_when_the_parent_closes_its_client_the_child_still_excludes_others(path: Path) -> None:
    """SQLite keeps its locks on a file by process: a child inherits the books, but not the locks."""
    client = Client(f"sqlite://{path}")
    with client.lock("warm"):
        pass
    kept: list[Any] = []
    child = Child(
        lambda: kept.append(client.lock("a", ttl=60).acquire()) or kept[-1].token,
        lambda: kept.append(client.lock("b", ttl=60).acquire()) or kept[-1].token,
        lambda: all(lease.verify() for lease in kept),
    )
    first = child.step()
    client.close()
    second = child.step()
    with Client(f"sqlite://{path}") as other:
        facts = {
            "a": other.lock("a").try_acquire(),
            "b": other.lock("b").try_acquire(),
            "seen": [state.name for state in other.list()],
        }
        verified = child.step()
        with other.lock("c") as lease:
            newest = lease.token
    child.end()
    assert int(first) < int(second) < newest
    assert facts == {"a": None, "b": None, "seen": ["a", "b"]}
    assert verified == "True"


def test_when_the_child_closes_its_client_the_parent_still_excludes_others(path: Path) -> None:
    with Client(f"sqlite://{path}") as client:
        first = client.lock("a", ttl=60).acquire()

        def child() -> int:
            with client.lock("c") as lease:
                token = lease.token
            client.close()
            return token

        newest = in_fork(child)
        second = client.lock("b", ttl=60).acquire()
        assert first.token < newest < second.token
        with Client(f"sqlite://{path}") as same_process:
            assert same_process.lock("b").try_acquire() is None

        def stranger() -> list[bool]:
            with Client(f"sqlite://{path}") as other:
                return [other.lock(name).try_acquire() is None for name in "ab"]

        assert in_fork(stranger) == [True, True]
        assert first.verify()
        assert second.verify()


def test_a_child_never_releases_what_the_parent_holds(path: Path) -> None:
    with Client(f"sqlite://{path}") as client:
        lease = client.lock("x").acquire()

        def child() -> bool:
            released = lease.release()
            client.close()
            return released

        assert in_fork(child) is False
        assert lease.verify()
