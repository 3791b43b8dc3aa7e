"""What a Consul is like: its leader, its servers, its rules for sessions, its ACLs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fencelock.backends.checkup import HTTP_GRAIN, http_time, timed
from fencelock.backends.consul.address import Address
from fencelock.backends.consul.connection import Consul
from fencelock.backends.consul.failures import no_consul
from fencelock.errors import BackendUnavailable
from fencelock.findings import Finding, Pulse

__all__ = ["examine", "pulse"]

OLDEST = (1, 8)
"""The HTTP interface that fencelock uses is as old; the tests run on Debian's, which is 1.8."""
TOLERANT = 3
"""So many servers can lose one of them."""


async def examine(consul: Consul, address: Address, deadline: float) -> Sequence[Finding]:
    """Return what there is to say. Changes nothing."""
    leader = await _ask(consul, "/v1/status/leader", deadline)
    peers = await _ask(consul, "/v1/status/peers", deadline)
    if not isinstance(leader, str) or not isinstance(peers, list):
        raise no_consul(address.label)
    findings = [_leader(leader), _servers(len(peers)), _agents(address)]
    try:
        own = await _ask(consul, "/v1/agent/self", deadline)
    except BackendUnavailable as error:
        if error.transient:
            raise
        findings.append(
            Finding("notice", "settings", "the token may not read the agent's settings", "agent_prefix read")
        )
    else:
        findings += _settings(own.get("Config", {}), own.get("DebugConfig", {}), address)
    findings.append(
        Finding("ok", "clocks", "no clock is trusted: the leader counts sessions down on its monotonic clock")
    )
    return findings


async def pulse(consul: Consul, deadline: float) -> list[Pulse]:
    """Ask an agent something small: its answer is dated, to the second."""

    async def told() -> float | None:
        answer = await consul.ask("GET", "/v1/status/leader", deadline)
        return http_time(answer.headers.get(b"date", b"").decode("latin-1") or None)

    return [await timed(consul.address.label, told, HTTP_GRAIN)]


async def _ask(consul: Consul, path: str, deadline: float) -> Any:
    return consul.parsed(await consul.ask("GET", path, deadline))


def _leader(leader: str) -> Finding:
    if leader:
        return Finding("ok", "leader", leader)
    return Finding("critical", "leader", "there is none: nothing is granted", "look at the servers' logs")


def _servers(count: int) -> Finding:
    if count >= TOLERANT:
        return Finding("ok", "servers", f"{count}: {(count - 1) // 2} of them may be down")
    return Finding(
        "warning",
        "servers",
        f"{count}: if one is down, nothing is granted or renewed",
        "run three or five",
        f"{count} raft peers",
    )


def _agents(address: Address) -> Finding:
    if len(address.endpoints) > 1:
        return Finding(
            "ok", "addresses", f"{len(address.endpoints)}: when one does not answer, the next is asked"
        )
    return Finding(
        "notice",
        "addresses",
        "one: when this agent is down, leases are lost",
        "give several: HOST:PORT,HOST:PORT",
    )


def _settings(config: dict[str, Any], debug: dict[str, Any], address: Address) -> list[Finding]:
    findings = [_version(str(config.get("Version", "unknown")), str(config.get("NodeName", "unknown")))]
    shortest = str(debug.get("SessionTTLMin", "0s"))
    if shortest in {"0s", "10s"}:
        findings.append(
            Finding(
                "ok", "sessions", "a ttl of 10 s to 86400 s; a dead holder's lock is free after twice its ttl"
            )
        )
    else:
        findings.append(
            Finding(
                "warning",
                "sessions",
                f"session_ttl_min is {shortest}: sessions of 10 s, which waiters need, may be refused",
                "leave out session_ttl_min",
                f"session_ttl_min = {shortest}",
            )
        )
    findings.append(_acl(debug, address))
    most = debug.get("HTTPMaxConnsPerClient")
    if isinstance(most, int) and 0 < most < 200:
        findings.append(
            Finding(
                "warning",
                "connections",
                f"it takes {most} from one host; a client with many threads has up to 40",
                "raise limits.http_max_conns_per_client",
                f"limits.http_max_conns_per_client = {most}",
            )
        )
    return findings


def _version(version: str, node: str) -> Finding:
    detail = f"{version} (at {node})"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if not numbers:
        return Finding("notice", "version", f"{detail}: not a number that says something")
    if numbers < OLDEST:
        return Finding(
            "warning",
            "version",
            f"{detail}: fencelock is made for {'.'.join(map(str, OLDEST))} and newer",
            "upgrade it",
            f"version {version}",
        )
    return Finding("ok", "version", detail)


def _acl(debug: dict[str, Any], address: Address) -> Finding:
    if not debug.get("ACLsEnabled"):
        return Finding(
            "notice",
            "access",
            "ACLs are off: whoever reaches it can take and break locks",
            "acl.enabled = true",
            "acl.enabled = false",
        )
    if debug.get("ACLDefaultPolicy") == "allow":
        return Finding(
            "notice",
            "access",
            "ACLs are on, but what no rule forbids is allowed",
            'acl.default_policy = "deny"',
            'acl.default_policy = "allow"',
        )
    whose = "this token" if address.token else "the agent's own token, or the anonymous one"
    return Finding("ok", "access", f"ACLs are on; fencelock comes with {whose}")
