"""Responses: the application's, held back until it is kept; one that was kept before; a refusal."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Message", "Response", "Scope", "Send", "refuse", "replay"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

NOT_KEPT = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"date"})
"""Headers that belong to one connection or one moment."""


class Response:
    """What an application answers: held back until it is kept, or sent on if it is too large for that."""

    def __init__(self, limit: int, send: Send) -> None:
        self._limit = limit
        self._send = send
        self._held: list[Message] = []
        self._body = bytearray()
        self.status = 500
        self.is_complete = False
        self.is_streaming = False
        """It was too large, and is being sent."""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
            if not self.is_streaming:
                self._body += message.get("body", b"")
        if self.is_streaming:
            await self._send(message)
            return
        self._held.append(message)
        if len(self._body) > self._limit:
            self.is_streaming = True
            self._body.clear()
            await self.send_on()

    async def send_on(self) -> None:
        """Send what was held back."""
        held, self._held = self._held, []
        for message in held:
            await self._send(message)

    def kept(self) -> dict[str, Any]:
        """Return what is to be kept."""
        if self.is_streaming:
            return {"large": True}
        headers = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in self._headers
            if name.lower() not in NOT_KEPT
        ]
        return {
            "status": self.status,
            "headers": headers,
            "body": base64.b64encode(bytes(self._body)).decode("ascii"),
        }


async def replay(send: Send, kept: dict[str, Any]) -> None:
    if kept.get("large"):
        await refuse(send, 409, "it was done, and its answer was too large to be kept")
        return
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept["headers"]]
    headers.append((b"idempotency-replayed", b"true"))
    await send({"type": "http.response.start", "status": kept["status"], "headers": headers})
    await send({"type": "http.response.body", "body": base64.b64decode(kept["body"])})


async def refuse(send: Send, status: int, why: str, *more: tuple[str, str]) -> None:
    body = json.dumps({"error": why}).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(body))), *more]
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
