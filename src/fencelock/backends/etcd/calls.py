"""What is said on a connection to etcd: calls with one answer each, or one call of many messages both ways.

A thin layer between `net/` and `protocol.py`, which knows of calls and messages and not of who asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fencelock.backends.etcd.protocol import Conversation, Status
from fencelock.net.failures import Disconnected

__all__ = ["Calls", "Metadata", "Question", "Reply", "Watching"]

Metadata = tuple[tuple[str, str], ...]


class Question(NamedTuple):
    """A call of one message."""

    path: str
    metadata: Metadata
    body: bytes


class Reply(NamedTuple):
    """How a call ended, with the code 0 if all went well, and the message of its answer."""

    status: Status
    message: bytes | None


class Calls:
    """Many calls at a time, each a question and its answer."""

    def __init__(self, authority: str, scheme: str) -> None:
        self.is_over = False
        """The server takes no more calls here."""
        self.is_urgent = False
        """The server may be waiting for what is to be sent."""
        self._talk = Conversation(authority, scheme)
        self._messages: dict[int, bytes] = {}
        """Answers that have come, and whose calls have not ended."""

    def ask(self, question: Question) -> int:
        """Make a call; return its number."""
        number = self._talk.begin(question.path, question.metadata)
        self._talk.send(number, question.body, last=True)
        return number

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""
        return self._talk.outgoing()

    def feed(self, data: bytes) -> list[tuple[int, Reply]]:
        """Take in what has come; return the calls that have ended."""
        replies: list[tuple[int, Reply]] = []
        for number, messages, ended in self._talk.feed(data):
            if messages:
                self._messages[number] = messages[0]
            if ended is not None:
                replies.append((number, Reply(ended, self._messages.pop(number, None))))
        self.is_over, self.is_urgent = self._talk.is_leaving, self._talk.is_urgent
        return replies


class Watching:
    """One call, whose messages are the questions and the answers."""

    is_over = is_urgent = False

    def __init__(self, authority: str, scheme: str, path: str, metadata: Metadata) -> None:
        self._talk = Conversation(authority, scheme)
        self._number = self._talk.begin(path, metadata)

    def ask(self, question: bytes) -> int:
        """Send a message."""
        self._talk.send(self._number, question, last=False)
        return self._number

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""
        return self._talk.outgoing()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take in what has come; return the messages. Raises `Disconnected` when the call has ended."""
        for number, messages, ended in self._talk.feed(data):
            for message in messages:
                yield number, message
            if ended is not None:
                raise Disconnected(f"the call has ended: {ended.detail}")
