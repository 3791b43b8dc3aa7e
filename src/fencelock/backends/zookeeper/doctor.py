"""What `fencelock doctor` has to say about an ensemble: each member is asked for itself, by the word `srvr`.

Where the members do not answer that word (it is a matter of `4lw.commands.whitelist`, which has `srvr` unless
somebody took it out), it says so, and tells what a session shows. Nothing is changed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from fencelock.backends.zookeeper.address import Address
from fencelock.findings import Finding

__all__ = ["OLDEST", "Member", "ask", "findings"]

LIMIT = 2.0
"""Seconds that a member has to answer."""
OLDEST = (3, 5)
"""Transactions, and creates that answer with the czxid, came with it."""
FEW = 3
LATE = 1.0
USUAL = 30.0
"""Seconds: the ttl of a lock that says nothing else."""
SLOW = 100.0
"""Milliseconds that a request takes on average."""


@dataclass(frozen=True, slots=True)
class Member:
    """What one member said. `mode` is empty where it said nothing of use, `trouble` then tells why."""

    host: str
    mode: str = ""
    version: tuple[int, ...] = ()
    latency: float = 0.0
    trouble: str = ""


def ask(address: Address) -> Sequence[Member]:
    """Ask every member. Blocks, for a few seconds at most."""
    return [_ask(address, host) for host in address.hosts]


def _ask(address: Address, host: str) -> Member:
    name, _, port = host.rpartition(":")
    name = name.strip("[]")
    try:
        with socket.create_connection((name, int(port)), LIMIT) as plain:
            context = address.context()
            sock = context.wrap_socket(plain, server_hostname=name) if context is not None else plain
            sock.settimeout(LIMIT)
            sock.sendall(b"srvr")
            said = b""
            while chunk := sock.recv(4096):
                said += chunk
    except OSError as error:
        return Member(host, trouble=(error.strerror or str(error) or "no answer").lower())
    return read(host, said.decode("utf-8", "replace"))


def read(host: str, said: str) -> Member:
    """Return what the answer to `srvr` says."""
    lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    found = re.match(r"(\d+(?:\.\d+)*)", lines.get("Zookeeper version", ""))
    latency = re.fullmatch(r"[\d.]+/([\d.]+)/[\d.]+", lines.get("Latency min/avg/max", ""))
    trouble = ""
    if "whitelist" in said:
        trouble = "it does not answer the word srvr"
    elif "Mode" not in lines:
        trouble = "it is up and does not serve requests: it has no quorum"
    return Member(
        host,
        mode=lines.get("Mode", ""),
        version=tuple(int(part) for part in found[1].split(".")) if found else (),
        latency=float(latency[1]) if latency else 0.0,
        trouble=trouble,
    )


def findings(address: Address, members: Sequence[Member], shortest: float, longest: float) -> list[Finding]:
    """Return what is to be said; `shortest` and `longest` are the sessions that the ensemble agrees to."""
    return [
        *_ensemble(members),
        *_silent(members),
        *_versions(members),
        *_sessions(shortest, longest),
        *_latency(members),
        *_access(address),
        Finding(
            "ok",
            "clock",
            "no wall clock decides anything: sessions count down on the leader's monotonic clock, leases on "
            "the client's; ZooKeeper tells no time that could be compared with this machine's",
        ),
    ]


def _ensemble(members: Sequence[Member]) -> list[Finding]:
    modes = [member.mode for member in members if member.mode]
    told = ", ".join(f"{member.host} {member.mode}" for member in members if member.mode)
    if modes == ["standalone"]:
        return [
            Finding(
                "warning",
                "ensemble",
                f"{told}: one server alone",
                "while it is down nothing is granted or renewed: run an ensemble of three",
                "mode standalone",
            )
        ]
    found = []
    if "leader" in modes:
        voting = sum(mode in {"leader", "follower"} for mode in modes)
        found.append(Finding("ok", "ensemble", told))
        if voting < FEW:
            detail = f"the URL names {voting} of its voting members"
            found.append(
                Finding("notice", "ensemble", detail, "name all of them: the others cannot be tried")
            )
    elif modes and set(modes) != {"read-only"}:
        found.append(
            Finding(
                "notice", "ensemble", f"{told}: the leader is not in the URL", "name all members in the URL"
            )
        )
    if "read-only" in modes:
        detail = f"{told}: a member that is cut off, and answers readers only"
        found.append(
            Finding("critical", "read-only", detail, "it grants nothing: mend its connection to the others")
        )
    return found


def _silent(members: Sequence[Member]) -> list[Finding]:
    found = []
    for member in members:
        if member.trouble and "srvr" in member.trouble:
            advice = "add srvr to 4lw.commands.whitelist for a fuller report"
            found.append(Finding("notice", "member", f"{member.host}: {member.trouble}", advice))
        elif member.trouble:
            down = sum(bool(other.trouble) for other in members) * 2 >= len(members)
            advice = (
                "bring it up"
                if down
                else "bring it up: the ensemble does without it, but not without one more"
            )
            detail = f"{member.host}: {member.trouble}"
            found.append(Finding("critical" if down else "warning", "member", detail, advice))
    return found


def _versions(members: Sequence[Member]) -> list[Finding]:
    versions = sorted({member.version for member in members if member.version})
    if not versions:
        return []
    told = ", ".join(".".join(map(str, version)) for version in versions)
    if versions[0] < OLDEST:
        return [Finding("critical", "version", f"ZooKeeper {told}", "3.5 or newer is needed")]
    if len(versions) > 1:
        return [
            Finding(
                "notice", "version", f"ZooKeeper {told}", "members of different versions: finish the upgrade"
            )
        ]
    return [Finding("ok", "version", f"ZooKeeper {told}")]


def _sessions(shortest: float, longest: float) -> list[Finding]:
    found = [Finding("ok", "session", f"sessions of {shortest:g} s to {longest:g} s are agreed to")]
    if shortest > LATE:
        found.append(
            Finding(
                "notice",
                "session",
                f"a ttl of less than {shortest:g} s is refused, and a client that dies is noticed no sooner",
                "for shorter ones set minSessionTimeout, which is 2 times tickTime",
                f"minSessionTimeout = {shortest * 1000:.0f}",
            )
        )
    if longest < USUAL:
        found.append(
            Finding(
                "warning",
                "session",
                f"a ttl of more than {longest:g} s is refused, and the usual one is {USUAL:g} s",
                "set maxSessionTimeout, which is 20 times tickTime",
                f"maxSessionTimeout = {longest * 1000:.0f}",
            )
        )
    return found


def _latency(members: Sequence[Member]) -> list[Finding]:
    slow = [member for member in members if member.latency > SLOW]
    return [
        Finding(
            "warning",
            "latency",
            f"{member.host} takes {member.latency:g} ms for a request on average",
            "give its transaction log a disk of its own (dataLogDir)",
        )
        for member in slow
    ]


def _access(address: Address) -> list[Finding]:
    found = []
    if address.is_open:
        found.append(
            Finding(
                "notice",
                "access",
                "what is made is open to everybody who reaches the ensemble",
                "give each application a user: zookeeper://USER:PASSWORD@…, or a network of its own",
            )
        )
    hosts = {host.rpartition(":")[0].strip("[]") for host in address.hosts}
    if not address.tls and not hosts <= {"localhost", "127.0.0.1", "::1"}:
        detail = "no TLS beyond this machine" + (
            ": the password can be read on the way" if address.user else ""
        )
        found.append(Finding("warning", "network", detail, "add tls=yes and cacert=…"))
    return found
