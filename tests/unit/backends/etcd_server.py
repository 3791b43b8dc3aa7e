"""A server of gRPC without I/O, made of h2: what our own side of HTTP/2 is tried with."""

from __future__ import annotations

from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

__all__ = ["CALL", "FIRST_WINDOW", "Server", "framed"]

FIRST_WINDOW = 65_535
CALL = "/etcdserverpb.KV/Range"


class Server:
    """The other side. It gives back room only when told to, if `generous` is false."""

    def __init__(self, *, window: int = FIRST_WINDOW, streams: int = 1000, generous: bool = True) -> None:
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding=None)
        )
        codes = h2.settings.SettingCodes
        values = {codes.INITIAL_WINDOW_SIZE: window, codes.MAX_CONCURRENT_STREAMS: streams}
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.generous = generous
        self.headers: dict[int, dict[bytes, bytes]] = {}
        self.bodies: dict[int, bytes] = {}
        self.longest = 0
        self.ended: list[int] = []
        self.reset: dict[int, int] = {}

    def take(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                assert event.stream_id is not None
                pairs: Any = event.headers
                self.headers[event.stream_id] = dict(pairs)
                self.bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                assert event.stream_id is not None
                assert event.flow_controlled_length is not None
                assert event.data is not None
                self.bodies[event.stream_id] += event.data
                self.longest = max(self.longest, len(event.data))
                if self.generous:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                assert event.stream_id is not None
                self.ended.append(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                assert event.stream_id is not None
                assert event.error_code is not None
                self.reset[event.stream_id] = int(event.error_code)

    def begin(self, call: int, *, status: bytes = b"200") -> None:
        self.h2.send_headers(call, [(b":status", status), (b"content-type", b"application/grpc")])

    def end(self, call: int, code: bytes = b"0", message: bytes = b"") -> None:
        self.h2.send_headers(call, [(b"grpc-status", code), (b"grpc-message", message)], end_stream=True)

    def refuse(self, call: int, code: bytes, message: bytes) -> None:
        """Answer with nothing but trailers."""
        headers = [(b":status", b"200"), (b"grpc-status", code), (b"grpc-message", message)]
        self.h2.send_headers(call, headers, end_stream=True)

    def answer(self, call: int, *messages: bytes) -> None:
        self.begin(call)
        self.h2.send_data(call, b"".join(framed(message) for message in messages))
        self.end(call)


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message
