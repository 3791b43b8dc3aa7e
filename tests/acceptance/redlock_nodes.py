"""What the tests of Redlock share: five real servers, proxies before some of them, keys on each node."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.servers import Group  # noqa: E402

import fencelock  # noqa: E402
from fencelock.backends.redlock import RedlockBackend  # noqa: E402
from fencelock.testing import TCPProxy  # noqa: E402

MEMORY = "fencelock:redlock"


def url(members: Sequence[Any], **options: object) -> str:
    """The URL of these servers, or proxies."""
    query = "&".join(f"{key}={value}" for key, value in options.items())
    return (
        "redlock://"
        + ",".join(f"{each.host}:{each.port}" for each in members)
        + (f"?{query}" if query else "")
    )


def client(members: Sequence[Any], **options: object) -> fencelock.Client:
    return fencelock.Client(RedlockBackend.from_url(url(members, **options)))


def async_client(members: Sequence[Any], **options: object) -> fencelock.AsyncClient:
    return fencelock.AsyncClient(RedlockBackend.from_url(url(members, **options)))


def keys(member: Any) -> list[str]:
    """Everything a node has, but for its memory."""
    return [key for key in member.ask("KEYS", "*") if key != MEMORY]


def no_keys(members: Sequence[Any]) -> bool:
    return not any(keys(member) for member in members)


def is_everywhere(members: Sequence[Any], lease: Any) -> bool:
    """Whether every node has the record of this lease, and of no other."""
    key = f"{MEMORY}::{lease.name}"
    return {str(member.ask("GET", key))[:32] for member in members} == {lease.owner}


def names_in_one_bucket(count: int) -> list[str]:
    """Names that share a counter, so that each moves the others' tokens."""
    from fencelock.backends.redlock.keys import Places

    places = Places("")
    wanted = places.find("name-0").bucket
    found = (f"name-{number}" for number in range(10**6))
    return [
        name
        for name, _ in zip((n for n in found if places.find(n).bucket == wanted), range(count), strict=False)
    ]


@contextlib.contextmanager
def behind_proxies(group: Group, count: int) -> Iterator[tuple[list[Any], list[TCPProxy]]]:
    """The members, the first few of them behind proxies."""
    with contextlib.ExitStack() as stack:
        proxies = [
            stack.enter_context(TCPProxy(member.host, member.port)) for member in group.members[:count]
        ]
        yield [*proxies, *group.members[count:]], proxies
