"""A Redis that is too old for the scripts is refused in one line: version found, version needed, remedy.

No such Redis is installed here. A small server answers as 6.0 and 5.0 do: it does not know the scripts by
their hash, and the SET with GET in them is a syntax error.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hiredis
import pytest

from fencelock import AsyncClient, BackendUnavailable, Client

NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
BROKEN = (
    b"-ERR Error running script (call to f_8e7d1f): @user_script:22: @user_script: 22: -ERR syntax error\r\n"
)
FORBIDDEN = b"-NOPERM this user has no permissions to run the 'info' command or its subcommand\r\n"


def info(version: bytes) -> bytes:
    text = b"# Server\r\nredis_version:%b\r\nredis_mode:standalone\r\n" % version
    return b"$%d\r\n%b\r\n" % (len(text), text)


def hello(version: bytes) -> bytes:
    words = [b"server", b"redis", b"version", version, b"proto", b"2"]
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


class OldServer:
    """Answers each command with what a table has for it."""

    def __init__(self, **answers: bytes) -> None:
        self._answers = {"EVALSHA": NOSCRIPT, "EVAL": BROKEN, **answers}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._talk, args=(taken,)))
            self._threads[-1].start()

    def _talk(self, taken: socket.socket) -> None:
        reader = hiredis.Reader()
        with taken:
            while data := taken.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    name = command[0].decode().upper()
                    taken.sendall(self._answers.get(name, b"-ERR unknown command `%b`\r\n" % command[0]))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


@contextmanager
def serving(**answers: bytes) -> Iterator[OldServer]:
    server = OldServer(**answers)
    try:
        yield server
    finally:
        server.close()


def acquire(url: str) -> None:
    with Client(url) as locks:
        locks.lock("job").acquire(timeout=1)


def acquire_async(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as locks:
            await locks.lock("job").acquire(timeout=1)

    asyncio.run(main())


both = pytest.mark.parametrize("take", [acquire, acquire_async], ids=["blocking", "asyncio"])

OLD: dict[str, tuple[str, dict[str, bytes]]] = {
    "6.0": ("6.0.16", {"HELLO": hello(b"6.0.16"), "INFO": info(b"6.0.16")}),
    "6.0, a user without INFO": ("6.0.20", {"HELLO": hello(b"6.0.20"), "INFO": FORBIDDEN}),
    "5.0, which has no HELLO": ("5.0.14", {"INFO": info(b"5.0.14")}),
}


@both
@pytest.mark.parametrize(("version", "answers"), OLD.values(), ids=OLD)
def test_a_server_that_is_too_old_is_refused(
    version: str, answers: dict[str, bytes], take: Callable[[str], Any]
) -> None:
    with serving(**answers) as server, pytest.raises(BackendUnavailable) as caught:
        take(server.url)
    place = server.url.removeprefix("redis://")
    needed = "6.2 or newer is needed: upgrade it, or use Valkey"
    assert str(caught.value) == f"redis: {place}: it is Redis {version}, and {needed}"
    assert not caught.value.transient


@both
@pytest.mark.parametrize(
    "answers",
    [
        {"HELLO": hello(b"7.2.4"), "INFO": info(b"7.2.4")},
        {"HELLO": hello(b"6.2.0"), "INFO": info(b"6.2.0")},
        {"INFO": FORBIDDEN},
        {},
    ],
)
def test_another_error_of_a_script_is_told_as_it_is(
    answers: dict[str, bytes], take: Callable[[str], Any]
) -> None:
    with serving(**answers) as server, pytest.raises(BackendUnavailable, match="syntax error"):
        take(server.url)
