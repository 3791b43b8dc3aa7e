"""The gate over HTTP: cookies, the login form, and what somebody who is refused is told.

A route that changes something asks, in this order: is the host ours, is the origin ours, who is it, does the
CSRF token belong to the session. The rest is the route's own business.
"""

from __future__ import annotations

import logging
import math
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencelock.dashboard.gate import LIFE, Gate, Visitor
from fencelock.dashboard.replies import Refused, body_of, login_page

__all__ = ["Entrance", "address_of", "with_cookie"]

STALE = "this page is out of date: reload it, and try again"
TOO_MANY = "too many wrong tries: wait a moment"

log = logging.getLogger("fencelock.dashboard")


class Entrance:
    """Lets requests in, or refuses them."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def known_host(self, request: Request) -> None:
        """Refuse a request that calls us by a name that is not ours."""
        if not self.gate.knows_host(request.headers.get("host", "")):
            raise Refused(403, "this name is not one of the dashboard's: start it with --allow-host NAME")

    def _same_origin(self, request: Request) -> None:
        self.known_host(request)
        if not self.gate.is_ours(request.headers):
            raise Refused(403, "the request comes from another origin")

    def has_session(self, request: Request) -> bool:
        """Whether a browser need not log in."""
        return self.gate.visitor(_cookie(request), "") is not None

    def entered(self, request: Request, *, change: bool = False) -> Visitor:
        """Return who asks, or refuse; with `change` the CSRF token of the session must be there."""
        self._same_origin(request)
        authorization = request.headers.get("authorization", "")
        visitor = self.gate.visitor(_cookie(request), authorization)
        if visitor is None and authorization:
            self._may_try(request)
            visitor = self.gate.try_authorization(address_of(request), authorization)
        if visitor is None:
            raise Refused(401, "log in first", {"WWW-Authenticate": "Bearer"})
        if change and visitor.cookie:
            token = request.headers.get("x-csrf-token", "")
            if visitor.is_new or not self.gate.is_csrf(visitor.cookie, token):
                raise Refused(403, STALE)
        return visitor

    def _may_try(self, request: Request) -> None:
        wait = self.gate.wait(address_of(request))
        if wait > 0:
            raise Refused(429, TOO_MANY, {"Retry-After": str(math.ceil(wait))})

    async def login_form(self, request: Request) -> Response:
        """Show the login form."""
        self.known_host(request)
        if self.has_session(request):
            return RedirectResponse("./", 303)
        return self._form(request, "", 200)

    def _form(self, request: Request, error: str, status: int, **headers: str) -> Response:
        form = self.gate.form(_cookie(request))
        answer = login_page(
            csrf=self.gate.csrf(form.cookie),
            error=error,
            mode=self.gate.secrets.mode,
            status=status,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        return with_cookie(request, answer, form)

    async def login(self, request: Request) -> Response:
        """Take the login form."""
        self._same_origin(request)
        fields = parse_qs((await body_of(request)).decode(errors="replace"), keep_blank_values=True)
        given = {key: fields[key][0] for key in ("token", "user", "password") if fields.get(key)}
        if not self.gate.is_form(_cookie(request), fields.get("csrf", [""])[0]):
            return self._form(request, "the form was out of date: try again", 403)
        wait = self.gate.wait(address_of(request))
        if wait > 0:
            return self._form(request, TOO_MANY, 429, Retry_After=str(math.ceil(wait)))
        user = self.gate.try_secrets(address_of(request), **given)
        if user is None:
            log.warning("a login from %s was refused", address_of(request))
            return self._form(request, "that is not right", 401)
        return with_cookie(request, RedirectResponse("./", 303), self.gate.begin(user))

    async def logout(self, request: Request) -> Response:
        """End a session."""
        self._same_origin(request)
        self.gate.end(_cookie(request))
        return RedirectResponse("./login" if self.gate.secrets.are_there else "./", 303)


def _cookie_name(request: Request) -> str:
    # A browser has one jar for all ports of a host: two dashboards must not log each other out.
    server = request.scope.get("server") or ("", 0)
    return f"fencelock_{server[1] or 0}"


def _cookie(request: Request) -> str:
    return request.cookies.get(_cookie_name(request), "")


def with_cookie(request: Request, answer: Response, visitor: Visitor) -> Response:
    """Return an answer that sets the cookie of a new session."""
    if visitor.is_new:
        # Behind a proxy that speaks TLS, the browser's own word for its origin tells.
        is_secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        answer.set_cookie(
            _cookie_name(request),
            visitor.cookie,
            max_age=int(LIFE),
            path=f"{request.scope.get('root_path', '')}/",
            secure=is_secure,
            httponly=True,
            samesite="strict",
        )
    return answer


def address_of(request: Request) -> str:
    """Return where the connection comes from. No header says so: those are anybody's word."""
    return request.client.host if request.client else "?"
