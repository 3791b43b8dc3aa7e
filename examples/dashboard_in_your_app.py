"""The dashboard inside of a web application of yours: mounted under /locks, behind a token.

`fencelock dashboard` serves the same by itself. What is seen here by a program, people see as a page.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
import urllib.request

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from fencelock import Client
from fencelock.dashboard import create_app

TOKEN = "from-a-file-of-yours"


async def shop(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the shop is open")


def application(url: str) -> Starlette:
    board = create_app(url, token=TOKEN, read_only=True)
    # Its lifespan ends what it has open: a thread that asks the backend while somebody looks.
    return Starlette(
        routes=[Route("/", shop), Mount("/locks", app=board)], lifespan=board.router.lifespan_context
    )


def ask(address: str) -> str:
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    return str(urllib.request.urlopen(request, timeout=30).read().decode())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        server = uvicorn.Server(uvicorn.Config(application(url), log_level="warning"))
        serving = threading.Thread(target=server.run, args=([listener],))
        serving.start()
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, client_name="worker") as locks, locks.lock("nightly", metadata={"ticket": 17}):
            print(ask(f"{address}/"))
            lock = json.loads(ask(f"{address}/locks/api/lock?backend=b0&name=nightly"))
            holder = lock["holders"][0]
            print(f"{lock['name']} is held by {holder['client']} with {holder['metadata']}")
        server.should_exit = True
        serving.join()


if __name__ == "__main__":
    main()
