"""Users of Redis as docs/reference/permissions.md makes them, and what a server tells of what they did."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import rights_modules as modules
from rights_page import block, names, rows
from rights_site import Site

PASSWORD = "marlinspike"
OWN = {"~documents:*", "+incrby", "+select"}
"""What the page adds for keys of the user's own and a database other than 0."""
ADMIN = {"acl|log", "acl|setuser", "auth", "client|setinfo", "config|resetstat", "hello", "info", "keys"}
ADMIN |= {"pubsub|channels", "script|flush"}
"""What the tests say themselves, and what clients say in greeting."""


class Store(NamedTuple):
    """Servers, and everything that was seen there."""

    group: Any
    keys: set[str]
    channels: set[str]

    def ask(self, *words: str) -> list[Any]:
        return [member.ask(*words) for member in self.group.members]

    def see(self) -> None:
        for seen, words in ((self.keys, ("KEYS", "*")), (self.channels, ("PUBSUB", "CHANNELS"))):
            for found in self.ask(*words):
                seen.update(str(name) for name in found)

    def user(self, role: str, *more: str) -> str:
        """Make the user of a role as the page says; return its URL."""
        name, *rights = block(f"Redis {role}").replace("PASSWORD", PASSWORD).split()[2:]
        self.ask("ACL", "SETUSER", name, "reset", *rights, *more)
        scheme, _, rest = str(self.group.url).partition("://")
        return f"{scheme}://{name}:{PASSWORD}@{rest}"


def site(store: Store, role: str, flavour: str, folder: Path, *more: str, **options: Any) -> Site:
    url = store.user(role, *more)
    server = re.sub(r"^valkey|^redis\+cluster", "redis", url).partition(",")[0]
    return Site(url, flavour, folder, server=server, see=store.see, **options)


def use_everything(worker: Site) -> None:
    modules.locks(worker)
    modules.schedules(worker)
    modules.records_of_a_client(worker)
    modules.flights(worker)
    modules.flights(worker, "client")
    modules.idempotency_keys(worker, crashed=False)
    modules.registers(worker)
    modules.exchanges(worker)
    modules.redis_fences(worker)


def used(store: Store) -> set[str]:
    """Return the commands that were run since the last look, but for those of the tests."""
    found = set()
    for member in store.group.members:
        if member.is_primary():  # a replica is told what was written in other words
            for name, told in member.info("INFO", "commandstats").items():
                if "calls=0" not in told.split(","):
                    found.add(name.removeprefix("cmdstat_"))
    return found - ADMIN


def refused(store: Store) -> set[str]:
    """Return what users were refused, by the server's own log."""
    entries = [entry for found in store.ask("ACL", "LOG") for entry in found]
    told = {dict(zip(entry[::2], entry[1::2], strict=True))["object"] for entry in entries}
    return told - {"client|setinfo"}


def granted(role: str, *more: str) -> set[str]:
    words = {*block(f"Redis {role}").split(), *more}
    return {word[1:] for word in words if word.startswith("+")}


def counting(store: Store) -> None:
    """Begin anew with what `used` and `refused` tell."""
    for words in (("ACL", "LOG", "RESET"), ("SCRIPT", "FLUSH"), ("CONFIG", "RESETSTAT")):
        store.ask(*words)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one of those that a pattern of the page stands for."""
    parts = {"{N}": r"\{\d+\}", "HASH": "[0-9a-f]{64}", "ID": "[0-9a-f]+", "{KEY}": r"\{.+\}(:.+)?"}
    words = re.split(r"(\{N\}|\{KEY\}|[A-Z]{2,})", pattern)
    return (
        re.fullmatch("".join(parts.get(w, ".*" if w.isupper() else re.escape(w)) for w in words), name)
        is not None
    )


def patterns() -> list[str]:
    cells = rows("What each module uses", "Redis, Valkey").values()
    return [name for cell in cells for name in names(cell) if ":" in name and "://" not in name]
