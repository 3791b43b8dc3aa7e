"""gRPC as etcd speaks it, without any I/O: calls become bytes, and bytes become answers.

A call is a stream of HTTP/2, which the library h2 takes care of: headers, one message or several, each
behind its length, and from the other side the same with a status at the end. Nothing here waits, and
nothing knows of sockets: both flavours feed it.

Why not grpcio: it is no faster (see bench/), has threads of its own that a forked child lacks, and its form
for asyncio does not survive a fork at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from holdfast.backends.etcd.headers import Reader, Writer

__all__ = ["WINDOW", "Answer", "Conversation", "Disconnected", "Status"]

WINDOW = 1 << 24
"""Bytes that the server may send before it must wait for us."""
SETTINGS = {
    h2.settings.SettingCodes.ENABLE_PUSH: 0,
    h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
    h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 1 << 16,
}
CONFIG = h2.config.H2Configuration(
    client_side=True,
    header_encoding=None,
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)
GRPC = [(b"te", b"trailers"), (b"content-type", b"application/grpc")]
UNAVAILABLE = 14
FRAME_HEAD, SETTINGS_FRAME = 9, 4
"""A server's first frame has its settings. Bytes, and the number of that type."""


class Disconnected(Exception):
    """The connection has ended, or what came over it makes no sense."""


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
    """What has been read of an answer so far."""

    __slots__ = ("buffer", "status")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.status: Status | None = None

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
        self._fixed = [
            (b":method", b"POST"),
            (b":scheme", scheme.encode()),
            (b":authority", authority.encode()),
        ]
        self._calls: dict[int, Call] = {}
        self._unsent: deque[tuple[int, bytes, bool]] = deque()
        self._h2 = h2.connection.H2Connection(CONFIG)
        self._h2.encoder = Writer()
        reader = Reader()
        reader.max_header_list_size = self._h2.decoder.max_header_list_size
        self._h2.decoder = reader
        self._h2.local_settings = h2.settings.Settings(client=True, initial_values=SETTINGS)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(WINDOW)
        self._greeting: bytes | None = b""
        self.is_leaving = False
        """The server wants no new calls on this connection."""
        self.is_urgent = False
        """There is something of a call to be written, and not only of the connection."""

    def begin(self, path: str, metadata: Sequence[tuple[str, str]]) -> int:
        """Begin a call; return its number."""
        try:
            call = self._h2.get_next_available_stream_id()
            headers = [(name.encode(), value.encode()) for name, value in metadata]
            self._h2.send_headers(call, [*self._fixed, (b":path", path.encode()), *GRPC, *headers])
        except h2.exceptions.H2Error as error:
            raise Disconnected(str(error)) from error
        self._calls[call] = Call()
        return call

    def send(self, call: int, message: bytes, *, last: bool) -> None:
        """Send a message in a call, as soon as the server has room for it."""
        self._unsent.append((call, b"\0" + len(message).to_bytes(4) + message, last))
        self._push()

    def _push(self) -> None:
        """Send what there is room for: the server says how many bytes it takes, on each call and in all."""
        while self._unsent:
            call, data, last = self._unsent[0]
            if call not in self._calls:
                self._unsent.popleft()  # it has ended, and does not want the rest
                continue
            try:
                room = min(self._h2.local_flow_control_window(call), self._h2.max_outbound_frame_size)
                if room <= 0:
                    return
                self._h2.send_data(call, data[:room], end_stream=last and len(data) <= room)
                self.is_urgent = True
            except h2.exceptions.H2Error as error:
                raise Disconnected(str(error)) from error
            if len(data) > room:
                self._unsent[0] = call, data[room:], last
            else:
                self._unsent.popleft()

    def cancel(self, call: int) -> None:
        """Want no more of a call."""
        if self._calls.pop(call, None) is not None:
            self._reset(call)

    def _reset(self, call: int) -> None:
        try:
            self._h2.reset_stream(call, h2.errors.ErrorCodes.CANCEL)
        except h2.exceptions.H2Error:
            return  # it has ended by itself

    def outgoing(self) -> bytes:
        """Return what is to be written now."""
        self.is_urgent = False
        return self._h2.data_to_send()

    def feed(self, data: bytes) -> list[Answer]:
        """Take in what was read; return what it says, in order. `b""` is the end of the connection."""
        if not data:
            raise Disconnected("it closed the connection")
        if self._greeting is not None:
            data = self._greeting + data
            if len(data) < FRAME_HEAD:
                self._greeting = data
                return []
            if data[3] != SETTINGS_FRAME:  # h2 would wait for a frame as long as these letters say
                raise Disconnected("what it says is no HTTP/2")
            self._greeting = None
        try:
            events = self._h2.receive_data(data)
        except (h2.exceptions.H2Error, ValueError) as error:
            raise Disconnected(f"what it says is no HTTP/2: {error}") from error
        answers: list[Answer] = []
        for event in events:
            answer = self._heard(event)
            if answer is not None:
                answers.append(answer)
        if self._unsent:
            self._push()
        return answers

    def _heard(self, event: Any) -> Answer | None:
        if isinstance(event, h2.events.DataReceived):
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.is_leaving = True
            return None
        number = getattr(event, "stream_id", None)
        call = self._calls.get(number) if number is not None else None
        if call is None:
            return None
        assert number is not None
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
            call.status = _status(event.headers) or call.status
        elif isinstance(event, h2.events.DataReceived):
            call.buffer += event.data
            messages = call.messages()
            return Answer(number, messages, None) if messages else None
        elif isinstance(event, h2.events.StreamEnded):
            del self._calls[number]
            if any(unsent[0] == number for unsent in self._unsent):
                self._reset(number)
            return Answer(number, (), call.status or Status(UNAVAILABLE, "it ended the call without a word"))
        elif isinstance(event, h2.events.StreamReset):
            del self._calls[number]
            return Answer(number, (), call.status or Status(UNAVAILABLE, "it broke off the call"))
        return None


def _status(headers: Sequence[tuple[bytes, bytes]]) -> Status | None:
    found = dict(headers)
    code = found.get(b"grpc-status")
    if code is not None:
        number = int(code) if code.isdigit() else UNAVAILABLE
        return Status(number, unquote(found.get(b"grpc-message", b"").decode("utf-8", "replace")))
    answer = found.get(b":status")
    if answer not in (None, b"200"):
        return Status(UNAVAILABLE, f"HTTP status {answer.decode('ascii', 'replace')}")
    return None
