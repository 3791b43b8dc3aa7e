"""A web server under uvicorn: `contrib_web.py LOCKS FOLDER FRAMEWORK`. It says its port on stdout.

`POST /count/ID` reads a number from a file of FOLDER and writes the next one, with a pause in between.
`POST /hang/ID` says so in the file `hanging`, and never answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from fencelock import AsyncLease
from fencelock.contrib.fastapi import lease
from fencelock.contrib.starlette import fencelock_lifespan, locked

LOCKS, FOLDER, FRAMEWORK = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


async def count(number: int) -> int:
    path = FOLDER / f"count-{number}"
    seen = int(path.read_text()) if path.exists() else 0
    await asyncio.sleep(0.001)
    path.write_text(str(seen + 1))
    return seen + 1


async def hang(token: int) -> None:
    (FOLDER / "hanging").write_text(json.dumps([token, os.getpid()]))
    await asyncio.sleep(600)


def fastapi_app() -> Any:
    app = FastAPI(lifespan=fencelock_lifespan(LOCKS))

    @app.post("/count/{number}")
    async def counted(number: int, turn: Annotated[AsyncLease, lease("n:{number}", timeout=60)]) -> Any:
        return {"count": await count(number), "token": turn.token}

    @app.post("/hang/{number}")
    async def hung(number: int, turn: Annotated[AsyncLease, lease("n:{number}", ttl=2, timeout=0)]) -> None:
        await hang(turn.token)

    return app


def starlette_app() -> Any:
    @locked("n:{number}", timeout=60)
    async def counted(request: Request, lease: AsyncLease) -> JSONResponse:
        number = request.path_params["number"]
        return JSONResponse({"count": await count(number), "token": lease.token})

    @locked("n:{number}", ttl=2, timeout=0)
    async def hung(request: Request, lease: AsyncLease) -> None:
        await hang(lease.token)

    # Mounted: what the lifespan yields reaches an application inside of another.
    routes = [
        Route("/count/{number:int}", counted, methods=["POST"]),
        Route("/hang/{number:int}", hung, methods=["POST"]),
    ]
    return Starlette(routes=[Mount("/", Starlette(routes=routes))], lifespan=fencelock_lifespan(LOCKS))


if __name__ == "__main__":
    app = fastapi_app() if FRAMEWORK == "fastapi" else starlette_app()
    listening = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
