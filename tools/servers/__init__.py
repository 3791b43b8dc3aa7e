"""Installs, starts and stops every server that fencelock is tested against, alone or as an ensemble.

    from tools.servers import start

    with start("redis") as group:
        group.url                    # redis://127.0.0.1:12345
        group.members[0].kill()
        group.members[0].restart()

`start("redis@sid")` starts the version of another Debian suite: see suites.py.

Promised: `start()` returns once the server answers in its own protocol, ensembles once they have their leader
and members; free ports, data in a temporary folder; nothing stays behind, however the calling process ends;
nothing is signalled that was not started here. Only the standard library is needed.

Not promised: servers fit for production. They listen without TLS, most without a password.
"""

from .errors import NotReady, PortClash, ServerError
from .group import Group
from .kinds import ELSEWHERE, KINDS, Kind, start
from .packages import install
from .server import Server

__all__ = [
    "ELSEWHERE",
    "KINDS",
    "Group",
    "Kind",
    "NotReady",
    "PortClash",
    "Server",
    "ServerError",
    "install",
    "start",
]
