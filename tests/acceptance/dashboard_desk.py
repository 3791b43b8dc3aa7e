"""A real dashboard on a real port, and somebody who reads its stream.

`serving` runs it on a thread of the test, by the same server that `fencelock dashboard` uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import uvicorn
import uvloop
from crew import wait_until

from fencelock.dashboard import create_app

TOKEN = "open-sesame-and-more"

Frame = dict[str, Any]


@contextlib.contextmanager
def serving(app: Any, buffer: int | None = None) -> Iterator[str]:
    """Serve an application under uvloop, as uvicorn[standard] does; yield its address.

    `buffer` is what the kernel keeps of what nobody reads.
    """
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, proxy_headers=False))
    sock = socket.create_server(("127.0.0.1", 0))
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)

    def serve() -> None:
        # Not server.run: an older uvicorn makes uvloop the policy of the whole process there.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[sock]))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "it serves")
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        board = getattr(app.state, "dashboard", None)
        if board is not None and board.hub.listeners:
            board.hub.deliver(board.hub.close)
        server.should_exit = True
        thread.join(30)
        sock.close()
        assert not thread.is_alive(), "it ends"


@contextlib.contextmanager
def dashboard(*targets: str, buffer: int | None = None, **options: Any) -> Iterator[httpx.Client]:
    """A dashboard over these backends, and a browser's client for it, who is not logged in."""
    options = {"interval": 0.1, **options}
    app = create_app(targets, **options)
    with serving(app, buffer) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


class Stream:
    """A browser that listens."""

    def __init__(self, client: httpx.Client, headers: dict[str, str] | None = None) -> None:
        self.frames: list[tuple[str, dict[str, Any]]] = []
        self.ended = False
        self._client, self._headers = client, headers or {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        event = ""
        try:
            with self._client.stream("GET", "/api/stream", headers=self._headers) as answer:
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        event = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        self.frames.append((event, json.loads(line.removeprefix("data: "))))
        except httpx.HTTPError:
            pass  # whoever waits for a frame will say so
        finally:
            self.ended = True

    def find(self, event: str, wanted: Callable[[Frame], Any] = lambda _: True) -> list[Frame]:
        return [data for kind, data in self.frames if kind == event and wanted(data)]

    def wait(self, event: str, wanted: Callable[[Frame], Any] = lambda _: True) -> Frame:
        """Return the first frame of that kind that fits."""
        found: list[Frame] = wait_until(lambda: self.find(event, wanted), f"a frame {event}")
        return found[0]

    def locks(self, backend: str = "b0") -> dict[str, dict[str, Any]]:
        """The locks by name, as a page has them now."""
        known: dict[int, dict[str, Any]] = {}
        for event, data in list(self.frames):
            if data.get("b") != backend:
                continue
            if event == "picture":
                known = {lock["id"]: dict(lock) for lock in data["locks"]}
            elif event == "change":
                for id_ in data["gone"]:
                    known.pop(id_, None)
                known |= {lock["id"]: dict(lock) for lock in data["put"]}
                for id_, expires, full in data["renewed"]:
                    known[id_] |= {"expires": expires, "full": full}
        return {lock["name"]: lock for lock in known.values()}

    def trouble(self, backend: str = "b0") -> str | None:
        frames = [data for _, data in list(self.frames) if data.get("b") == backend]
        told = [data["trouble"] for data in frames if "trouble" in data]
        return told[-1] if told else None

    @property
    def csrf(self) -> dict[str, str]:
        return {"X-CSRF-Token": self.wait("hello")["csrf"]}


def log_in(client: httpx.Client, **fields: str) -> httpx.Response:
    """Send the login form, as a browser does."""
    form = client.get("/login").text
    csrf = form.partition('name="csrf" value="')[2].partition('"')[0]
    assert csrf
    return client.post(
        "/login", data={"csrf": csrf, **fields}, headers={"Origin": str(client.base_url).rstrip("/")}
    )
