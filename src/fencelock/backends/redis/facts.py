"""What a server tells of itself, and what its user may do there: the facts that `doctor` judges.

It reads HELLO (which every user may call), INFO and CONFIG GET; `pulse` asks for the TIME. What the user
may do is found out by trying: a server looks at a user's rights before it looks at a command's arguments, so
a call that makes no sense, or that finds nothing, tells whether a good one would be allowed. Nothing is
written. SUBSCRIBE is tried on a connection of its own, which is good for nothing else afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fencelock.backends.checkup import timed
from fencelock.backends.redis.commands import pack
from fencelock.backends.redis.keys import Places, counter
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.topology import One
from fencelock.backends.redis.wire import Wire
from fencelock.errors import BackendError
from fencelock.findings import Pulse

__all__ = ["SETTINGS", "Facts", "gather", "pulse"]

SETTINGS = {
    "appendonly": "aof_enabled",
    "appendfsync": "",
    "no-appendfsync-on-rewrite": "",
    "save": "",
    "maxmemory": "maxmemory",
    "maxmemory-policy": "maxmemory_policy",
    "min-replicas-to-write": "",
    "min-replicas-max-lag": "",
    "timeout": "",
    "client-output-buffer-limit": "",
}
"""Settings, and where INFO has the same."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one server told."""

    server: Server
    sharded: bool
    alone: bool
    """Whether it is one server for ever, with nobody who would put another in its place."""
    hello: Mapping[str, str]
    info: Mapping[str, str]
    config: Mapping[str, str]
    tried: Mapping[str, Any]

    def setting(self, name: str) -> str | None:
        """Return a setting, from wherever it could be read."""
        told = self.info.get(SETTINGS[name])
        if name == "appendonly" and told is not None:
            told = {"0": "no"}.get(told, "yes")
        return self.config.get(name, told)

    def number(self, name: str) -> int | None:
        """Return a setting that is a number."""
        told = self.setting(name)
        return int(told) if told is not None and told.isdigit() else None

    @property
    def is_replica(self) -> bool:
        return self.hello.get("role", self.info.get("role")) in {"replica", "slave"}

    @property
    def user(self) -> str:
        return self.server.options.get("username") or "default"


async def gather(wire: Wire, server: Server, deadline: float, namespace: str) -> Facts:
    """Ask one server everything. Changes nothing there."""
    probes = _probes(namespace)
    if wire.topology.is_sharded:
        probes = {"asking": ("ASKING",), **probes}
    questions: list[tuple[str | bytes | int, ...]] = [("HELLO",), ("INFO",)]
    questions += [("CONFIG", "GET", name) for name in SETTINGS]
    requests = [pack(*words) for words in (*questions, *probes.values())]
    hello, info, *replies = await wire.ask(server, requests, deadline)
    config = [_pairs(reply) for reply in replies[: len(SETTINGS)]]
    tried = dict(zip(probes, replies[len(SETTINGS) :], strict=True))
    tried["subscribe"] = await _subscribe(wire, server, deadline)
    return Facts(
        server=server,
        sharded=wire.topology.is_sharded,
        alone=isinstance(wire.topology, One),
        hello=_pairs(hello),
        info=_lines(info),
        config={name: value for pairs in config for name, value in pairs.items()},
        tried=tried,
    )


def _probes(namespace: str) -> dict[str, tuple[str | bytes | int, ...]]:
    """Return a call of each command that changes nothing, allowed or not."""
    places = Places(namespace)
    place = places.find(f"fencelock-doctor-{os.urandom(8).hex()}")  # nobody's: there is no such key
    key, tokens = place.key, counter(place.bucket)
    return {
        "eval": ("EVAL", "return 1", "no number of keys"),
        "evalsha": ("EVALSHA", "0" * 40, 2, key, tokens),  # no such script
        "publish": ("PUBLISH", _channel(), ""),
        "scan": ("SCAN", 0, "MATCH", places.pattern("fencelock-doctor-"), "COUNT", 1),
        "time": ("TIME",),
        "get": ("GET", key),
        "set": ("SET", tokens, "", "NX", "XX"),  # a syntax error
        "del": ("DEL", key),
        "exists": ("EXISTS", key),
        "hset": ("HSET", key, "field", "value", "and no more"),  # one argument is missing
        "hget": ("HGET", key, "queue"),
        "hmget": ("HMGET", key, "queue"),
        "hgetall": ("HGETALL", key),
        "hdel": ("HDEL", key, "queue"),
        "hkeys": ("HKEYS", key),
        "pexpire": ("PEXPIRE", key, 1),
        "pttl": ("PTTL", key),
    }


def _channel() -> str:
    return f"fencelock:{os.urandom(8).hex()}"


async def _subscribe(wire: Wire, server: Server, deadline: float) -> Any:
    other = type(wire)(wire.topology)
    try:
        return await other.tell(server, "SUBSCRIBE", _channel(), deadline=deadline)
    finally:
        await other.close()


async def pulse(wire: Wire, deadline: float) -> list[Pulse]:
    """Ask every server for its time."""
    servers = await wire.topology.servers(wire, deadline)
    pulses: list[Pulse] = []
    for server in servers:
        try:
            pulses.append(await timed(server.label, partial(_time, wire, server, deadline)))
        except BackendError:
            if server is servers[-1] and not pulses:
                raise
    return pulses


async def _time(wire: Wire, server: Server, deadline: float) -> float | None:
    reply = await wire.tell(server, "TIME", deadline=deadline)
    return int(reply[0]) + int(reply[1]) / 1e6 if isinstance(reply, list) else None


def _pairs(reply: Any) -> dict[str, str]:
    if not isinstance(reply, list):
        return {}
    words = [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=False))


def _lines(reply: Any) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    pairs = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    return {name: value for name, separator, value in pairs if separator}
