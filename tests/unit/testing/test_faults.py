"""Every fault of the proxy against an echo server, and of processes against real children."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from fencelock.testing import (
    TCPProxy,
    kill,
    pause,
    paused,
    process_states,
    resume,
    wait_state,
)
from fencelock.testing.relay import QUEUE_LIMIT

SHORT = 0.15  # how long silence must last to be believed


class EchoServer:
    """Echoes each line in upper case and remembers what reached it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen = b""
        self.open = 0
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def wait_seen(self, data: bytes) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: data in self.seen, 30), self.seen

    def wait_open(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.open == count, 30), self.open

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,))
            thread.start()
            self._threads.append(thread)

    def _serve(self, sock: socket.socket) -> None:
        self._note(opened=1)
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(65536):
                self._note(data)
                sock.sendall(data.upper())
        self._note(opened=-1)

    def _note(self, data: bytes = b"", opened: int = 0) -> None:
        with self._changed:
            self.seen += data
            self.open += opened
            self._changed.notify_all()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def server() -> Iterator[EchoServer]:
    echo = EchoServer()
    yield echo
    echo.close()


@pytest.fixture
def proxy(server: EchoServer) -> Iterator[TCPProxy]:
    with TCPProxy("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
def client(proxy: TCPProxy) -> Iterator[socket.socket]:
    with connect(proxy) as sock:
        assert ask(sock, b"hello") == b"HELLO"
        yield sock


def connect(proxy: TCPProxy) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=5)


def all_closed(proxy: TCPProxy) -> bool:
    deadline = time.monotonic() + 5
    while proxy.counters.open and time.monotonic() < deadline:
        time.sleep(0.001)
    return not proxy.counters.open


def ask(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return read(sock, len(data))


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = sock.recv(65536)
        assert chunk, f"the connection ended after {data!r}"
        data += chunk
    return data


def silent(sock: socket.socket) -> bool:
    sock.settimeout(SHORT)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(5)
    return False


def was_reset(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) != b"" and False
    except ConnectionResetError:
        return True


# ------------------------------------------------------------------------------------------- proxy


def test_a_healthy_proxy_is_not_noticed(proxy: TCPProxy, server: EchoServer) -> None:
    big = os.urandom(3 << 20).replace(b"\xff", b"\x00")
    with connect(proxy) as one, connect(proxy) as two:
        assert ask(two, b"a") == b"A"
        echo: list[bytes] = []
        reader = threading.Thread(target=lambda: echo.append(read(one, len(big))))
        reader.start()
        one.sendall(big)
        reader.join(10)
        assert echo == [big.upper()]
        counters = proxy.counters
        assert (counters.accepted, counters.open) == (2, 2)
        assert counters.requests == counters.replies == len(big) + 1
        assert (counters.dropped, counters.resets) == (0, 0)
    server.wait_open(0)
    assert all_closed(proxy)


def test_the_end_of_each_direction_is_passed_on(proxy: TCPProxy) -> None:
    with connect(proxy) as sock:
        sock.sendall(b"last words")
        sock.shutdown(socket.SHUT_WR)
        assert read(sock, 10) == b"LAST WORDS"
        assert sock.recv(1) == b""


def test_replies_are_held_and_let_go(proxy: TCPProxy, client: socket.socket, server: EchoServer) -> None:
    fault = proxy.hold()
    client.sendall(b"one")
    assert fault.wait()
    server.wait_seen(b"one")
    assert silent(client)
    client.sendall(b"two")
    server.wait_seen(b"two")
    proxy.let_go()
    assert read(client, 6) == b"ONETWO"
    assert ask(client, b"three") == b"THREE"


def test_requests_are_held_until_the_block_ends(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    with proxy.hold("requests") as fault:
        client.sendall(b"late")
        assert fault.wait()
        assert silent(client)
        assert b"late" not in server.seen
    assert read(client, 4) == b"LATE"


def test_a_held_request_outlives_its_sender(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    fault = proxy.hold("requests")
    client.sendall(b"testament")
    assert fault.wait()
    client.close()
    time.sleep(SHORT)
    assert b"testament" not in server.seen
    proxy.let_go()
    server.wait_seen(b"testament")
    server.wait_open(0)


def test_a_hold_may_choose_by_the_request(proxy: TCPProxy, client: socket.socket) -> None:
    with connect(proxy) as other, proxy.hold(match=lambda data: b"renew" in data) as fault:
        assert ask(client, b"acquire") == b"ACQUIRE"
        client.sendall(b"renew")
        assert fault.wait()
        assert silent(client)
        assert ask(other, b"acquire") == b"ACQUIRE"
        fault.cancel()
        assert read(client, 5) == b"RENEW"
        assert ask(client, b"acquire") == b"ACQUIRE"


def test_one_reply_is_swallowed_and_the_connection_reset(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    fault = proxy.swallow()
    client.sendall(b"applied")
    assert was_reset(client)
    assert fault.wait()
    server.wait_seen(b"applied")
    with connect(proxy) as again:
        assert ask(again, b"applied") == b"APPLIED"
    assert fault.struck == 1
    assert proxy.counters.dropped == 7


def test_one_reply_is_swallowed_and_the_connection_hangs(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    fault = proxy.swallow(then="hang")
    client.sendall(b"applied")
    assert fault.wait()
    server.wait_seen(b"applied")
    client.sendall(b"more")
    server.wait_seen(b"more")
    assert silent(client)
    with connect(proxy) as again:
        assert ask(again, b"fine") == b"FINE"
    proxy.heal()  # a stream with a hole in it does not go on
    assert was_reset(client)


def test_a_reply_is_cut_in_the_middle(proxy: TCPProxy, client: socket.socket, server: EchoServer) -> None:
    fault = proxy.cut(match=lambda data: data == b"applied")
    assert ask(client, b"before") == b"BEFORE"
    client.sendall(b"applied")
    assert read(client, 3) == b"APP"
    assert was_reset(client)
    server.wait_seen(b"applied")
    assert fault.struck == 1
    with connect(proxy) as again:
        assert ask(again, b"applied") == b"APPLIED"
    assert proxy.counters.dropped == 4


def test_a_hanging_connection_ends_with_its_client(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    fault = proxy.swallow(then="hang")
    client.sendall(b"applied")
    assert fault.wait()
    client.close()
    server.wait_open(0)
    assert all_closed(proxy)


def test_several_replies_are_swallowed_by_choice(proxy: TCPProxy, server: EchoServer) -> None:
    fault = proxy.swallow(2, match=lambda data: data == b"renew")
    for _ in range(2):
        with connect(proxy) as sock:
            assert ask(sock, b"acquire") == b"ACQUIRE"
            sock.sendall(b"renew")
            assert was_reset(sock)
    with connect(proxy) as sock:
        assert ask(sock, b"renew") == b"RENEW"
    assert fault.struck == 2
    assert server.seen.count(b"renew") == 3


def test_requests_fail_before_the_server_sees_them(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    with proxy.fail(match=lambda data: b"renew" in data) as fault:
        assert ask(client, b"acquire") == b"ACQUIRE"
        client.sendall(b"renew")
        assert was_reset(client)
        with connect(proxy) as again:
            again.sendall(b"renew")
            assert was_reset(again)
        assert fault.struck == 2
    assert b"renew" not in server.seen
    with connect(proxy) as again:
        assert ask(again, b"renew") == b"RENEW"


def test_a_failure_may_be_for_one_request_only(proxy: TCPProxy, client: socket.socket) -> None:
    proxy.fail(1)
    client.sendall(b"x")
    assert was_reset(client)
    with connect(proxy) as again:
        assert ask(again, b"x") == b"X"


@pytest.mark.parametrize(("direction", "delays"), [("requests", 1), ("replies", 1), ("both", 2)])
def test_each_direction_is_delayed(
    proxy: TCPProxy, client: socket.socket, direction: str, delays: int
) -> None:
    with proxy.delay(0.1, direction) as fault:  # type: ignore[arg-type]
        start = time.monotonic()
        assert ask(client, b"slow") == b"SLOW"
        assert time.monotonic() - start >= 0.1 * delays
    assert ask(client, b"fast") == b"FAST"
    assert fault.struck == delays


def test_delayed_bytes_stay_in_order(proxy: TCPProxy, client: socket.socket) -> None:
    slow = proxy.delay(0.2, "requests")
    client.sendall(b"first")
    assert slow.wait()
    slow.cancel()
    client.sendall(b"second")
    assert read(client, 11) == b"FIRSTSECOND"


def test_every_connection_is_reset(proxy: TCPProxy, client: socket.socket, server: EchoServer) -> None:
    with connect(proxy) as other:
        assert ask(other, b"x") == b"X"
        assert proxy.reset() == 2
        assert was_reset(client)
        assert was_reset(other)
    server.wait_open(0)
    with connect(proxy) as again:
        assert ask(again, b"x") == b"X"
    assert proxy.counters.resets == 2


def test_new_connections_are_refused_and_old_ones_live(proxy: TCPProxy, client: socket.socket) -> None:
    proxy.refuse()
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert ask(client, b"still") == b"STILL"
    proxy.accept()
    with connect(proxy) as again:
        assert ask(again, b"x") == b"X"
    proxy.refuse()
    proxy.heal()
    connect(proxy).close()


@pytest.mark.parametrize(("direction", "arrives"), [("both", False), ("requests", False), ("replies", True)])
def test_a_blackhole_takes_everything(
    proxy: TCPProxy, client: socket.socket, server: EchoServer, direction: str, arrives: bool
) -> None:
    with proxy.blackhole(direction) as fault:  # type: ignore[arg-type]
        client.sendall(b"old")
        assert fault.wait()
        with connect(proxy) as fresh:
            fresh.sendall(b"new")
            assert silent(fresh)
        assert silent(client)
        assert (b"old" in server.seen) is (b"new" in server.seen) is arrives
    assert was_reset(client)
    with connect(proxy) as again:
        assert ask(again, b"healed") == b"HEALED"


def test_an_idle_connection_survives_a_blackhole(proxy: TCPProxy, client: socket.socket) -> None:
    proxy.blackhole().cancel()
    assert ask(client, b"x") == b"X"


def test_in_a_blackhole_nobody_learns_of_the_other_ones_end(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    with proxy.blackhole():
        client.close()
        time.sleep(SHORT)
        assert server.open == 1
    server.wait_open(0)


def test_a_server_that_is_gone_resets_the_client(server: EchoServer) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, so that the port is nobody else's, but deaf
        port = nobody.getsockname()[1]
        # Perhaps so early that connecting itself fails.
        with (
            TCPProxy("127.0.0.1", port) as proxy,
            pytest.raises(ConnectionResetError),
            connect(proxy) as sock,
        ):
            sock.recv(1)
    assert server.open == 0


def test_a_client_that_aborts_is_passed_on(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    client.close()
    server.wait_open(0)
    assert all_closed(proxy)


def test_memory_is_bounded_while_bytes_are_held(proxy: TCPProxy) -> None:
    with connect(proxy) as sock, proxy.hold("requests"):
        sock.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 20 * QUEUE_LIMIT:
                sent += sock.send(b"x" * 65536)
        (connection,) = proxy._relay.connections
        assert connection.requests.size < QUEUE_LIMIT + 65536


def test_a_client_that_does_not_read_costs_no_cpu(proxy: TCPProxy, client: socket.socket) -> None:
    client.settimeout(1)
    with pytest.raises(TimeoutError):
        while True:
            client.sendall(b"x" * 65536)
    (connection,) = proxy._relay.connections
    assert connection.replies.clogged
    rounds: list[int] = []
    pump = connection.pump
    connection.pump = lambda: (rounds.append(1), pump())[1]  # type: ignore[method-assign, func-returns-value]
    # Bytes may still be on their way; sooner or later nothing moves, and then nothing is tried.
    for _ in range(20):
        rounds.clear()
        time.sleep(0.3)
        if len(rounds) < 10:
            break
    assert len(rounds) < 10


def test_a_server_that_closes_while_requests_are_held(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    fault = proxy.hold("requests")
    client.sendall(b"too late")
    assert fault.wait()
    server._sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    server._sockets[0].shutdown(socket.SHUT_RD)
    server.wait_open(0)
    assert was_reset(client)
    assert all_closed(proxy)


def test_a_port_that_is_taken_says_so(server: EchoServer) -> None:
    with pytest.raises(OSError, match="in use"):
        TCPProxy("127.0.0.1", server.port, port=server.port)


def test_nothing_is_left_behind(server: EchoServer) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    proxy = TCPProxy("127.0.0.1", server.port).start()
    assert proxy.start() is proxy
    sockets = [connect(proxy) for _ in range(5)]
    for sock in sockets:
        assert ask(sock, b"x") == b"X"
    proxy.hold("both")
    for sock in sockets:
        sock.sendall(b"x")
    fault = proxy.delay(60)
    proxy.close()
    proxy.close()
    fault.cancel()
    for sock in sockets:
        sock.close()
    server.wait_open(0)
    for thread in server._threads[1:]:
        thread.join(30)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with pytest.raises(RuntimeError, match="not running"):
        proxy.reset()
    with pytest.raises(RuntimeError, match="not running"):
        proxy.start().reset()


def test_a_proxy_that_never_ran_leaves_nothing(server: EchoServer) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    TCPProxy("127.0.0.1", server.port).close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_predicate_that_raises_ends_the_proxy(proxy: TCPProxy, client: socket.socket) -> None:
    proxy.fail(match=lambda data: data[99] == 0)
    client.sendall(b"x")
    assert proxy._thread is not None
    proxy._thread.join(30)
    with pytest.raises(RuntimeError):
        proxy.reset()


def test_a_forked_child_does_not_keep_connections_alive(
    proxy: TCPProxy, client: socket.socket, server: EchoServer
) -> None:
    pid = os.fork()
    if pid == 0:
        client.close()
        time.sleep(30)
        os._exit(0)
    try:
        assert ask(client, b"still") == b"STILL"
        time.sleep(SHORT)
        proxy.reset()
        assert was_reset(client)
    finally:
        assert kill(pid) == -signal.SIGKILL


def test_a_held_connection_to_a_server_by_name(server: EchoServer) -> None:
    with TCPProxy("localhost", server.port, host="127.0.0.1") as proxy:
        assert proxy.address == ("127.0.0.1", proxy.port)
        # "localhost" may be ::1 first, where this server does not listen.
        if proxy._upstream[0] == socket.AF_INET:
            with connect(proxy) as sock:
                assert ask(sock, b"x") == b"X"


# --------------------------------------------------------------------------------------- processes

COUNTER = """
import sys, threading, time
threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
while True:
    sys.stdout.write("."); sys.stdout.flush(); time.sleep(0.005)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", COUNTER], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        try:
            yield process
        finally:
            process.kill()


def ticks(child: subprocess.Popen[bytes], seconds: float = 0.1) -> int:
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    while child.stdout.read(65536):
        pass
    time.sleep(seconds)
    return len(child.stdout.read(65536) or b"")


def test_a_paused_process_stands_still(child: subprocess.Popen[bytes]) -> None:
    pause(child)
    assert process_states(child) == "TT"
    assert ticks(child) == 0
    resume(child)
    assert "T" not in process_states(child.pid)
    assert ticks(child, 0.5) > 0


def test_a_pause_ends_with_its_block(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(KeyError), paused(child.pid):
        assert wait_state(child.pid, "T") == "TT"
        raise KeyError
    assert ticks(child, 0.5) > 0


def test_a_paused_process_may_be_killed(child: subprocess.Popen[bytes]) -> None:
    with paused(child):
        assert kill(child) == -signal.SIGKILL
    assert process_states(child) == ""
    assert kill(child) == -signal.SIGKILL
    for fault in (pause, resume):
        with pytest.raises(ProcessLookupError):
            fault(child)


def test_a_process_is_killed_by_its_pid_and_reaped() -> None:
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", COUNTER],
        {},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)],
    )
    assert kill(pid) == -signal.SIGKILL
    assert process_states(pid) == ""
    assert kill(pid) is None


def test_a_process_of_multiprocessing_is_killed() -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    process.start()
    assert kill(process) == -signal.SIGKILL
    process.close()


def test_what_ended_by_itself_keeps_its_status() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process:
        wait_state(process, "Z")
        with pytest.raises(ProcessLookupError):
            pause(process)
        assert kill(process) == 3


def test_a_grandchild_is_killed_though_it_is_not_ours() -> None:
    code = (
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {COUNTER!r}], stdout=subprocess.DEVNULL)\n"
        "print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        assert kill(grandchild) is None
        wait_state(grandchild, "X")
        parent.wait(30)


def test_waiting_for_a_state_is_bounded(child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(TimeoutError, match="not 'T'"):
        wait_state(child, "T", timeout=0.05)
    kill(child)
    with pytest.raises(ProcessLookupError):
        wait_state(child.pid, "T")
    assert wait_state(child.pid, "X") == ""


class Unstarted:
    pid = None


@pytest.mark.parametrize("target", [0, -1, Unstarted()])
def test_a_process_id_must_be_one(target: int) -> None:
    for fault in (pause, resume, kill):
        with pytest.raises(ValueError, match="no process id"):
            fault(target)
