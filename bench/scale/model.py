"""What was measured becomes a simulation, which is checked against the rest of it, and taken further.

Of the loads two are taken: one task alone tells what a pair takes when everybody has to be woken, and how
much of it is neither side's processor (the way), or is done after the answer; the largest load tells what it
takes in a crowd. Loads in between are the check. Of one hot lock the window with eight clients is taken, and
the others are the check. Redlock has no queue, so there is no line to simulate.

The kernel's work for packets is on nobody's account; half of it is added to each side. SQLite has no server:
its file is one, which serves one at a time as fast as the most pairs that were seen, on the clients' account.
Redis works on one step at a time; the others are given one processor, and all of those of the machine that
they were measured on. Other programs are not in it: on a busy machine the check fails.

The check is of figures, not of the form. That stations serve in batches, and that a part of the work comes
after the answer, was chosen from several forms by how they met earlier measurements of the same loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.scale import simulation
from bench.scale.figures import ONE_AT_A_TIME
from bench.scale.sharding import NODES, SETS, shares, split
from bench.scale.simulation import Seen, Steps, quantile
from bench.scale.world import Cost
from fencelock.backends.consul.connection import MOST as CONSUL
from fencelock.backends.mysql.server import POOL_SIZE as MARIADB
from fencelock.backends.postgres.address import POOL_SIZE as POSTGRES

__all__ = ["CROWDS", "LINE", "SECTION", "THINK", "TRIP", "WANT", "simulated", "steps_of", "turns_of"]

Data = Mapping[str, Any]

TRIP = 0.0005
"""Seconds of a round trip between two machines."""
THINK = 1.0
"""Seconds between two pairs of a client."""
CROWDS = (100, 300, 1_000, 2_000, 5_000, 10_000)
LINE = (100, 1_000)
"""Clients that want one lock, after `WANT` seconds without it, for `SECTION` seconds."""
WANT = 15.0
SECTION = 0.01
FULL, SETTLE = 100, 200
"""Tasks that fill a server of Redis; and pairs of each until those of a set have settled."""
FITS = 4
"""So often a guess is mended."""
UNORDERED = {"redlock"}
DOORS = {"postgres": POSTGRES, "mariadb": MARIADB, "consul": CONSUL}
"""Connections of a client for its steps, where a step has one to itself."""


def steps_of(one: Data, processors: int) -> Steps:
    """Return what a pair takes, so that one task alone takes as long as it was seen to."""
    alone, crowd = one["loads"][0], one["loads"][-1]
    client = Cost(*(load["client"] + load["network"] / 2 for load in (alone, crowd)))
    members = max(one["members"], 1)
    server = Cost(*((load["server"] + load["network"] / 2) / members for load in (alone, crowd)))
    if not one["members"]:
        # Whoever writes keeps the others out for all of its time: no part of it is after the answer.
        file = 1 / max(load["rate"] for load in one["loads"])
        server, quick = Cost(file, file), quantile(alone["times"], 0.1)
        client = Cost(max(0.0, min(client.alone, quick) - file), max(0.0, client.crowd - file))
    slots = 1 if one["kind"] in ONE_AT_A_TIME or not one["members"] else processors
    door, embedded = DOORS.get(one["kind"], 0), not one["members"]
    steps = Steps(client, server, [0.0], members, slots, door, embedded=embedded)
    bare = simulation.pairs(steps, clients=1, count=50, processes=1, processors=processors)
    known, times = quantile(bare.times, 0.5), alone["times"]
    path = 1.0 if embedded else min(1.0, quantile(times, 0.1) / known)
    # The slowest of all would be drawn too often: those beyond the 99th of a hundred count as that one.
    return steps._replace(path=path, ways=[max(0.0, seconds - known * path) for seconds in times[:-1]])


def fitted(steps: Steps, load: Data, processors: int) -> Steps:
    """Return steps that take as long in the crowd as was seen: in each batch there is a first one.

    For the check only. Larger crowds have larger batches, but nothing shows that those are cheaper still.
    """
    client, server = steps.client, steps.server
    wanted = client.crowd + (server.crowd if steps.embedded else 0.0), server.crowd * steps.members
    for _ in range(FITS):
        seen = _load(steps, load, processors, count=1_000)
        client = Cost(client.alone, max(0.0, client.crowd + wanted[0] - seen.client))
        if not steps.embedded:
            server = Cost(server.alone, max(0.0, server.crowd + (wanted[1] - seen.server) / steps.members))
        steps = steps._replace(client=client, server=server)
    return steps


def _load(steps: Steps, load: Data, processors: int, count: int) -> Seen:
    return simulation.pairs(
        steps,
        clients=load["clients"],
        tasks=load["tasks"],
        count=count,
        processes=load["processes"],
        processors=processors,
    )


def turns_of(one: Data, processors: int) -> Steps:
    """Return what a handoff takes, so that eight clients hand over as often as they were seen to."""
    seen = one["hot"][1]
    members = max(one["members"], 1)
    client, server = seen["client"] + seen["network"] / 2, (seen["server"] + seen["network"] / 2) / members
    slots = 1 if one["kind"] in ONE_AT_A_TIME or not one["members"] else processors
    steps = Steps(Cost(client, client), Cost(server, server), [0.0], members, slots)
    for _ in range(FITS):
        tried = _hot(steps, seen, processors, count=400)
        steps = steps._replace(ways=[max(0.0, steps.ways[0] + 1 / seen["rate"] - 1 / tried.rate)])
    return steps


def _hot(steps: Steps, seen: Data, processors: int, count: int) -> Seen:
    return simulation.hot(
        steps,
        clients=seen["clients"],
        section=seen.get("section", 0.0),
        count=count,
        processes=seen["processes"],
        processors=processors,
    )


def told(seen: Seen, **what: Any) -> dict[str, Any]:
    p50, p99 = (float(f"{quantile(seen.times, part):.4g}") for part in (0.5, 0.99))
    return {**what, "rate": float(f"{seen.rate:.4g}"), "p50": p50, "p99": p99, "busy": round(seen.busy, 3)}


def checked(one: Data, processors: int, steps: Steps, turns: Steps | None) -> dict[str, Any]:
    """Simulate what was measured, on the machine on which it was."""
    windows = [*one["hot"], one["kept"]] if turns else []
    fit = fitted(steps, one["loads"][-1], processors)
    return {
        "loads": [told(_load(fit, load, processors, 4_000)) for load in one["loads"]],
        "hot": [told(_hot(turns, seen, processors, 3_000)) for seen in windows if turns],
    }


def further(one: Data, steps: Steps, turns: Steps | None, crowds: Sequence[int] = CROWDS) -> dict[str, Any]:
    """Simulate clients on machines of their own, and a server with one processor."""
    trip = TRIP if one["members"] else 0.0
    alone = steps._replace(slots=1)
    far = [
        told(
            simulation.pairs(alone, clients=clients, count=max(6_000, clients), think=THINK, trip=trip),
            clients=clients,
        )
        for clients in crowds
    ]
    line = [
        told(
            simulation.hot(
                turns._replace(slots=1), clients=clients, count=4_000, section=SECTION, think=WANT, trip=trip
            ),
            clients=clients,
        )
        for clients in LINE
        if turns
    ]
    return {"far": far, "line": line}


def several(steps: Steps) -> list[dict[str, Any]]:
    """Simulate Clusters and sets of servers that are full, each with the share of the names that it has."""
    groups = [("one server", [1.0])]
    groups += [(f"{servers} servers, by the CRC-32 of the name", split(servers)) for servers in SETS]
    groups += [(f"Cluster of {nodes} nodes", shares(nodes)) for nodes in NODES]
    found = []
    for what, parts in groups:
        clients = FULL * len(parts)
        seen = simulation.pairs(
            steps, clients=clients, count=20 * clients, trip=TRIP, shares=parts, settle=SETTLE
        )
        found.append(told(seen, what=what, servers=len(parts), largest=max(parts)))
    return found


def simulated(data: Data) -> dict[str, Any]:
    """Return all that is simulated."""
    processors = data["processors"]
    backends: dict[str, Any] = {}
    for one in data["backends"]:
        steps = steps_of(one, processors)
        turns = None if one["kind"] in UNORDERED else turns_of(one, processors)
        backends[one["kind"]] = {**checked(one, processors, steps, turns), **further(one, steps, turns)}
    redis = next(one for one in data["backends"] if one["kind"] == "redis")
    return {"backends": backends, "several": several(steps_of(redis, processors))}
