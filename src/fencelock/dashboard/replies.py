"""Answers: headers that every one of them has, refusals in one line, files of the page.

No script, style, font or request of the page may come from or go to elsewhere, and nothing in it is written
into the HTML: so a name that looks like markup has no way to become any.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Headers", "Refused", "asset", "body_of", "json_of", "login_page", "refusal"]

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
# Not no-referrer: a form would be sent with the origin null then, which is what a stranger's is.
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LARGEST = 64 * 1024


class Refused(Exception):
    """A request that is answered with a status and one line."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status = status
        self.line = line
        self.headers = dict(headers or {})


class Headers:
    """Puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def refusal(request: Request, error: Exception) -> Response:
    """Return the answer to a request that is refused."""
    assert isinstance(error, Refused)
    if _is_api(request):
        return JSONResponse({"error": error.line}, error.status, error.headers)
    return PlainTextResponse(error.line + "\n", error.status, error.headers)


def _is_api(request: Request) -> bool:
    root: str = request.scope.get("root_path", "")
    return request.url.path.removeprefix(root).startswith("/api/")


async def body_of(request: Request) -> bytes:
    """Return the body of a request, unless it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST:
            raise Refused(413, f"the request is too large: at most {LARGEST} bytes")
    return body


async def json_of(request: Request) -> dict[str, Any]:
    """Return what a request says in JSON."""
    try:
        told = json.loads(await body_of(request))
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not JSON") from None
    if not isinstance(told, dict):
        raise Refused(400, "the request is not a JSON object")
    return told


def asset(request: Request, name: str) -> Response:
    """Return a file of the page, or that the browser has it already."""
    path = PAGE / name
    kind = TYPES.get(path.suffix)
    if "/" in name or "\\" in name or "\0" in name or kind is None or not path.is_file():
        raise Refused(404, "there is no such file")
    content = path.read_bytes()
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)


def login_page(*, csrf: str, error: str, mode: str, status: int, headers: Mapping[str, str]) -> Response:
    """Return the login form, with its token and perhaps what was wrong."""
    text = (PAGE / "login.html").read_text()
    for mark, value in {"csrf": csrf, "error": error, "mode": mode}.items():
        text = text.replace("{{" + mark + "}}", html.escape(value))
    return Response(text, status, headers=dict(headers), media_type="text/html")
