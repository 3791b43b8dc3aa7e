"""What `fencelock doctor` has to say about a Redis or Valkey server, or about each of several.

Each finding says what a fact (see `facts.py`) means for a lock, and what to do about it. Where CONFIG or
INFO are forbidden, as on many a hosted server, it says what could not be read.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import hiredis

from fencelock.backends.redis.facts import SETTINGS, Facts, gather
from fencelock.backends.redis.failures import OLDEST, PASSING
from fencelock.backends.redis.server import Server
from fencelock.backends.redis.wire import Wire
from fencelock.errors import BackendError
from fencelock.findings import FORGETFUL, FORGETS_AT_RESTART, LASTING, NO_FAILOVER, Finding, Severity
from fencelock.runtime import clock

__all__ = ["COMMANDS", "LOOKING", "examine"]

COMMANDS = (
    *("eval", "evalsha", "subscribe", "publish", "scan", "time", "get", "set", "del", "exists"),
    *("hset", "hget", "hmget", "hgetall", "hdel", "hkeys", "pexpire", "pttl"),
)
"""What a user must be allowed to call, itself or in a script."""
WITH_CHANNELS = {"subscribe", "publish"}
WITH_KEYS = set(COMMANDS) - WITH_CHANNELS - {"eval", "scan", "time"}
WITHOUT = {
    "scan": "cannot be listed",
    "subscribe": "their waiters poll, about once a second",
    "get": "flights and fences do not",
    "exists": "flights do not",
    "hkeys": "exchanges of CRDTs do not",
}
"""What locks can do without, and how."""
LOOKING = ("info", "config|get")
"""What `doctor` asks for besides. Locks do without."""

NEARLY_FULL = 0.9
SMALL_BUFFER = 1 << 20
FENCE = "check tokens at the resource"


async def examine(wire: Wire, deadline: float, namespace: str = "") -> Sequence[Finding]:
    """Look at every server that has keys of ours. Changes nothing."""
    servers = await wire.topology.servers(wire, deadline)
    found: dict[str, Sequence[Finding]] = {}
    silent: list[Finding] = []
    for place, server in enumerate(servers):
        now = clock.now()
        try:
            facts = await gather(wire, server, now + (deadline - now) / (len(servers) - place), namespace)
        except BackendError as error:
            if len(servers) == 1:
                raise
            advice = "locks of its part wait for it: see why it is down"
            silent.append(Finding("critical", f"server {server.label}", str(error), advice))
        else:
            found[server.label] = _findings(facts)
    return [*silent, *_merged(found)]


def _merged(found: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Say once what all servers have in common, and name the server for the rest."""
    merged: dict[Finding, None] = {}
    for label, findings in found.items():
        for finding in findings:
            common = all(finding in others for others in found.values())
            merged[finding if common else replace(finding, subject=f"{finding.subject} of {label}")] = None
    return list(merged)


def _findings(facts: Facts) -> list[Finding]:
    if facts.hello.get("mode") == "sentinel":
        return [
            Finding("critical", "role", "a Sentinel: it keeps no locks", "use redis+sentinel://…/SERVICE")
        ]
    made: Iterable[Finding | None] = (
        _version(facts),
        _role(facts),
        _rights(facts),
        _writes(facts),
        _persistence(facts),
        _eviction(facts),
        _memory(facts),
        _replicas(facts),
        _pushes(facts),
        _idle(facts),
        _network(facts.server),
        _unread(facts),
    )
    return [finding for finding in made if finding is not None]


def _version(facts: Facts) -> Finding | None:
    valkey = facts.info.get("valkey_version")
    told = valkey or facts.hello.get("version") or facts.info.get("redis_version")
    if told is None:
        return None
    if valkey or facts.hello.get("server") == "valkey":
        return Finding("ok", "version", f"Valkey {told}")
    numbers = tuple(int(number) for number in re.findall(r"\d+", told)[:2])
    if numbers < OLDEST:
        detail = f"Redis {told} does not know SET with GET: no lock can be acquired"
        return Finding("critical", "version", detail, "use Redis 6.2 or newer, or Valkey")
    return Finding("ok", "version", f"Redis {told}")


def _role(facts: Facts) -> Finding:
    mode = facts.hello.get("mode") or facts.info.get("redis_mode")
    if mode == "cluster" and not facts.sharded:
        detail = "a node of a Cluster: it refuses the locks that belong to other nodes"
        return Finding("critical", "role", detail, "use redis+cluster://")
    if facts.is_replica:
        detail = "a replica: it grants nothing, and what it shows may be old"
        advice = "give the address of its primary, or use redis+sentinel://"
        return Finding("critical", "role", detail, advice, "role replica")
    return Finding("ok", "role", "a primary")


def _rights(facts: Facts) -> Finding:
    tried = facts.tried.items()
    refused = {command: str(reply) for command, reply in tried if isinstance(reply, hiredis.ReplyError)}
    unknown = [command for command, text in refused.items() if "unknown command" in text]
    if unknown:
        detail = f"it does not know {', '.join(unknown).upper()}: locks need them"
        return Finding("critical", "rights", detail, "undo rename-command, or use another server")
    refused = {command: text for command, text in refused.items() if text.startswith("NOPERM")}
    if not refused:
        return Finding("ok", "rights", f"user {facts.user} may do all that locks need")
    keys = any(re.search(r"access .*\bkey", text) for text in refused.values())
    channels = any(re.search(r"access .*\bchannel", text) for text in refused.values())
    missing = [
        command for command, text in refused.items() if not re.search(r"access .*\b(key|channel)", text)
    ]
    lacks = [f"call {', '.join(missing).upper()}"] if missing else []
    lacks += ["use the keys fencelock:*"] * keys + ["use the channels fencelock:*"] * channels
    severity: Severity = "critical"
    means = "locks do not work"
    if not refused.keys() - WITHOUT.keys():
        severity, means = (
            "warning",
            f"locks work, but {' and '.join(WITHOUT[command] for command in refused)}",
        )
    # Where no command was allowed that has a key, or a channel, nothing is known of those.
    grant = ["~fencelock:*"] * (keys or not WITH_KEYS - set(missing))
    grant += ["&fencelock:*"] * (channels or not WITH_CHANNELS - set(missing))
    grant += [f"+{command}" for command in missing]
    detail = f"user {facts.user} may not {', nor '.join(lacks)}: {means}"
    return Finding(severity, "rights", detail, f"ACL SETUSER {facts.user} {' '.join(grant)}")


def _writes(facts: Facts) -> Finding | None:
    code = str(facts.tried["set"]).partition(" ")[0]
    if code not in PASSING or facts.is_replica:
        return None
    advice = "until that is mended locks cannot be acquired, and leases may be lost"
    return Finding("critical", "writes", PASSING[code], advice)


def _persistence(facts: Facts) -> Finding | None:
    appends, save = facts.setting("appendonly"), facts.setting("save")
    if appends is None:
        return None
    if appends == "yes":
        return _appending(facts)
    advice = f"appendonly yes, and appendfsync always if locks must survive a crash; {FENCE}"
    if save:
        detail = (
            "snapshots only: a crash forgets what came after the last one, so a held lock may be granted "
            "again; tokens go on by the server's clock"
        )
    else:
        nothing = "nothing is written to disk" if save == "" else "no append-only file"
        detail = (
            f"{nothing}: a restart forgets every lock that is held, and it may be granted again; "
            "tokens go on by the server's clock"
        )
    told = "appendonly no" if save is None else f'appendonly no, save "{save}"'
    return Finding("warning", "persistence", detail, advice, told, FORGETS_AT_RESTART)


def _appending(facts: Facts) -> Finding:
    sync = facts.setting("appendfsync")
    told = f"appendonly yes, appendfsync {sync or 'unknown'}"
    if sync == "always" and facts.setting("no-appendfsync-on-rewrite") == "yes":
        detail = (
            "on disk before it is answered, except while the file is rewritten: a power loss then forgets"
        )
        advice = f"no-appendfsync-on-rewrite no; {FENCE}"
        told += ", no-appendfsync-on-rewrite yes"
        return Finding("warning", "persistence", detail, advice, told, FORGETS_AT_RESTART)
    if sync == "always":
        detail = "every write is on disk before it is answered: locks and tokens survive a power loss"
        return Finding(
            "ok", "persistence", detail, setting=told, refines=LASTING if facts.alone else FORGETS_AT_RESTART
        )
    if sync == "everysec":
        detail = (
            "written to disk once a second: a power loss may forget the last second or two, and a lock that "
            "was granted then may be granted again"
        )
        advice = f"appendfsync always, if that matters; {FENCE}"
        return Finding("warning", "persistence", detail, advice, told, FORGETS_AT_RESTART)
    if sync == "no":
        detail = "written to disk when the system likes: a power loss may forget half a minute of grants"
        advice = f"appendfsync everysec, or always; {FENCE}"
        return Finding("warning", "persistence", detail, advice, told, FORGETS_AT_RESTART)
    detail = "an append-only file; how often it is synced could not be read"
    return Finding("notice", "persistence", detail, setting=told, refines=FORGETS_AT_RESTART)


def _eviction(facts: Facts) -> Finding | None:
    policy, limit = facts.setting("maxmemory-policy"), facts.number("maxmemory")
    if policy is None:
        return None
    told = f"maxmemory {limit}, maxmemory-policy {policy}"
    if policy == "noeviction":
        return Finding("ok", "eviction", "noeviction: no lock is thrown out", setting=told)
    which = "any key" if policy.startswith("allkeys") else "keys that expire, as all locks do"
    if limit == 0:
        detail = f"{policy}, but no maxmemory: nothing is thrown out until somebody sets one"
        return Finding("notice", "eviction", detail, "maxmemory-policy noeviction", told)
    detail = f"{policy}: when memory is full it throws out {which}: a lock that is held is then granted again"
    advice = "maxmemory-policy noeviction, or a server for locks alone"
    return Finding("critical", "eviction", detail, advice, told, FORGETFUL)


def _memory(facts: Facts) -> Finding | None:
    used, limit = facts.info.get("used_memory"), facts.number("maxmemory")
    if used is None or limit is None:
        return None
    if limit == 0:
        return Finding("ok", "memory", f"{_size(int(used))} used, no limit")
    detail = f"{_size(int(used))} of {_size(limit)} used"
    if int(used) >= NEARLY_FULL * limit:
        detail = f"{detail}: when it is full no lock is granted"
        return Finding("warning", "memory", detail, "make room", f"maxmemory {limit}")
    return Finding("ok", "memory", detail)


def _size(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"


def _replicas(facts: Facts) -> Finding | None:
    count, needed = facts.info.get("connected_slaves"), facts.number("min-replicas-to-write")
    if count is None or facts.is_replica:
        return None
    if count == "0" and not needed:
        detail = "none: nothing can be lost in a failover, as there is none"
        return Finding("ok", "replicas", detail, refines=NO_FAILOVER if facts.alone else ())
    told = f"min-replicas-to-write {'unknown' if needed is None else needed}"
    detail = f"{count} connected, {told}"
    if needed == 0:
        detail += ": cut off from them, it goes on granting locks that its successor grants as well"
        return Finding("warning", "replicas", detail, f"min-replicas-to-write 1; {FENCE}", told, FORGETFUL)
    detail += ": replication is asynchronous, so a failover may lose the latest grants"
    return Finding("notice", "replicas", detail, FENCE, told, FORGETFUL)


def _pushes(facts: Facts) -> Finding | None:
    found = re.search(r"pubsub (\d+) ", facts.config.get("client-output-buffer-limit", ""))
    if found is None:
        return None
    limit = int(found[1])
    if 0 < limit < SMALL_BUFFER:
        detail = f"a listener that is {limit} bytes behind is cut off: its waiters then poll for a while"
        advice = "client-output-buffer-limit pubsub 32mb 8mb 60"
        return Finding("notice", "pushes", detail, advice, f"client-output-buffer-limit {found[0].strip()}")
    return Finding("ok", "pushes", f"a listener may be {_size(limit)} behind" if limit else "no limit")


def _idle(facts: Facts) -> Finding | None:
    seconds = facts.number("timeout")
    if seconds is None:
        return None
    if seconds:
        detail = f"connections that are idle for {seconds} s are closed: the next step connects anew"
        return Finding("notice", "timeout", detail, "timeout 0, if that is too slow", f"timeout {seconds}")
    return Finding("ok", "timeout", "idle connections stay open")


def _network(server: Server) -> Finding:
    if server.path is not None:
        return Finding("ok", "network", "a Unix socket")
    if server.tls:
        if server.options.get("ssl_cert_reqs", "required") != "required":
            detail = "TLS, but its certificate is not checked: anybody could pretend to be this server"
            return Finding("warning", "network", detail, "leave out ssl_cert_reqs, and give ssl_ca_certs")
        return Finding("ok", "network", "TLS")
    if _is_loopback(server.host):
        return Finding("ok", "network", "this machine only")
    if server.options.get("password"):
        detail = "no TLS: the password can be read on the way"
        return Finding("warning", "network", detail, "use rediss:// or valkeys://")
    detail = "neither TLS nor a password: whoever can reach it can take and break every lock"
    return Finding("warning", "network", detail, "set a password, and use rediss:// or valkeys://")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _unread(facts: Facts) -> Finding | None:
    missing = [name for name in SETTINGS if facts.setting(name) is None]
    if not facts.info:
        missing.append("INFO")
    if not missing:
        return None
    detail = f"could not read {', '.join(missing)}: this user may not, or the provider does not show them"
    allow = " ".join(f"+{command}" for command in LOOKING)
    advice = f"ACL SETUSER {facts.user} {allow}, or ask the provider"
    return Finding("notice", "settings", detail, advice, refines=FORGETFUL)
