"""`fencelock dashboard`: the locks of several backends on a web page, live.

Checked before anything is opened: the options, the secrets, whether the address is safe without them, the
port. Then one line with the address goes to stdout, and the server runs until it is told to end. Streams are
ended first then, so nobody waits for browsers that stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencelock.cli import status
from fencelock.cli.options import DURATION, statuses
from fencelock.connect import default_url
from fencelock.errors import ConfigurationError

if TYPE_CHECKING:
    from fencelock.dashboard.app import Dashboard

__all__ = ["dashboard"]

GOODBYE = 2
"""Seconds that answers under way have to end, when we do."""
TOKEN, PASSWORD = "FENCELOCK_DASHBOARD_TOKEN", "FENCELOCK_DASHBOARD_PASSWORD"

HELP = f"""Show the locks of backends on a web page, live.

Who holds, who waits, since when, with a bar that runs down to expiry; queues, plots, leaders, semaphores,
jobs; what doctor finds; and a way to break a lock, with a reason that goes into an audit log. However many
browsers look, each backend is asked once, and not at all while nobody looks.

It listens on this machine only. Any other --host needs a token, or a user with a password; they are best
given by a file or in ${TOKEN} and ${PASSWORD}, since others can see a command line.

\b
Examples:
  fencelock dashboard
  fencelock dashboard --url redis://cache --url postgresql://app@db/prod
  fencelock dashboard --host 0.0.0.0 --token-file /run/secrets/dashboard --read-only

"""

STATUSES = statuses(
    ("0", "ended by SIGTERM"),
    ("130", "ended by Ctrl-C"),
    ("64", "wrong usage: an option, an address that is not safe, a port in use"),
)


@click.command(
    "dashboard", help=HELP + STATUSES, short_help="Show the locks of backends on a web page, live."
)
@click.option(
    "--url",
    "urls",
    metavar="URL",
    multiple=True,
    help="A backend; several times for several. Default: $FENCELOCK_URL, else an embedded file of this user.",
)
@click.option("--namespace", metavar="NAME", help="Keeps applications apart that share a backend.")
@click.option("--host", default="127.0.0.1", help="The address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), default=8642, help="Default: 8642; 0 for a free one.")
@click.option("--token", metavar="TEXT", help=f"Demand this token. Better: --token-file, or ${TOKEN}.")
@click.option("--token-file", type=Path, metavar="FILE", help="Demand the token in this file.")
@click.option("--user", metavar="NAME", help="Demand this user, with a password.")
@click.option("--password-file", type=Path, metavar="FILE", help=f"The password. Or ${PASSWORD}.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="A name that a reverse proxy calls us by."
)
@click.option("--read-only", is_flag=True, help="Look, but break nothing.")
@click.option("--interval", type=DURATION, default=0.5, help="How often to ask. Default: 500ms.")
@click.option("--audit-log", type=Path, metavar="FILE", help="Default: a file in the user's state folder.")
@click.option("--jobs", metavar="URL", help="Show the jobs of a database, as SQLAlchemy writes it.")
def dashboard(
    urls: tuple[str, ...],
    namespace: str | None,
    host: str,
    port: int,
    token: str | None,
    token_file: Path | None,
    user: str | None,
    password_file: Path | None,
    hosts: tuple[str, ...],
    read_only: bool,
    interval: float,
    audit_log: Path | None,
    jobs: str | None,
) -> int:
    _needs_uvicorn()
    from fencelock.aio import AsyncClient
    from fencelock.dashboard.app import Dashboard
    from fencelock.dashboard.audit import Audit, default_path
    from fencelock.dashboard.gate import Secrets, is_loopback

    secrets = Secrets(_secret("token", token, token_file, TOKEN), user or "", _password(user, password_file))
    secrets.check()
    if not secrets.are_there and not is_loopback(host):
        raise ConfigurationError(
            f"--host {host} lets others in: give --token-file, or --user with --password-file"
        )
    targets = [*urls] or [default_url()]
    for url in targets:
        if "://" not in url and "@" in url:  # it may have a password where nobody looks for one
            raise ConfigurationError("a URL has no scheme: write scheme://user:password@host/…")
        AsyncClient(url, namespace=namespace)  # raises if it cannot be right; opens nothing
    table = _table(jobs)
    with _listening(host, port) as sock, Audit(audit_log or default_path()) as audit:
        board = Dashboard(
            targets,
            namespace=namespace,
            secrets=secrets,
            hosts=[host, *hosts] if hosts or not secrets.are_there else [],
            read_only=read_only,
            interval=interval,
            audit=audit,
            jobs=table,
        )
        return _serve(board, sock)


def _needs_uvicorn() -> None:
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the dashboard needs the package {error.name!r}: pip install 'fencelock[dashboard]'"
        ) from None


def _secret(what: str, given: str | None, file: Path | None, variable: str) -> str:
    if given is not None and file is not None:
        raise click.UsageError(f"two {what}s: give --{what} or --{what}-file")
    if file is not None:
        try:
            given = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--{what}-file {str(file)!r} cannot be read: {error}") from None
    if given == "":
        raise ConfigurationError(f"the {what} is empty: give one, or leave it out")
    return given if given is not None else os.environ.get(variable, "")


def _password(user: str | None, file: Path | None) -> str:
    if user is None:
        if file is not None:
            raise click.UsageError("--password-file goes with --user: give both")
        return ""  # a variable that is there for something else demands nothing
    return _secret("password", None, file, PASSWORD)


def _table(url: str | None) -> Any:
    if url is None:
        return None
    from fencelock.cli.jobs import found_table

    return found_table(None, url, None)


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen, or say why not. Before anything is printed: an address that is shown is one that answers."""
    with contextlib.ExitStack() as stack:
        try:
            family, kind, number, _, address = socket.getaddrinfo(
                host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            sock = stack.enter_context(socket.socket(family, kind, number))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(128)
        except OSError as error:
            told = (error.strerror or str(error)).lower()
            raise ConfigurationError(
                f"cannot listen on {host} port {port}: {told}; give another with --host or --port"
            ) from None
        yield sock


def _serve(board: Dashboard, sock: socket.socket) -> int:
    import uvicorn

    ended: list[int] = []

    class Server(uvicorn.Server):
        """Ends streams when it is told to end, and does not die of the signal that told it."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            before = {one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)

        def handle_exit(self, sig: int, frame: Any) -> None:
            ended.append(sig)
            asyncio.get_event_loop().call_soon_threadsafe(board.hub.close)
            super().handle_exit(sig, frame)

    _log()
    config = uvicorn.Config(
        board.app,
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # X-Forwarded-For is anybody's word
        server_header=False,
        timeout_graceful_shutdown=GOODBYE,
    )
    print(f"fencelock dashboard: {_address(sock)}", flush=True)
    asyncio.run(Server(config).serve(sockets=[sock]))
    return status.by_signal(ended[0]) if ended and ended[0] != signal.SIGTERM else status.OK


def _log() -> None:
    """Let people see on stderr who was refused, and who broke what."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    for name, level in (("fencelock.dashboard", logging.WARNING), ("fencelock.audit", logging.INFO)):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = False
        logger.addHandler(handler)


def _address(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
