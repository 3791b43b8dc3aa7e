"""What `fencelock doctor` has to say about an etcd cluster: each member is asked by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fencelock.backends.etcd import rpc_pb2 as pb
from fencelock.backends.etcd.address import Address
from fencelock.backends.etcd.connection import Etcd
from fencelock.backends.etcd.methods import MEMBERS, RANGE, STATUS
from fencelock.errors import BackendUnavailable
from fencelock.findings import FORGETFUL, FORGETS_AT_RESTART, Finding, Severity
from fencelock.runtime import clock

__all__ = ["BUGS", "Bug", "examine", "judge_version"]

LIMIT = 5.0
OLDEST = (3, 4)


class Bug(NamedTuple):
    """A known fault that concerns locks: from which release on, and which one mended it."""

    since: tuple[int, int, int]
    mended: tuple[int, int, int]
    severity: Severity
    does: str
    refines: tuple[tuple[str, str], ...] = ()
    """What becomes of the guarantees."""


RENEWS = (
    "renews leases that are gone: fencelock looks for the keys with each renewal and is not deceived, other "
    "clients are"
)
CORRUPTS = "may lose what it had confirmed when a member crashes under load: a lock may be granted twice"
REVOKES = (
    "has leaders that, when they stood still and come back, end leases which were renewed meanwhile: a lock "
    "may then be held twice; tokens still rise"
)
FALLS = (
    "may come back with smaller revisions when it crashes during a compaction: tokens then fall or repeat, "
    "and resources refuse new holders or accept old ones"
)
ENDS_EARLY = (("use_for", "efficiency"), ("failover", "exclusion"))
BUGS = (
    Bug((3, 4, 0), (3, 4, 31), "warning", REVOKES, ENDS_EARLY),
    Bug((3, 4, 0), (3, 4, 32), "warning", FALLS, (("fencing", "best-effort"),)),
    Bug((3, 4, 0), (3, 4, 38), "warning", RENEWS),
    Bug((3, 5, 0), (3, 5, 3), "critical", CORRUPTS, FORGETS_AT_RESTART),
    Bug((3, 5, 0), (3, 5, 13), "warning", REVOKES, ENDS_EARLY),
    Bug((3, 5, 0), (3, 5, 14), "warning", FALLS, (("fencing", "best-effort"),)),
    Bug((3, 5, 0), (3, 5, 23), "warning", RENEWS),
    Bug((3, 6, 0), (3, 6, 5), "warning", RENEWS),
)
"""An old leader still revokes (etcd issue 15247, found with 3.4.23 by `make chaos FAULT=leader`);
a compaction removes the newest revision if that is a deletion, as of a release, before it notes how far
it came (issue 17780); heartbeats for a lease that was revoked succeed (issue 20547); members of 3.5.0 to
3.5.2 may come to differ."""


class Member(NamedTuple):
    """What one member answered: its status and its list of members, or why not."""

    endpoint: str
    status: Any = None
    members: Sequence[Any] = ()
    failure: str = ""


async def examine(address: Address, client: Callable[[Address], Etcd], probe: bytes) -> Sequence[Finding]:
    """Ask every endpoint for its state, and say what it means for a lock. `probe` is a key to look for."""
    members = [await _ask(replace(address, endpoints=(each,)), client) for each in address.endpoints]
    up = [member for member in members if member.status is not None]
    findings = [_reach(members)]
    if not up:
        return findings
    findings.append(_leader(up))
    findings += _cluster(up, len(address.endpoints))
    for member in up:
        findings += judge_version(member.endpoint, member.status.version)
        findings += _trouble(member)
    findings.append(await _rights(address, client, probe))
    if not address.tls and address.user is not None:
        detail = "the password crosses the network as it is"
        findings.append(Finding("warning", "tls", detail, "serve clients by TLS, and give cacert=…"))
    told = "no clock decides anything: leases count down on the leader's monotonic clock"
    findings.append(Finding("ok", "clocks", told))
    return findings


async def _ask(address: Address, client: Callable[[Address], Etcd]) -> Member:
    endpoint = address.endpoints[0]
    etcd = client(address)
    deadline = clock.now() + LIMIT
    try:
        status = await etcd.call(STATUS, pb.StatusRequest(), deadline)
        listed = await etcd.call(MEMBERS, pb.MemberListRequest(), deadline)
        return Member(endpoint, status, listed.members)
    except BackendUnavailable as error:
        return Member(endpoint, failure=error.detail)
    finally:
        await etcd.close()


def _reach(members: Sequence[Member]) -> Finding:
    down = [member.failure for member in members if member.status is None]
    if not down:
        return Finding("ok", "endpoints", f"all {len(members)} answer" if len(members) > 1 else "it answers")
    told = "; ".join(down)
    if len(down) == len(members):
        return Finding("critical", "endpoints", f"none answers: {told}", "nothing can be locked")
    return Finding("warning", "endpoints", told, "bring them back")


def _leader(up: Sequence[Member]) -> Finding:
    without = [member.endpoint for member in up if member.status.leader == 0]
    if len(without) == len(up):
        return Finding("critical", "leader", "there is none", "bring back a majority of the members")
    if without:
        detail = f"{', '.join(without)} has none: it is cut off from the others"
        return Finding("warning", "leader", detail, "look at the network between the members")
    led = {member.status.leader for member in up}
    if len(led) > 1:
        detail = "the endpoints follow different leaders: an election is under way, or they are two clusters"
        return Finding("warning", "leader", detail, "ask again; give endpoints of one cluster only")
    return Finding("ok", "leader", f"member {led.pop():x}, in term {up[0].status.raftTerm}")


def _cluster(up: Sequence[Member], given: int) -> list[Finding]:
    if len({member.status.header.cluster_id for member in up}) > 1:
        detail = "the endpoints belong to different clusters: each would grant the same lock"
        advice = "give the endpoints of one cluster"
        return [Finding("critical", "cluster", detail, advice, refines=FORGETFUL)]
    voting = [member for member in up[0].members if not member.isLearner]
    if len(voting) == 1:
        detail = "it has one member: while that is down, nothing can be locked"
        return [Finding("notice", "cluster", detail, "three members survive the loss of one", "1 member")]
    findings = [Finding("ok", "cluster", f"{len(voting)} members, {len(voting) // 2 + 1} are a majority")]
    if len(voting) % 2 == 0:
        detail = f"{len(voting)} members survive no more losses than {len(voting) - 1}"
        findings.append(Finding("notice", "cluster", detail, "use an odd number", f"{len(voting)} members"))
    if given < len(voting):
        detail = f"{given} of its {len(voting)} members are in the URL: the others are not asked"
        findings.append(Finding("notice", "endpoints", detail, "name them all, with commas in between"))
    return findings


def judge_version(endpoint: str, version: str) -> list[Finding]:
    """Say what the version of a member means for a lock."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    told = f"version {version}"
    if found is None:
        return [Finding("notice", endpoint, f"version {version!r}")]
    numbers = tuple(map(int, found.groups()))
    if numbers < OLDEST:
        detail = f"{told} is too old: fencelock is made for 3.4 and newer"
        return [Finding("warning", endpoint, detail, "upgrade it", told)]
    known = [bug for bug in BUGS if bug.since <= numbers < bug.mended]
    return [
        Finding(
            bug.severity,
            endpoint,
            f"{told} {bug.does}",
            f"upgrade to {'.'.join(map(str, bug.mended))} or newer",
            told,
            bug.refines,
        )
        for bug in known
    ] or [Finding("ok", endpoint, told)]


def _trouble(member: Member) -> list[Finding]:
    findings = [
        Finding(
            "critical", member.endpoint, f"it reports {' '.join(error.split())}", "see `etcdctl alarm list`"
        )
        for error in member.status.errors
        if "no leader" not in error
    ]
    if member.status.isLearner:
        detail = "it is a learner, and serves no locks"
        findings.append(Finding("warning", member.endpoint, detail, "give the addresses of voting members"))
    return findings


async def _rights(address: Address, client: Callable[[Address], Etcd], probe: bytes) -> Finding:
    etcd = client(address)
    try:
        await etcd.call(RANGE, pb.RangeRequest(key=probe, keys_only=True), clock.now() + LIMIT)
    except BackendUnavailable as error:
        return Finding("critical", "rights", error.detail, "grant the user read and write on the prefix")
    finally:
        await etcd.close()
    return Finding("ok", "rights", "the keys of locks can be read, by agreement of a majority")
