"""The routes of the dashboard: what can be asked, and who is asked for it.

| route | answers |
|---|---|
| `GET /` · `/assets/NAME` | the page; its data comes by the stream |
| `GET /login` · `POST /login` · `POST /logout` | sessions |
| `GET /api/stream` | server-sent events: hello, picture, change, checkup, jobs, audit |
| `GET /api/lock` · `GET /api/audit` | one lock, from the last look; who broke what |
| `POST /api/break` · `POST /api/examine` | the two things that a person can do here |
| `GET /metrics` · `GET /healthz` | for programs |

Who may ask is the business of `entrance.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fencelock._version import __version__
from fencelock.aio import AsyncClient
from fencelock.connect import default_url
from fencelock.core.ports import Backend
from fencelock.dashboard.audit import Audit, told_of
from fencelock.dashboard.gate import Gate, Secrets, Visitor
from fencelock.dashboard.hub import Hub, Listener, frame
from fencelock.dashboard.labels import label_of
from fencelock.dashboard.lookout import Lookout
from fencelock.dashboard.picture import to_json
from fencelock.dashboard.watch import Watcher
from fencelock.durations import Duration, duration
from fencelock.errors import ConfigurationError
from fencelock.extras import refuse_old
from fencelock.runtime import clock

try:
    refuse_old("dashboard", "the dashboard")
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import (
        JSONResponse,
        PlainTextResponse,
        RedirectResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route

    from fencelock.dashboard.entrance import Entrance, address_of, with_cookie
    from fencelock.dashboard.metrics import Metrics
    from fencelock.dashboard.orders import order_of
    from fencelock.dashboard.replies import (
        HEADERS,
        Headers,
        Refused,
        asset,
        json_of,
        refusal,
    )
except ModuleNotFoundError as error:
    package = (error.name or "starlette").partition(".")[0]
    raise ConfigurationError(
        f"the dashboard needs the package {package!r}: pip install 'fencelock[dashboard]'"
    ) from error

__all__ = ["Dashboard", "create_app"]

SHORTEST = 0.05
STREAMS = 500
"""So many browsers at once."""
KEEP = 15.0
"""Seconds of silence after which a stream says that it is there."""


def create_app(
    targets: str | Sequence[str] = (),
    *,
    namespace: str | None = None,
    token: str = "",
    user: str = "",
    password: str = "",
    hosts: Iterable[str] = (),
    read_only: bool = False,
    interval: Duration = 0.5,
    audit_log: str | Path | None = None,
    jobs: Any = None,
) -> Starlette:
    """Return the dashboard over these backends, to be run by itself or mounted into another application.

    Without `token`, and without `user` and `password`, whoever reaches it is in: then it answers only to the
    names of this machine, and to those in `hosts`. `jobs` is a `fencelock.jobs.Table` to show. Without
    `audit_log` what was broken is kept in memory, and logged. An application that mounts it gives
    `lifespan=app.router.lifespan_context`.
    """
    urls = [targets] if isinstance(targets, str) else list(targets)
    dashboard = Dashboard(
        urls or [default_url()],
        namespace=namespace,
        secrets=Secrets(token, user, password),
        hosts=list(hosts),
        read_only=read_only,
        interval=duration(interval, "interval"),
        audit=Audit(Path(audit_log) if audit_log is not None else None),
        jobs=jobs,
    )
    return dashboard.app


class Dashboard:
    """Everything behind the page."""

    def __init__(
        self,
        targets: Sequence[str | Backend],
        *,
        namespace: str | None,
        secrets: Secrets,
        hosts: Sequence[str],
        read_only: bool,
        interval: float,
        audit: Audit,
        jobs: Any = None,
    ) -> None:
        if interval < SHORTEST:
            raise ConfigurationError(f"interval={interval:g} is too short: give at least 50ms")
        began = clock.now()
        self._now: Callable[[], float] = lambda: clock.now() - began
        self.hub = Hub()
        self.lookout = Lookout()
        self.gate = Gate(secrets, self._now, names=hosts, strict=bool(hosts))
        self.entrance = Entrance(self.gate)
        self.audit = audit
        self.read_only = read_only
        self.interval = interval
        self.backends = [label_of(f"b{n}", target, namespace) for n, target in enumerate(targets)]
        ids = itertools.count(1)
        self.watchers = {
            told["id"]: Watcher(
                told["id"],
                _opener(target, namespace),
                interval=interval,
                hub=self.hub,
                ids=ids,
                now=self._now,
                jobs=jobs if n == 0 else None,
            )
            for n, (told, target) in enumerate(zip(self.backends, targets, strict=True))
        }
        self.metrics = Metrics(self.backends, self.watchers)
        self.app = self._made()

    def _made(self) -> Starlette:
        routes = [
            Route("/", self.page),
            Route("/assets/{name}", self.assets),
            Route("/login", self.entrance.login_form, methods=["GET"]),
            Route("/login", self.entrance.login, methods=["POST"]),
            Route("/logout", self.entrance.logout, methods=["POST"]),
            Route("/api/stream", self.stream),
            Route("/api/lock", self.lock),
            Route("/api/audit", self.audited),
            Route("/api/break", self.break_, methods=["POST"]),
            Route("/api/examine", self.examine, methods=["POST"]),
            Route("/metrics", self.scrape),
            Route("/healthz", self.healthz),
        ]
        app = Starlette(
            routes=routes,
            middleware=[Middleware(Headers)],
            exception_handlers={Refused: refusal, Exception: _failed},
            lifespan=self._lifespan,
        )
        app.state.dashboard = self
        return app

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.hub.close()
            await self.lookout.close()
            self.metrics.close()
            self.audit.close()

    # Looking ----------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        """Show the page, or the way to the login form."""
        self.entrance.known_host(request)
        authorization = request.headers.get("authorization", "")
        if not authorization and not self.entrance.has_session(request):
            return RedirectResponse("./login", 303)
        if authorization:
            self.entrance.entered(request)
        return asset(request, "index.html")

    async def assets(self, request: Request) -> Response:
        """Give a file of the page. They hold no data."""
        self.entrance.known_host(request)
        return asset(request, request.path_params["name"])

    async def stream(self, request: Request) -> Response:
        """Tell a browser everything, and then what changes."""
        visitor = self.entrance.entered(request)
        if len(self.hub.listeners) >= STREAMS:
            raise Refused(503, "too many browsers are watching", {"Retry-After": "10"})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        answer = StreamingResponse(self._events(visitor), headers=headers, media_type="text/event-stream")
        return with_cookie(request, answer, visitor)

    async def _events(self, visitor: Visitor) -> AsyncIterator[bytes]:
        listener = self.hub.join()
        try:
            yield frame("hello", to_json(self._hello(visitor)))
            while not listener.closed and self.gate.lasts(visitor):
                if listener.behind:
                    await self.lookout.ask(lambda: self._caught_up(listener))
                yield await listener.get(KEEP) or b":\n\n"
        finally:
            self.hub.leave(listener)

    async def _caught_up(self, listener: Listener) -> None:
        pictures = []
        for watcher in self.watchers.values():
            watcher.wake()
            pictures.append(watcher.frames())
        self.hub.deliver(lambda: listener.begin(b"".join(pictures)))

    def _hello(self, visitor: Visitor) -> dict[str, Any]:
        return {
            "v": 1,
            "at": round(self._now(), 3),
            "wall": round(time.time(), 3),
            "version": __version__,
            "read_only": self.read_only,
            "csrf": self.gate.csrf(visitor.cookie) if visitor.cookie else "",
            "user": visitor.user,
            "interval": self.interval,
            "backends": self.backends,
        }

    async def lock(self, request: Request) -> Response:
        """Tell everything about one lock, as it was last seen."""
        self.entrance.entered(request)
        watcher = self._watcher(request.query_params.get("backend"))
        name = request.query_params.get("name", "")
        found = await self.lookout.ask(lambda: watcher.detail(name))
        if found is None:
            raise Refused(404, "nobody holds this lock, nobody waits for it")
        return JSONResponse(found)

    async def audited(self, request: Request) -> Response:
        """Tell who broke what."""
        self.entrance.entered(request)
        return JSONResponse(self.audit.lines())

    async def scrape(self, request: Request) -> Response:
        """Tell Prometheus."""
        self.entrance.entered(request)
        return Response(await self.lookout.ask(self._measured), media_type=self.metrics.media_type)

    async def _measured(self) -> bytes:
        await asyncio.gather(*(watcher.looked() for watcher in self.watchers.values()))
        return self.metrics.text()

    async def healthz(self, request: Request) -> Response:
        """Say that the dashboard itself is there."""
        return PlainTextResponse("ok\n")

    # Doing ------------------------------------------------------------------------------

    async def break_(self, request: Request) -> Response:
        """Break exactly the owners that were named."""
        visitor = self.entrance.entered(request, change=True)
        if self.read_only:
            raise Refused(403, "this dashboard is read-only")
        told = await json_of(request)
        watcher = self._watcher(told.get("backend"))
        name, owners, reason = order_of(told)
        who = {"user": visitor.user, "address": address_of(request)}
        # Whoever has asked for it may go away: what is broken is written down all the same.
        entries, error = await asyncio.shield(self._broken(watcher, name, owners, who, reason))
        if error is not None:
            raise Refused(503, f"{len(entries)} of {len(owners)} were broken, then: {error}")
        if not entries:
            raise Refused(409, "nothing to break: those who were named have gone already")
        return JSONResponse({"broken": entries})

    async def _broken(
        self, watcher: Watcher, name: str, owners: list[str], who: dict[str, Any], reason: str
    ) -> tuple[list[dict[str, Any]], str | None]:
        done = await self.lookout.ask(lambda: watcher.break_(name, owners))
        entries = [told_of(entry) for entry in done.entries]
        if entries:
            label = next(each["label"] for each in self.backends if each["id"] == watcher.id)
            line = self.audit.add(**who, backend=label, name=name, reason=reason, broken=entries)
            self.hub.send("audit", to_json(line))
        return entries, done.error

    async def examine(self, request: Request) -> Response:
        """Have a set-up examined again."""
        self.entrance.entered(request, change=True)
        watcher = self._watcher((await json_of(request)).get("backend"))
        return JSONResponse({"begun": await self.lookout.ask(watcher.examine)}, 202)

    def _watcher(self, id_: Any) -> Watcher:
        found = self.watchers.get(id_) if isinstance(id_, str) else None
        if found is None:
            raise Refused(404, "there is no such backend")
        return found


def _opener(target: str | Backend, namespace: str | None) -> Callable[[], AsyncClient]:
    return lambda: AsyncClient(target, namespace=namespace, client_name="fencelock dashboard")


async def _failed(request: Request, error: Exception) -> Response:
    # The server's log has the traceback; headers are put on here, since this is outside of all else.
    return JSONResponse({"error": "the dashboard failed: its log says why"}, 500, HEADERS)
