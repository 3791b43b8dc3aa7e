"""Other processes, from the side of the check: start them, talk to them, pause and kill them.

A peer comes from the nursery (see `nursery.py`) and does what `peer.py` says. It reads one JSON
object per line and answers each with one line. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from typing import Any

from fencelock.testing.conformance.actors import settle
from fencelock.testing.conformance.nursery import Nursery

__all__ = ["Peer", "PeerError", "script"]


class PeerError(AssertionError):
    """What a peer was asked to do failed; `kind` is the name of the exception there."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind} in another process: {detail}")
        self.kind = kind


async def script(nursery: Nursery, flavour: str, name: str, options: dict[str, Any], limit: float) -> Any:
    """Run one script of `scripts.py` in a process of its own and return what it reports."""
    process = await asyncio.to_thread(nursery.start, flavour, name, json.dumps(options))
    killer = threading.Timer(limit, process.kill)
    killer.start()
    try:
        process.stdin.close()
        output = await asyncio.to_thread(process.stdout.read)
        status = await asyncio.to_thread(process.wait)
    finally:
        killer.cancel()
        process.kill()
        process.wait()
        process.close()
    if status == -signal.SIGKILL:
        raise AssertionError(f"the script {name} was not done within {limit:g}s")
    lines = output.splitlines()
    if status != 0 or not lines:
        raise AssertionError(f"the script {name} ended with status {status}: {output!r}")
    return _value(json.loads(lines[-1]))


class Peer:
    """A process that takes and gives back locks as it is told."""

    def __init__(self, nursery: Nursery, flavour: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = nursery.start(flavour, "serve")
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._reader = threading.Thread(target=self._read, name="conform-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def start(self, op: str, **options: Any) -> asyncio.Future[Any]:
        """Begin something over there."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        number = len(self._calls)
        self._calls[number] = future
        try:
            self._process.stdin.write(json.dumps({"id": number, "op": op, **options}) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError("Gone", str(error)) from None
        return future

    async def __call__(self, op: str, **options: Any) -> Any:
        """Do something over there and return the result."""
        return await self.start(op, **options)

    def pause(self) -> None:
        """Stop it where it stands."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it and give back its pipes."""
        self.kill()
        self._reader.join(5.0)
        self._process.close()

    def _read(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the check has ended
            for line in self._process.stdout:
                self._loop.call_soon_threadsafe(self._answer, json.loads(line))
            self._loop.call_soon_threadsafe(self._ended)

    def _answer(self, answer: dict[str, Any]) -> None:
        future = self._calls[answer["id"]]
        try:
            settle(future, _value(answer), None)
        except PeerError as error:
            settle(future, None, error)

    def _ended(self) -> None:
        for future in self._calls.values():
            settle(future, None, PeerError("Gone", "it has ended"))


def _value(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        raise PeerError(answer["error"], answer["detail"])
    return answer["value"]
