"""A nursery: one process that has imported the driver, and forks every other process that checks ask for.

To start Python and import a driver takes a third of a second of processor; to fork takes a hundredth, and a
run of all checks asks for thirty processes. The nursery holds no client and starts no thread, so what it
forks is as good as new.

A request is one message on a socket: the arguments, with three files: standard input, standard output, and a
pipe for news of the process: its pid, and its exit status once it has ended. The nursery ends when its socket
does; what it has forked ends when its own standard input does, or is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import IO, Self

from fencelock.backends import backend_from_url
from fencelock.connect import _split_namespace
from fencelock.errors import FencelockError
from fencelock.runtime import locks

__all__ = ["Nursery", "Process", "tend"]

MODULE = "fencelock.testing.conformance.peer"
LONGEST = 65536
"""Bytes of a request."""


class Process:
    """A process that a nursery has forked."""

    def __init__(self, stdin: IO[str], stdout: IO[str], news: IO[str]) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._news = news
        self.pid = int(news.readline() or 0)
        if not self.pid:
            self.close()
            raise RuntimeError("the process that forks others has ended")

    def kill(self) -> None:
        """End it without a word."""
        # What the nursery has to say of it is that it is gone, and its pid may be another's by now.
        if self.returncode is None and not select.select([self._news], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until it is gone, and return its exit status."""
        if self.returncode is None:
            self.returncode = int(self._news.readline() or -signal.SIGKILL)
        return self.returncode

    def close(self) -> None:
        """Give back its pipes."""
        for pipe in (self.stdin, self.stdout, self._news):
            with contextlib.suppress(OSError):
                pipe.close()


class Nursery:
    """The nursery from outside: started with the first process that is asked for."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._latch = locks.lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, *arguments: str) -> Process:
        """Start a process with these arguments of `peer.py`."""
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        ours_news, theirs_news = os.pipe()
        try:
            files = [theirs_in, theirs_out, theirs_news]
            socket.send_fds(self._way(), [json.dumps(arguments).encode()], files)
        finally:
            for file in (theirs_in, theirs_out, theirs_news):
                os.close(file)
        return Process(os.fdopen(ours_in, "w", buffering=1), os.fdopen(ours_out), os.fdopen(ours_news))

    def close(self) -> None:
        """End the nursery."""
        with self._latch:
            if self._socket is not None and self._process is not None:
                self._socket.close()
                self._process.wait()
            self._socket = self._process = None

    def _way(self) -> socket.socket:
        with self._latch:
            if self._socket is None:
                self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", MODULE, "nursery", str(theirs.fileno())],
                        # In the environment a password is not seen by everyone who can list processes.
                        env={**os.environ, "FENCELOCK_URL": self._url},
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                    )
            return self._socket


def tend(number: int) -> list[str]:
    """Be the nursery, on the socket with this number; return, in each child, what it is to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for whoever runs the checks
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    with contextlib.suppress(FencelockError):  # each process that needs it will say so
        backend_from_url(_split_namespace(os.environ["FENCELOCK_URL"])[0])
    gc.collect()
    gc.freeze()
    children: dict[int, int] = {}  # the pipe for news of each
    with socket.socket(fileno=number) as requests:
        while True:
            ready, _, _ = select.select([number, woken], [], [])
            if woken in ready:
                os.read(woken, LONGEST)
                _reap(children)
            if number in ready:
                message, files, _, _ = socket.recv_fds(requests, LONGEST, 3)
                if not message:
                    sys.exit(0)
                if (pid := os.fork()) == 0:
                    _grow_up(files, [woken, wake, *children.values()])
                    return [str(word) for word in json.loads(message)]
                children[pid] = files[2]
                _tell(files[2], pid)
                os.close(files[0])
                os.close(files[1])


def _reap(children: dict[int, int]) -> None:
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _tell(children[pid], os.waitstatus_to_exitcode(status))
            os.close(children.pop(pid))


def _tell(news: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(news, f"{number}\n".encode())


def _grow_up(files: list[int], others: list[int]) -> None:
    """Make this child a process like any other: its own files, and the usual signals."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(files[0], 0)
    os.dup2(files[1], 1)
    for file in (*files, *others):
        os.close(file)
