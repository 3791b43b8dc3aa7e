"""Frames of HTTP/2: bytes become frames, and frames become bytes.

A frame is a head of nine bytes (how long it is, its kind, flags, the number of the call) and what follows.
Kinds that are not listed here say nothing to us, which is what the standard asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct, iter_unpack
from typing import NamedTuple

__all__ = [
    "ACK",
    "CANCEL",
    "CONTINUATION",
    "DATA",
    "END_HEADERS",
    "END_STREAM",
    "FIRST_WINDOW",
    "FRAME_SIZE",
    "GOAWAY",
    "HEADERS",
    "HELLO",
    "LARGEST_WINDOW",
    "PING",
    "PUSH_PROMISE",
    "RESET",
    "SETTINGS",
    "WINDOW_UPDATE",
    "Frame",
    "NoHttp",
    "Splitter",
    "bare",
    "pack",
    "read_settings",
    "word",
    "write_settings",
]

DATA, HEADERS, RESET, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, *range(3, 10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
CANCEL = 8
"""Why a call is broken off: nobody wants it any more."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FIRST_WINDOW = 65_535
"""Bytes that either side takes before it has said anything else."""
LARGEST_WINDOW = (1 << 31) - 1
FRAME_SIZE = 16_384
"""The longest frame that we take, and that the server takes before it has said anything else."""
HEAD = Struct(">HBBBI")
LENGTHS = {RESET: 4, PING: 8, WINDOW_UPDATE: 4}


class NoHttp(Exception):
    """What was read makes no sense."""


class Frame(NamedTuple):
    """One frame; the number 0 is the connection's own."""

    kind: int
    flags: int
    number: int
    payload: bytes


def pack(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    """Return a frame as it is written."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, number) + payload


def word(number: int) -> bytes:
    """Return a number as the payloads have it."""
    return number.to_bytes(4)


def write_settings(settings: Mapping[int, int]) -> bytes:
    """Return the payload that says so."""
    return b"".join(code.to_bytes(2) + word(value) for code, value in settings.items())


def read_settings(payload: bytes) -> dict[int, int]:
    """Return what a payload says."""
    if len(payload) % 6:
        raise NoHttp("settings that are cut off")
    return dict(iter_unpack(">HI", payload))


def bare(frame: Frame) -> bytes:
    """Return the payload of DATA or HEADERS without what is only there to fill it up."""
    payload = frame.payload
    start, end = 0, len(payload)
    if frame.flags & PADDED:
        if not payload or payload[0] >= end:
            raise NoHttp("more padding than there are bytes")
        start, end = 1, end - payload[0]
    if frame.kind == HEADERS and frame.flags & PRIORITY:
        start += 5
    if start > end:
        raise NoHttp("a frame that is too short")
    return payload[start:end] if (start, end) != (0, len(payload)) else payload


class Splitter:
    """Cuts what is read into frames, wherever the reads end."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_first = True

    def split(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now; keep the beginning of the next."""
        if self._rest:
            data = self._rest + data
        start, end = 0, len(data)
        while end - start >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(data, start)
            if self._is_first and kind != SETTINGS:  # before it waits for as many bytes as these letters say
                raise NoHttp("it does not begin with its settings")
            size = high << 8 | low
            if size > FRAME_SIZE or size != LENGTHS.get(kind, size):
                raise NoHttp(f"a frame of {size} bytes")
            following = start + HEAD.size + size
            if following > end:
                break
            self._is_first = False
            yield Frame(kind, flags, number & LARGEST_WINDOW, data[start + HEAD.size : following])
            start = following
        self._rest = data[start:]
