"""Scripts for a process of their own: what forks, and what interrupts the main thread.

Each runs on the main thread, as a blocking program or as an asyncio program, and returns
what it saw as plain data; the check that started it judges.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import fencelock
from fencelock.aio import AsyncClient
from fencelock.client import Client
from fencelock.runtime.blocking import run
from fencelock.testing.conformance.actors import inside, io, nap
from fencelock.testing.conformance.loops import run_async

__all__ = ["perform"]

Interrupted = (KeyboardInterrupt, asyncio.CancelledError)
LONG = 20.0
"""Far longer than any interrupt takes to arrive."""


def perform(flavour: str, name: str, /, **options: Any) -> Any:
    """Run a script in a flavour."""
    scripts: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
        "fork": fork,
        "interrupt_wait": interrupt_wait,
        "interrupt_body": interrupt_body,
        "interrupt_everywhere": interrupt_everywhere,
    }
    return drive(flavour, lambda: scripts[name](flavour, **options))


def drive(flavour: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine as a blocking program, or under asyncio."""
    return run(main()) if flavour == "blocking" else run_async(main())


def new_client(flavour: str) -> Any:
    """Return a client for `$FENCELOCK_URL`."""
    return Client() if flavour == "blocking" else AsyncClient()


# Fork -----------------------------------------------------------------------------------


async def fork(flavour: str, *, held: str, other: str, ttl: float) -> dict[str, Any]:
    """Hold a lock, fork, and report what each side sees."""
    client = new_client(flavour)
    lease = await io(client.lock(held, ttl=ttl).acquire())
    child = await in_child(flavour, lambda: _in_the_child(client, lease, other, ttl))
    at_once = {"held": lease.is_held(), "verified": await io(lease.verify())}
    await nap(2 * ttl)
    later = {"held": lease.is_held(), "verified": await io(lease.verify())}
    again = await io(client.lock(other, ttl=ttl).acquire(timeout=ttl + 5))
    report = {
        "child": child,
        "at once": at_once,
        "later": later,
        "owner": lease.owner,
        "token": again.token,
        "released": await io(lease.release()),
    }
    await io(client.close())
    return report


async def _in_the_child(client: Any, lease: Any, other: str, ttl: float) -> dict[str, Any]:
    report: dict[str, Any] = {"held": lease.is_held(), "remaining": lease.remaining()}
    try:
        lease.check()
    except fencelock.FencelockError as error:
        report["check"] = type(error).__name__
    report["released"] = await io(lease.release())
    async with inside(client.lock(other, ttl=ttl, timeout=5)) as own:
        await nap(1.5 * ttl)  # only a lease that is renewed survives this
        report["own"] = {"held": own.is_held(), "owner": own.owner, "token": own.token}
    await io(client.close())
    return report


async def in_child(flavour: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Fork, run `main` in the child, and return what it reports."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork in a process with threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _be_the_child(flavour, main, writer)
    os.close(writer)
    try:
        return await _hear(reader)
    finally:
        os.close(reader)
        os.waitpid(pid, 0)


def _be_the_child(flavour: str, main: Callable[[], Coroutine[Any, Any, Any]], writer: int) -> None:
    try:
        signal.alarm(int(LONG))
        report = drive(flavour, main)
    except BaseException as error:
        report = {"failed": f"{type(error).__name__}: {error}"}
    os.write(writer, json.dumps(report).encode())
    os._exit(0)


async def _hear(reader: int) -> Any:
    os.set_blocking(reader, False)
    text = b""
    while True:
        try:
            part = os.read(reader, 65536)
        except BlockingIOError:
            await nap(0.01)
            continue
        if not part:
            return json.loads(text) if text else {"failed": "the child ended without a report"}
        text += part


# Ctrl-C ---------------------------------------------------------------------------------


def ctrl_c(after: float) -> None:
    """Interrupt the main thread in so many seconds, as Ctrl-C does."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(after, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()


async def interrupt_wait(flavour: str, *, name: str, ttl: float, after: float) -> dict[str, Any]:
    """Wait for a lock that is held, and press Ctrl-C meanwhile."""
    client = new_client(flavour)
    lease = await io(client.lock(name, ttl=ttl).acquire())
    raised = ""
    ctrl_c(after)
    try:
        await io(client.lock(name, ttl=ttl).acquire(timeout=LONG))
    except Interrupted as error:
        raised = type(error).__name__
        _uncancel()
    state = await io(client.inspect(name))
    await io(lease.release())
    free = await io(client.inspect(name))
    report = {"raised": raised, "waiters": len(state.waiters), "free": free.is_free}
    await io(client.close())
    return report


async def interrupt_body(flavour: str, *, name: str, ttl: float, after: float) -> dict[str, Any]:
    """Press Ctrl-C inside a `with` block."""
    client = new_client(flavour)
    raised = ""
    ctrl_c(after)
    try:
        async with inside(client.lock(name, ttl=ttl)):
            await nap(LONG)
    except Interrupted as error:
        raised = type(error).__name__
        _uncancel()
    state = await io(client.inspect(name))
    report = {"raised": raised, "waiters": len(state.waiters), "free": state.is_free}
    await io(client.close())
    return report


def _uncancel() -> None:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return
    if task is not None:
        task.uncancel()


class Interrupter:
    """Raises `KeyboardInterrupt` at the n-th place at which Python could: in fencelock and all that it calls.

    CPython looks for signals when a function begins and when one that is written in C comes back; some of
    those look for themselves while they wait. (And when a loop goes round, which is never far from a call.)
    What a function in C has done is done then, and what it returns is lost. Nowhere else: a lock that `with`
    takes is always given back, also where a line that is traced would seem to come between.
    """

    own = str(Path(__file__).parent)
    waits = frozenset(
        {"acquire", "connect", "poll", "recv", "recv_into", "select", "send", "sendall", "sleep"}
    )
    destructors = frozenset({"__del__", "__repr__", "_remove", "drop"})
    """What runs when something is garbage: Python swallows what it raises. (A socket's is for a warning.)"""

    def __init__(self, place: int) -> None:
        self.left = place
        self.where = ""
        self._looking = self._look  # kept: Python 3.11 may call it once more when it has let go of it

    def __enter__(self) -> Interrupter:
        sys.setprofile(self._looking)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, function: Any) -> None:
        if event in {"call", "c_return"} or (event == "c_call" and function.__name__ in self.waits):
            if frame.f_code.co_filename.startswith(self.own):
                return
            self.left -= 1
            if self.left <= 0 and not self._is_swallowed(frame):
                sys.setprofile(None)
                self.where = f"{_place(frame)} {event} {getattr(function, '__name__', '')}".strip()
                raise KeyboardInterrupt

    def _is_swallowed(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name in self.destructors:
                return True
            frame = frame.f_back
        return False


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"


async def interrupt_everywhere(flavour: str, *, prefix: str, ttl: float, within: float) -> dict[str, Any]:
    """Interrupt `with lock: pass` at every place in turn; report what is left of each lock."""
    _expect_loose_ends()
    with Client() as founder, founder.lock(f"{prefix}first", ttl=ttl):
        """What the first client ever sets up on a server is not part of this."""
    client = Client()
    names: dict[str, str] = {}
    kept: list[Any] = []  # as programs keep them: what is released must not need their end
    missed = 0
    while True:
        name = f"{prefix}{len(names)}"
        interrupter = Interrupter(len(names) + 1)
        kept.append(client.lock(name, ttl=ttl))
        if not _interrupted(kept[-1], interrupter, kept):
            missed += 1
        if not interrupter.where:
            break  # it came to its end before that one
        names[name] = interrupter.where
    await _until_gone(client, prefix, within)
    left = {names.get(state.name, "the end"): len(state.holders) for state in client.list(prefix)}
    client.close()
    return {"places": len(names), "left": left, "swallowed": missed - 1}


def _expect_loose_ends() -> None:
    """A coroutine that was interrupted before it began, or a destructor, is worth no warning here."""
    warnings.simplefilter("ignore", RuntimeWarning)
    sys.unraisablehook = lambda _: None


def _interrupted(lock: Any, interrupter: Interrupter, kept: list[Any]) -> bool:
    try:
        with interrupter, lock as lease:
            kept += (lease,)
    except KeyboardInterrupt:
        return True
    return False


async def _until_gone(client: Any, prefix: str, within: float) -> None:
    for _ in range(int(within / 0.05)):
        gc.collect()
        if not client.list(prefix):
            return
        await nap(0.05)
