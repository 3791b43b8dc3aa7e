"""Answers and the requests whose answers are read often: kazoo's, without what they do not need.

An answer of kazoo's has a condition, a lock and a list, and most of them are there before anybody waits. A
list of children is read by kazoo name by name; here in one piece, wherever the names are short and plain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]
from kazoo.protocol.serialization import GetChildren  # type: ignore[import-untyped]

__all__ = ["Answer", "Children"]


class Answer:
    """What will be answered, as kazoo's `AsyncResult`. Set once, by the connection's thread; any may wait.

    Without a lock: the setter first says that it is set and then looks who waits, a waiter first says that
    it waits and then looks whether it is set. So at least one of them sees the other. Perhaps both: a
    callback may be called twice. It is forgotten only when it has been called: if a waiter is interrupted
    before that, another thread calls it.
    """

    __slots__ = ("_calls", "_is_set", "exception", "value")

    def __init__(self) -> None:
        self._is_set = False
        self._calls: list[Callable[[Answer], object]] = []
        self.value: Any = None
        self.exception: Exception | None = None

    def ready(self) -> bool:
        return self._is_set

    def successful(self) -> bool:
        return self._is_set and self.exception is None

    def set(self, value: Any = None) -> None:
        if not self._is_set:
            self.value = value
            self._is_set = True
        if self._calls:
            self._call()

    def set_exception(self, exception: Exception) -> None:
        if not self._is_set:
            self.exception = exception
            self._is_set = True
        if self._calls:
            self._call()

    def rawlink(self, callback: Callable[[Answer], object]) -> None:
        """Call it once this is set, perhaps at once."""
        self._calls.append(callback)
        if self._is_set:
            self._call()

    def _call(self) -> None:
        for callback in list(self._calls):
            callback(self)
            with suppress(ValueError):
                self._calls.remove(callback)  # another thread may have

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return what was answered, or raise it; `KazooTimeoutError` if there is nothing in time."""
        if not self._is_set and block:
            waiting = threading.Lock()
            waiting.acquire()

            def ring(_: Answer) -> None:
                with suppress(RuntimeError):  # it has rung already
                    waiting.release()

            self.rawlink(ring)
            waiting.acquire(timeout=-1 if timeout is None else timeout)
        if not self._is_set:
            raise KazooTimeoutError
        if self.exception is not None:
            raise self.exception
        return self.value

    def get_nowait(self) -> Any:
        return self.get(block=False)


class Children(GetChildren):  # type: ignore[misc]
    """kazoo's request for the children of a znode."""

    @classmethod
    def deserialize(cls, reply: bytes, offset: int) -> list[str]:
        """Return the names. Each has its length before it, four bytes: three zeros, if it is short.

        A zero is in no name, so that they are taken apart by those three. A name is taken for one only if its
        length is right; with others, long or not ASCII, it is done kazoo's way.
        """
        pieces = reply[offset + 4 :].split(b"\0\0\0")
        count = int.from_bytes(reply[offset : offset + 4])
        wrong = [piece for piece in pieces[1:] if not piece or piece[0] != len(piece) - 1]
        if count == len(pieces) - 1 and not wrong:
            text = b"\0".join([piece[1:] for piece in pieces[1:]])
            if text.isascii():
                return text.decode().split("\0") if text else []
        names: list[str] = GetChildren.deserialize(reply, offset)
        return names
