"""gRPC as etcd speaks it, without any I/O: calls become bytes, and bytes become answers.

A call is a stream of HTTP/2: headers, one message or several, each behind its length, and from the other
side the same with a status at the end. Nothing here waits, and nothing knows of sockets: both flavours
feed it. What one call has to say is a few bytes, so there is no priority between calls, and what is too
much for the server's window waits in the order in which it was said.

Why not grpcio: it is no faster (see bench/), has threads of its own that a forked child lacks, and its form
for asyncio does not survive a fork at all. Why not h2: it took most of the time of a call; it is what this is
tested with. See decision 17.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import hpack

from fencelock.backends.etcd import frames
from fencelock.backends.etcd.frames import Frame, NoHttp, Splitter, bare, pack, word
from fencelock.backends.etcd.headers import Reader, Writer
from fencelock.net.failures import Disconnected, WrongProtocol

__all__ = ["WINDOW", "Answer", "Conversation", "Status"]

WINDOW = 1 << 24
"""Bytes that the server may send before it must wait for us."""
HEADER_LIMIT = 1 << 16
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
MAX_HEADER_LIST_SIZE = 6
SETTINGS = {ENABLE_PUSH: 0, INITIAL_WINDOW_SIZE: WINDOW, MAX_HEADER_LIST_SIZE: HEADER_LIMIT}
GRPC = ((b"te", b"trailers"), (b"content-type", b"application/grpc"))
UNAVAILABLE = 14
LAST_CALL = (1 << 31) - 1


class Status(Exception):
    """The server refused a call: gRPC's number for it, and its words."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class Answer(NamedTuple):
    """What has come for one call: messages, and how it ended if it has."""

    call: int
    messages: Sequence[bytes]
    ended: Status | None
    """With the code 0 if all went well."""


class Call:
    """What has been read of an answer so far, and what may be said."""

    __slots__ = ("buffer", "is_said", "room", "status", "taken")

    def __init__(self, room: int) -> None:
        self.buffer = bytearray()
        self.status: Status | None = None
        self.room = room
        """Bytes that the server takes."""
        self.taken = 0
        """Bytes that we took, and have given it no room for."""
        self.is_said = False
        """Our side has ended."""

    def messages(self) -> list[bytes]:
        """Take out those that are complete."""
        found = []
        buffer = self.buffer
        while len(buffer) >= 5:
            end = 5 + int.from_bytes(buffer[1:5])
            if len(buffer) < end:
                break
            found.append(bytes(buffer[5:end]))
            del buffer[:end]
        return found


class Conversation:
    """One connection. Whoever uses it from several threads takes turns."""

    def __init__(self, authority: str, scheme: str) -> None:
        self._fixed = (
            (b":method", b"POST"),
            (b":scheme", scheme.encode()),
            (b":authority", authority.encode()),
        )
        self._next = 1
        self._calls: dict[int, Call] = {}
        self._unsent: deque[tuple[int, bytes, bool]] = deque()
        self._out = [
            frames.HELLO,
            pack(frames.SETTINGS, 0, 0, frames.write_settings(SETTINGS)),
            pack(frames.WINDOW_UPDATE, 0, 0, word(WINDOW)),
        ]
        self._writer, self._reader = Writer(), Reader()
        self._reader.max_header_list_size = HEADER_LIMIT
        self._splitter = Splitter()
        self._block: tuple[Frame, bytearray] | None = None
        """Headers of which the rest is to come."""
        self._room = self._first_room = frames.FIRST_WINDOW
        """Bytes that the server takes: in all, and of a new call."""
        self._taken = 0
        self._most = LAST_CALL
        self._frame_size = frames.FRAME_SIZE
        self._answers: list[Answer] = []
        self.is_leaving = False
        """The server wants no new calls on this connection."""
        self.is_urgent = False
        """There is something to be written that the server may be waiting for."""

    # What we say ---------------------------------------------------------------------------------------

    def begin(self, path: str, metadata: Sequence[tuple[str, str]]) -> int:
        """Begin a call; return its number."""
        call = self._next
        if self.is_leaving or call > LAST_CALL:
            raise Disconnected("it takes no more calls on this connection")
        if len(self._calls) >= self._most:
            raise Disconnected(f"it takes no more than {self._most} calls at a time")
        told = ((name.encode(), value.encode()) for name, value in metadata)
        block = self._writer.encode((*self._fixed, (b":path", path.encode()), *GRPC, *told))
        kind, rest = frames.HEADERS, len(block)
        while True:
            part, block = block[: self._frame_size], block[self._frame_size :]
            rest -= len(part)
            self._out.append(pack(kind, 0 if rest else frames.END_HEADERS, call, part))
            if not rest:
                break
            kind = frames.CONTINUATION
        self._next = call + 2
        self._calls[call] = Call(self._first_room)
        return call

    def send(self, call: int, message: bytes, *, last: bool) -> None:
        """Send a message in a call, as soon as the server has room for it."""
        self._unsent.append((call, b"\0" + len(message).to_bytes(4) + message, last))
        self._push()

    def _push(self) -> None:
        """Send what there is room for: the server says how many bytes it takes, of each call and in all."""
        while self._unsent:
            number, data, last = self._unsent[0]
            call = self._calls.get(number)
            if call is None:
                self._unsent.popleft()  # it has ended, and does not want the rest
                continue
            room = min(call.room, self._room, self._frame_size)
            if room <= 0:
                return
            part, rest = data[:room], data[room:]
            call.is_said = last and not rest
            self._out.append(pack(frames.DATA, frames.END_STREAM if call.is_said else 0, number, part))
            self.is_urgent = True
            call.room -= len(part)
            self._room -= len(part)
            if rest:
                self._unsent[0] = number, rest, last
            else:
                self._unsent.popleft()

    def _reset(self, call: int) -> None:
        self._out.append(pack(frames.RESET, 0, call, word(frames.CANCEL)))

    def outgoing(self) -> bytes:
        """Return what is to be written now."""
        self.is_urgent = False
        out = b"".join(self._out)
        self._out.clear()
        return out

    # What the server says ------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Answer]:
        """Take in what was read; return what it says, in order. `b""` is the end of the connection."""
        if not data:
            raise Disconnected("it closed the connection")
        try:
            for frame in self._splitter.split(data):
                if self._block is not None and frame.kind != frames.CONTINUATION:
                    raise NoHttp("headers that do not go on")
                hear = HEAR.get(frame.kind)
                if hear is not None:
                    hear(self, frame)
        except (NoHttp, hpack.HPACKError, ValueError) as error:
            raise WrongProtocol(f"what it says is no HTTP/2: {error}") from error
        if self._unsent:
            self._push()
        answers, self._answers = self._answers, []
        return answers

    def _call_of(self, frame: Frame) -> Call | None:
        """Return the call that a frame belongs to; `None` if it has ended for us."""
        if frame.number % 2 == 0 or frame.number >= self._next:
            raise NoHttp(f"it speaks of call {frame.number}, which nobody made")
        return self._calls.get(frame.number)

    def _data(self, frame: Frame) -> None:
        call = self._call_of(frame)
        size = len(frame.payload)
        self._taken = self._thank(0, self._taken + size)
        if call is None:
            return
        call.buffer += bare(frame)
        messages = call.messages()
        if messages:
            self._answers.append(Answer(frame.number, messages, None))
        if frame.flags & frames.END_STREAM:
            self._end(frame.number, call, "it ended the call without a word")
        else:
            call.taken = self._thank(frame.number, call.taken + size)

    def _thank(self, number: int, taken: int) -> int:
        """Give the server room again for what was taken, when it is much; return what is left of it."""
        if taken < WINDOW // 2:
            return taken
        self._out.append(pack(frames.WINDOW_UPDATE, 0, number, word(taken)))
        self.is_urgent = True
        return 0

    def _headers(self, frame: Frame) -> None:
        self._call_of(frame)
        self._block = frame, bytearray(bare(frame))
        if frame.flags & frames.END_HEADERS:
            self._read_headers()

    def _continuation(self, frame: Frame) -> None:
        if self._block is None or self._block[0].number != frame.number:
            raise NoHttp("headers without a beginning")
        self._block[1].extend(frame.payload)
        if len(self._block[1]) > HEADER_LIMIT:
            raise NoHttp("headers without an end")
        if frame.flags & frames.END_HEADERS:
            self._read_headers()

    def _read_headers(self) -> None:
        assert self._block is not None
        frame, block = self._block
        self._block = None
        headers = self._reader.decode(bytes(block), raw=True)  # whoever it is for: a table goes with it
        call = self._calls.get(frame.number)
        if call is None:
            return
        call.status = _status(headers) or call.status
        if frame.flags & frames.END_STREAM:
            self._end(frame.number, call, "it ended the call without a word")

    def _end(self, number: int, call: Call, otherwise: str) -> None:
        """A call has ended on the server's side, and so on ours."""
        del self._calls[number]
        if not call.is_said:
            self._reset(number)
        self._answers.append(Answer(number, (), call.status or Status(UNAVAILABLE, otherwise)))

    def _broken_off(self, frame: Frame) -> None:
        call = self._call_of(frame)
        if call is not None:
            call.is_said = True  # nobody listens any more
            self._end(frame.number, call, "it broke off the call")

    def _settings(self, frame: Frame) -> None:
        if frame.number:
            raise NoHttp("settings of a call")
        if frame.flags & frames.ACK:
            return
        said = frames.read_settings(frame.payload)
        window = said.get(INITIAL_WINDOW_SIZE, self._first_room)
        size = said.get(MAX_FRAME_SIZE, self._frame_size)
        if window > frames.LARGEST_WINDOW or not frames.FRAME_SIZE <= size < 1 << 24:
            raise NoHttp("settings out of bounds")
        for call in self._calls.values():
            call.room += window - self._first_room
        self._first_room, self._frame_size = window, size
        self._most = said.get(MAX_CONCURRENT_STREAMS, self._most)
        if HEADER_TABLE_SIZE in said:
            self._writer.header_table_size = said[HEADER_TABLE_SIZE]
        self._out.append(pack(frames.SETTINGS, frames.ACK, 0, b""))

    def _promise(self, frame: Frame) -> None:
        raise NoHttp(f"an answer that nobody asked for, in call {frame.number}")

    def _ping(self, frame: Frame) -> None:
        if not frame.flags & frames.ACK:
            self._out.append(pack(frames.PING, frames.ACK, 0, frame.payload))

    def _goodbye(self, frame: Frame) -> None:
        """It finishes the calls up to the one that it names, and knows nothing of the others."""
        self.is_leaving = True
        last = int.from_bytes(frame.payload[:4])
        for number in [number for number in self._calls if number > last]:
            call = self._calls[number]
            call.is_said = True
            self._end(number, call, "it takes no more calls on this connection")

    def _more_room(self, frame: Frame) -> None:
        more = int.from_bytes(frame.payload) & frames.LARGEST_WINDOW
        if frame.number == 0:
            self._room += more
            room = self._room
        else:
            call = self._call_of(frame)
            if call is None:
                return
            call.room += more
            room = call.room
        if not more or room > frames.LARGEST_WINDOW:
            raise NoHttp("a window out of bounds")


HEAR: dict[int, Callable[[Conversation, Frame], None]] = {
    frames.DATA: Conversation._data,
    frames.HEADERS: Conversation._headers,
    frames.CONTINUATION: Conversation._continuation,
    frames.RESET: Conversation._broken_off,
    frames.SETTINGS: Conversation._settings,
    frames.PUSH_PROMISE: Conversation._promise,
    frames.PING: Conversation._ping,
    frames.GOAWAY: Conversation._goodbye,
    frames.WINDOW_UPDATE: Conversation._more_room,
}


def _status(headers: Iterable[tuple[bytes, bytes]]) -> Status | None:
    found = dict(headers)
    code = found.get(b"grpc-status")
    if code is not None:
        number = int(code) if code.isdigit() else UNAVAILABLE
        return Status(number, unquote(found.get(b"grpc-message", b"").decode("utf-8", "replace")))
    answer = found.get(b":status", b"200")
    if answer == b"200" or answer[:1] == b"1":  # the latter is no answer yet
        return None
    return Status(UNAVAILABLE, f"HTTP status {answer.decode('ascii', 'replace')}")
