"""What `holdfast doctor` has to say about an etcd cluster: each member is asked by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.backends.base import Finding
from holdfast.backends.etcd import rpc_pb2 as pb
from holdfast.backends.etcd.address import Address
from holdfast.backends.etcd.methods import MEMBERS, RANGE, STATUS
from holdfast.backends.etcd.wire import Wire
from holdfast.errors import BackendUnavailable
from holdfast.runtime import clock

__all__ = ["examine"]

LIMIT = 5.0
MENDED = {(3, 4): 38, (3, 5): 23}
"""From which release on a heartbeat for a lease that was revoked fails, by minor version."""


class Member(NamedTuple):
    """What one member answered: its status and its list of members, or why not."""

    endpoint: str
    status: Any = None
    members: Sequence[Any] = ()
    failure: str = ""


async def examine(address: Address, wire: Callable[[Address], Wire], probe: bytes) -> Sequence[Finding]:
    """Ask every endpoint for its state, and say what it means for a lock. `probe` is a key to look for."""
    members = [await _ask(replace(address, endpoints=(each,)), wire) for each in address.endpoints]
    up = [member for member in members if member.status is not None]
    findings = [_reach(members)]
    if not up:
        return findings
    findings.append(_leader(up))
    findings += _cluster(up, len(address.endpoints))
    for member in up:
        findings += _version(member)
        findings += _trouble(member)
    findings.append(await _rights(address, wire, probe))
    if not address.tls and address.user is not None:
        detail = "the password crosses the network as it is"
        findings.append(Finding("warning", "tls", detail, "serve clients by TLS, and give cacert=…"))
    told = "no clock decides anything: leases count down on the leader's monotonic clock"
    findings.append(Finding("ok", "clocks", told))
    return findings


async def _ask(address: Address, wire: Callable[[Address], Wire]) -> Member:
    endpoint = address.endpoints[0]
    line = wire(address)
    deadline = clock.now() + LIMIT
    try:
        status = await line.call(STATUS, pb.StatusRequest(), deadline)
        listed = await line.call(MEMBERS, pb.MemberListRequest(), deadline)
        return Member(endpoint, status, listed.members)
    except BackendUnavailable as error:
        return Member(endpoint, failure=error.detail)
    finally:
        await line.close()


def _reach(members: Sequence[Member]) -> Finding:
    down = [member.failure for member in members if member.status is None]
    if not down:
        return Finding("ok", "endpoints", f"all {len(members)} answer" if len(members) > 1 else "it answers")
    told = "; ".join(down)
    if len(down) == len(members):
        return Finding("danger", "endpoints", f"none answers: {told}", "nothing can be locked")
    return Finding("warning", "endpoints", told, "bring them back")


def _leader(up: Sequence[Member]) -> Finding:
    without = [member.endpoint for member in up if member.status.leader == 0]
    if len(without) == len(up):
        return Finding("danger", "leader", "there is none", "bring back a majority of the members")
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
        return [Finding("danger", "cluster", detail, "give the endpoints of one cluster")]
    voting = [member for member in up[0].members if not member.isLearner]
    if len(voting) == 1:
        detail = "it has one member: while that is down, nothing can be locked"
        return [Finding("note", "cluster", detail, "three members survive the loss of one")]
    findings = [Finding("ok", "cluster", f"{len(voting)} members, {len(voting) // 2 + 1} are a majority")]
    if len(voting) % 2 == 0:
        detail = f"{len(voting)} members survive no more losses than {len(voting) - 1}"
        findings.append(Finding("note", "cluster", detail, "use an odd number"))
    if given < len(voting):
        detail = f"{given} of its {len(voting)} members are in the URL: the others are not asked"
        findings.append(Finding("note", "endpoints", detail, "name them all, with commas in between"))
    return findings


def _version(member: Member) -> list[Finding]:
    version = member.status.version
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return [Finding("note", member.endpoint, f"version {version!r}")]
    major, minor, patch = map(int, found.groups())
    if (major, minor) < (3, 4):
        detail = f"version {version} is too old: holdfast is tested with 3.4 and newer"
        return [Finding("warning", member.endpoint, detail, "upgrade it")]
    if patch < MENDED.get((major, minor), 0):
        detail = (
            f"version {version} renews leases that are gone: holdfast looks for the keys with each renewal "
            "and is not deceived, other clients are"
        )
        advice = f"upgrade to {major}.{minor}.{MENDED[major, minor]} or newer"
        return [Finding("warning", member.endpoint, detail, advice)]
    return [Finding("ok", member.endpoint, f"version {version}")]


def _trouble(member: Member) -> list[Finding]:
    findings = [
        Finding(
            "danger", member.endpoint, f"it reports {' '.join(error.split())}", "see `etcdctl alarm list`"
        )
        for error in member.status.errors
        if "no leader" not in error
    ]
    if member.status.isLearner:
        detail = "it is a learner, and serves no locks"
        findings.append(Finding("warning", member.endpoint, detail, "give the addresses of voting members"))
    return findings


async def _rights(address: Address, wire: Callable[[Address], Wire], probe: bytes) -> Finding:
    line = wire(address)
    try:
        await line.call(RANGE, pb.RangeRequest(key=probe, keys_only=True), clock.now() + LIMIT)
    except BackendUnavailable as error:
        return Finding("danger", "rights", error.detail, "grant the user read and write on the prefix")
    finally:
        await line.close()
    return Finding("ok", "rights", "the keys of locks can be read, by agreement of a majority")
