"""Header blocks that are written and read over and over, by heart. What is new, the library hpack does.

Two endpoints of HTTP/2 keep a table of headers, and refer to its rows. What is written here leaves the
table alone, so the same headers are always the same bytes. What is read is the same headers for the same
bytes if these only refer to rows and no row has changed since: every other block makes all that is
known void.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hpack

__all__ = ["Reader", "Writer"]

ROW = 0x80
"""A byte from here on refers to a row, or goes on with a number that does."""
KNOWN = 64


class Writer(hpack.Encoder):
    """Writes header blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[Any, ...], bytes] = {}

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        key = tuple(headers)
        block = self._known.get(key)
        if block is not None and not self.header_table.resized:
            return block
        resized = self.header_table.resized  # which has to be said once, in front
        block = super().encode([(name, value, True) for name, value in key], huffman)
        if not resized:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[key] = block
        return block


class Reader(hpack.Decoder):
    """Reads header blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[Any]] = {}

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:
        block = bytes(data)
        known = self._known.get(block)
        if known is not None:
            return [*known]
        headers = [*super().decode(block, raw)]
        if not raw or len(self._known) >= KNOWN or min(block, default=0) < ROW:
            self._known.clear()
        if raw and min(block, default=0) >= ROW:
            self._known[block] = headers
        return [*headers]
