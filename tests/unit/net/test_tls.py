"""TLS in memory, against the sockets of `ssl`: handshakes, certificates, ends with and without a farewell."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencelock.net.connecting import Connector, Target
from fencelock.net.failures import Failures
from fencelock.net.stream import Stream
from fencelock.runtime.base import Runtime

from .peer import FLAVOURS, drive, soon

BIG = os.urandom(1 << 21)
Serve = Callable[[ssl.SSLSocket], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=fencelock test", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *made]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder


def server_context(folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    return context


def client_context(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "server.crt"))


@contextlib.contextmanager
def serving(
    folder: Path, serve: Serve, context: ssl.SSLContext | None = None, *, drops: bool = False
) -> Iterator[str]:
    """One connection is served; with `drops`, in the middle of its handshake."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def main() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as plain:
            plain.settimeout(20)
            if drops:
                plain.recv(1 << 16)
                return
            with (context or server_context(folder)).wrap_socket(plain, server_side=True) as sock:
                serve(sock)

    thread = threading.Thread(target=main)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        thread.join(20)
        listener.close()


def echo(sock: ssl.SSLSocket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


async def receive(stream: Stream, length: int) -> bytes:
    data = b""
    while len(data) < length:
        await stream.readable(soon())
        came = stream.take()
        if came == b"":
            break
        data += came or b""
    return data


async def send(stream: Stream, data: bytes) -> None:
    stream.put(data)
    while stream.has_unsent:
        await stream.writable(soon())
        stream.put(b"")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_bytes_go_and_come(flavour: str, version: ssl.TLSVersion, folder: Path) -> None:
    def serve(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"greeting")  # it may come with the end of the handshake
        assert sock.recv(10) == b"hello"
        data = b""
        while len(data) < len(BIG):
            data += sock.recv(1 << 16)
        sock.sendall(data)
        echo(sock)

    context = client_context(folder)
    context.minimum_version = context.maximum_version = version

    async def main(runtime: Runtime) -> None:
        with serving(folder, serve) as endpoint:
            stream = await Connector(runtime).open(Target(endpoint, context), soon())
            assert await receive(stream, 8) == b"greeting"
            assert stream.take() is None
            await send(stream, b"hello")
            await send(stream, BIG)
            assert await receive(stream, len(BIG)) == BIG
            await send(stream, b"once more")
            assert await receive(stream, 9) == b"once more"
            deadline = soon(0.01)
            with pytest.raises(TimeoutError):
                while True:
                    await stream.readable(deadline)
                    assert stream.take() is None
            stream.close()

    drive(flavour, main)


@pytest.mark.parametrize("farewell", [True, False])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_end_comes_after_the_data(flavour: str, farewell: bool, folder: Path) -> None:
    left = threading.Event()

    def serve(sock: ssl.SSLSocket) -> None:
        sock.sendall(b"last words")
        if farewell:  # close_notify, and the connection stays
            sock.settimeout(0.05)
            with contextlib.suppress(OSError):
                sock.unwrap()
            left.wait(20)

    async def main(runtime: Runtime) -> None:
        with serving(folder, serve) as endpoint:
            stream = await Connector(runtime).open(Target(endpoint, client_context(folder)), soon())
            assert await receive(stream, 100) == b"last words"
            for _ in range(2):
                await stream.readable(soon())
                assert stream.take() == b""
            left.set()
            stream.close()

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_handshake_that_is_cut(flavour: str, folder: Path) -> None:
    """It may be tried again, on every Python: the server may be going down."""

    async def main(runtime: Runtime) -> None:
        with serving(folder, echo, drops=True) as endpoint:
            with pytest.raises((ssl.SSLEOFError, ConnectionError)) as cut:
                await Connector(runtime).open(Target(endpoint, client_context(folder)), soon())
            failure = Failures("store", "it does not speak it").unreachable(endpoint, cut.value, tls=True)
        assert failure.transient and endpoint in str(failure)

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_server_that_says_nothing_to_a_handshake(flavour: str, folder: Path) -> None:
    async def main(runtime: Runtime) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            target = Target(f"127.0.0.1:{listener.getsockname()[1]}", client_context(folder))
            with pytest.raises(TimeoutError):
                await Connector(runtime).open(target, soon(0.05))

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_certificates_are_checked(flavour: str, folder: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async def fails(context: ssl.SSLContext, name: str | None = None) -> None:
            with serving(folder, echo) as endpoint, pytest.raises(ssl.SSLCertVerificationError):
                await Connector(runtime).open(Target(endpoint, context, name), soon())

        await fails(ssl.create_default_context())
        await fails(client_context(folder), "elsewhere.invalid")

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_certificate_of_the_client(flavour: str, folder: Path) -> None:
    """With TLS 1.3 a client learns only when it reads that the server wanted one."""
    context = server_context(folder)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "server.crt")
    bare, full = client_context(folder), client_context(folder)
    full.load_cert_chain(folder / "server.crt", folder / "server.key")

    async def main(runtime: Runtime) -> None:
        with serving(folder, echo, context) as endpoint:
            stream = await Connector(runtime).open(Target(endpoint, full), soon())
            await send(stream, b"hello")
            assert await receive(stream, 5) == b"hello"
            stream.close()
        with serving(folder, echo, context) as endpoint:
            stream = await Connector(runtime).open(Target(endpoint, bare), soon())
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await receive(stream, 1)
            stream.close()

    drive(flavour, main)
