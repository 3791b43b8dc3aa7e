"""What `Client` and `AsyncClient` share: finding the backend, making terms, surviving a fork."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, quote, urlencode

from fencelock.backends import backend_from_url, hide_password
from fencelock.core.hold import Terms
from fencelock.core.ports import Backend, Origin
from fencelock.core.queue import Mode
from fencelock.core.session import Session
from fencelock.durations import Duration, optional_duration
from fencelock.errors import ConfigurationError, Unsupported, cannot_be_pickled
from fencelock.lock import checked_ttl
from fencelock.names import check_name, check_namespace, encode_metadata, shown
from fencelock.runtime.base import Runtime

__all__ = ["ClientBase", "default_url", "live_sessions", "state_folder"]

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def default_url() -> str:
    """Return `$FENCELOCK_URL`, else the URL of an embedded SQLite file in the user's state directory."""
    url = os.environ.get("FENCELOCK_URL")
    if url:
        return url
    return f"sqlite://{quote(str(state_folder() / 'locks.db'))}?mkdir=yes"


def state_folder() -> Path:
    """Return the folder of this user for what fencelock keeps; it may not exist yet."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # as its specification says: relative paths are to be ignored
        state = "~/.local/state"
    return Path(state).expanduser() / "fencelock"


def live_sessions() -> list[Session]:
    """Return the sessions of this process that are not closed."""
    return [session for session in list(_sessions) if not session.closed]


def _after_fork() -> None:
    for session in list(_sessions):
        session.origin = _origin(session.origin.client)
        forget = getattr(session.runtime, "forked", None)
        if forget is not None:
            forget()
        session.forked()


os.register_at_fork(after_in_child=_after_fork)


def _on_a_thread(close: Callable[[Session], None], session: Session) -> None:
    # Garbage is collected in the middle of anything, of a step on the very same backend too. So
    # not here and now; and the program does not end before the thread has.
    try:
        threading.Thread(target=_retire, args=(close, session), name="fencelock-close").start()
    except RuntimeError:  # too late for new threads
        close(session)


def _retire(close: Callable[[Session], None], session: Session) -> None:
    if session.has_handed_out() and session.runtime.goes_on():
        session.runtime.soon(session.retire)
    else:
        close(session)


def _at_exit() -> None:
    for session in list(_sessions):
        if session.last_will is not None:
            session.last_will(session)


atexit.register(_at_exit)


def _check_select(backend: Backend) -> None:
    import select

    if backend.guarantees.scope == "cluster" and not hasattr(select, "poll"):
        raise ConfigurationError(
            f"the {backend.name} backend needs select.poll, which eventlet's monkey_patch() takes away: "
            "use threads, gevent or asyncio instead of eventlet"
        )


def _origin(client_name: str | None) -> Origin:
    import socket  # only now: whoever imports fencelock need not connect

    program = client_name if client_name is not None else Path(sys.argv[0] or "python").name
    return Origin(program, socket.gethostname(), os.getpid())


class ClientBase:
    """A session on one backend, and the terms that calls are made on."""

    def __init__(
        self, runtime: Runtime, target: str | Backend | None, namespace: str | None, client_name: str | None
    ) -> None:
        if target is None:
            target = default_url()
        if isinstance(target, str):
            target, from_url = _split_namespace(target)
            namespace = namespace if namespace is not None else from_url
            self._shown = hide_password(target)
            target = backend_from_url(target)
        elif isinstance(target, Backend):
            self._shown = repr(target)
        else:
            raise ConfigurationError(f"target={shown(target)} is neither a URL nor a backend")
        if client_name is not None:
            check_name(client_name, "client_name")
        _check_select(target)
        self._session = Session(runtime, target, check_namespace(namespace or ""), _origin(client_name))
        _sessions.add(self._session)

    def _give_back_when_gone(self, close: Callable[[Session], None]) -> None:
        """Let `close` run when nobody has this client any more, or when the program ends."""
        self._session.last_will = close
        self._finalizer = weakref.finalize(self, _on_a_thread, close, self._session)
        self._finalizer.atexit = False

    def _terms(
        self,
        name: str,
        mode: Mode,
        limit: int,
        *,
        ttl: Duration,
        timeout: Duration | None,
        renew: bool,
        max_hold: Duration | None,
        reentrant: bool,
        metadata: Any,
        on_lost: Callable[[Any], Any] | None,
    ) -> Terms:
        session = self._session
        self._require(mode)
        if on_lost is not None and not callable(on_lost):
            raise ConfigurationError(
                f"on_lost={on_lost!r} is not callable: give a function that takes the lease"
            )
        return Terms(
            name=check_name(name),
            mode=mode,
            limit=limit,
            ttl=checked_ttl(ttl, session),
            timeout=optional_duration(timeout, "timeout"),
            renew=bool(renew),
            max_hold=_positive(max_hold, "max_hold"),
            reentrant=bool(reentrant),
            metadata=encode_metadata(metadata),
            on_lost=on_lost,
        )

    def _ready(self, capability: str) -> Session:
        self._require(capability)
        self._session.check_open()
        return self._session

    def _require(self, capability: str) -> None:
        backend = self._session.backend
        if capability not in backend.capabilities:
            raise Unsupported(capability=capability, backend=backend.name)

    def __reduce__(self) -> NoReturn:
        raise cannot_be_pickled(self, "make a new one in the child process, with the same URL")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown}>"


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of a multi-lock, each once, in the one order that everybody uses."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ConfigurationError(f"names={shown(names)} is not a list of names: give several, as a list")
    ordered = sorted({check_name(name) for name in names}, key=str.encode)
    if not ordered:
        raise ConfigurationError("names=[] is empty: give at least one name")
    return ordered


def _positive(value: Duration | None, what: str) -> float:
    seconds = optional_duration(value, what)
    if seconds == 0:
        raise ConfigurationError(f"{what}={value!r} is no time at all: give more than 0 seconds")
    return seconds


def _split_namespace(url: str) -> tuple[str, str | None]:
    """Take `namespace` out of a URL's options; the rest of the URL stays as it was written."""
    base, _, rest = url.partition("?")
    query, mark, fragment = rest.partition("#")
    options = parse_qsl(query, keep_blank_values=True)
    namespaces = [value for key, value in options if key == "namespace"]
    if not namespaces:
        return url, None
    others = urlencode([(key, value) for key, value in options if key != "namespace"])
    return f"{base}?{others}{mark}{fragment}" if others else f"{base}{mark}{fragment}", namespaces[-1]
