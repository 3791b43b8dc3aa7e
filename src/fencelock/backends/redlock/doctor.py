"""What `fencelock doctor` has to say about the nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import hiredis

from fencelock.backends.checkup import timed
from fencelock.backends.redlock.commands import GREET, pack
from fencelock.backends.redlock.keys import MEMORY
from fencelock.backends.redlock.memory import Line
from fencelock.backends.redlock.rounds import Collecting, reason
from fencelock.core.quorum import quorum
from fencelock.findings import Finding, Pulse
from fencelock.runtime.base import Runtime

__all__ = ["examine", "layout", "pulse"]

LIMIT = 5.0
FEWEST = 3
NO_EVICTION = "CONFIG SET maxmemory-policy noeviction"
FAST = 0.5
"""Seconds by which a node's clock may differ before it is worth a word."""


async def examine(line: Line, labels: Sequence[str], runtime: Runtime) -> Sequence[Finding]:
    """Ask every node for its settings, and say what they mean for a lock."""

    async def ask(*words: str | bytes) -> list[Any]:
        asked = Collecting(len(labels), pack(*words), None)
        await line.ask(asked, runtime.now() + LIMIT)
        return asked.answers

    info = [_info(answer) for answer in await ask("INFO")]
    settings = {name: await ask("CONFIG", "GET", name) for name in ("appendfsync", "maxmemory-policy")}
    views = await _views(line, len(labels), runtime.now() + LIMIT)
    times = await ask("TIME")
    reached = [told is not None for told in info]
    findings = [_reach(labels, info, await ask("PING")), *layout(labels)]
    for node, label in enumerate(labels):
        if reached[node]:
            told = info[node] or {}
            findings += _node(label, told, {name: _setting(all_[node]) for name, all_ in settings.items()})
            findings += _standing(label, views[node])
    findings += _clocks(labels, times)
    return findings


async def pulse(line: Line, labels: Sequence[str], deadline: float) -> list[Pulse]:
    """Ask all nodes at once for their time: the slowest of them says how long that took."""
    asked = Collecting(len(labels), pack("TIME"), None)

    async def told() -> None:
        await line.ask(asked, deadline)

    wall = time.time()
    trip = (await timed("", told)).trip
    return [
        Pulse(label, trip, _seconds(answer) - (wall + trip / 2), trip / 2)
        for label, answer in zip(labels, asked.answers, strict=True)
        if isinstance(answer, list)
    ] or [Pulse(",".join(labels), trip)]


def _seconds(answer: Any) -> float:
    return int(answer[0]) + int(answer[1]) / 1e6


def layout(labels: Sequence[str]) -> list[Finding]:
    """Judge how many nodes there are, and whether they can fail one by one."""
    count = len(labels)
    findings = []
    if count < FEWEST:
        detail = f"{count}: if one fails, nothing can be locked"
        findings.append(Finding("critical", "number", detail, "use three nodes or five", f"{count} nodes"))
    elif count % 2 == 0:
        detail = (
            f"{count}, of which {quorum(count)} are a majority: they survive no more losses than "
            f"{count - 1}, and every lock asks one more"
        )
        findings.append(Finding("warning", "number", detail, "use an odd number", f"{count} nodes"))
    else:
        detail = f"{count}: {count - quorum(count)} of them may fail"
        findings.append(Finding("ok", "number", detail, setting=f"{count} nodes"))
    hosts = [label.rpartition(":")[0] or label for label in labels]
    most = max(hosts, key=hosts.count)
    if hosts.count(most) > 1:
        every = "all nodes are" if hosts.count(most) == count else f"{hosts.count(most)} of {count} nodes are"
        lost = "no majority is left" if count - hosts.count(most) < quorum(count) else "they fail together"
        detail = f"{every} on {most}: if that machine goes down, {lost}"
        advice = "put each node on a machine of its own, with power and disk of its own"
        findings.append(Finding("warning", "machines", detail, advice, f"{hosts.count(most)} on {most}"))
    return findings


def _reach(labels: Sequence[str], info: Sequence[Any], answers: Sequence[Any]) -> Finding:
    down = {
        label: silence.why
        for label, told, answer in zip(labels, info, answers, strict=True)
        if told is None and (silence := reason(label, answer)) is not None
    }
    if not down:
        return Finding("ok", "nodes", f"all {len(labels)} answer; {quorum(len(labels))} are a majority")
    told = "; ".join(f"{label}: {why}" for label, why in down.items())
    if len(labels) - len(down) < quorum(len(labels)):
        return Finding("critical", "nodes", f"no majority: {told}", "bring them back: nothing can be locked")
    spare = len(labels) - len(down) - quorum(len(labels))
    advice = f"bring them back: {spare} more may fail" if spare else "bring them back: no other may fail"
    return Finding("warning", "nodes", told, advice)


def _node(label: str, info: dict[str, str], settings: dict[str, str | None]) -> list[Finding]:
    findings = [_persistence(label, info, settings["appendfsync"])]
    policy = settings["maxmemory-policy"] or info.get("maxmemory_policy", "")
    if info.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
        detail = f"maxmemory-policy is {policy}: the node may drop its memory, and locks that are held"
        findings.append(Finding("critical", label, detail, NO_EVICTION, f"maxmemory-policy {policy}"))
    elif info.get("maxmemory", "0") != "0" and policy.startswith("volatile"):
        detail = f"maxmemory-policy is {policy}: the node may drop locks that are held"
        findings.append(Finding("critical", label, detail, NO_EVICTION, f"maxmemory-policy {policy}"))
    if info.get("role") == "slave":
        detail = "it is a replica, and takes no writes"
        advice = "give the address of a server of its own"
        findings.append(Finding("critical", label, detail, advice, "role replica"))
    elif info.get("connected_slaves", "0") != "0":
        detail = "it has replicas: if one is promoted in its place it is left out, as after a loss of memory"
        findings.append(Finding("notice", label, detail, "nodes need no replicas: add another node instead"))
    return findings


def _persistence(label: str, info: dict[str, str], fsync: str | None) -> Finding:
    version = info.get("valkey_version") or info.get("redis_version", "?")
    if info.get("aof_enabled") == "1" and fsync == "always":
        detail = f"version {version}, appendonly yes, appendfsync always: a restart loses nothing"
        return Finding("ok", label, detail, setting="appendfsync always")
    how = f"appendfsync {fsync}" if info.get("aof_enabled") == "1" else "appendonly no"
    detail = f"version {version}, {how}: after a restart it is left out for max_ttl seconds"
    advice = "appendonly yes and appendfsync always, if it should vote at once again"
    return Finding("notice", label, detail, advice, how)


def _standing(label: str, view: tuple[str, int] | None) -> list[Finding]:
    if view is None or view[0] == "member":
        return []
    name, left = view
    if name == "joining":
        detail = f"it lost its memory and is left out, for another {left / 1000:.0f}s"
        return [Finding("warning", label, detail, "nothing to do: it votes again by itself")]
    detail = "it has no memory yet, or is about to be taught: it does not vote"
    return [Finding("notice", label, detail, "nothing to do: the next lock sees to it")]


def _clocks(labels: Sequence[str], times: Sequence[Any]) -> list[Finding]:
    clocks = {
        label: _seconds(answer)
        for label, answer in zip(labels, times, strict=True)
        if isinstance(answer, list)
    }
    if len(clocks) < 2:
        return []
    spread = max(clocks.values()) - min(clocks.values())
    if spread < FAST:
        return [Finding("ok", "clocks", f"the nodes' clocks differ by {spread * 1000:.0f} ms at most")]
    first, last = min(clocks, key=clocks.__getitem__), max(clocks, key=clocks.__getitem__)
    detail = (
        f"{last} is {spread:.1f}s ahead of {first}: that alone does no harm, but a clock that is set while "
        "locks are held ends them early, or late"
    )
    return [
        Finding("warning", "clocks", detail, "run NTP in slewing mode on every node, and never set clocks")
    ]


async def _views(line: Line, nodes: int, deadline: float) -> list[tuple[str, int] | None]:
    asked = Collecting(nodes, GREET.call([MEMORY], b"1", b"0"), GREET)
    await line.ask(asked, deadline)
    return [(answer[0].decode(), answer[2]) if isinstance(answer, list) else None for answer in asked.answers]


def _info(answer: Any) -> dict[str, str] | None:
    if not isinstance(answer, bytes) or isinstance(answer, hiredis.ReplyError):
        return None
    lines = answer.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _setting(reply: Any) -> str | None:
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None
