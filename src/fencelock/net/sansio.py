"""What a backend brings for its connections: its protocol, without I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

__all__ = ["SansIO"]

Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class SansIO(Protocol[Q_contra, A_co]):
    """One side of a conversation, without I/O."""

    def ask(self, question: Q_contra) -> Hashable:
        """Put a question; return what its answer will be known by."""

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""

    def feed(self, data: bytes) -> Iterable[tuple[Hashable, A_co]]:
        """Take in what has come, nothing being the end; return the answers that are whole now.

        Raises `Disconnected`, of which `WrongProtocol` is one.
        """

    @property
    def is_over(self) -> bool:
        """Whether the server takes no more questions on this connection."""

    @property
    def is_urgent(self) -> bool:
        """Whether the server may be waiting for what is to be sent. All else goes with the next question."""
