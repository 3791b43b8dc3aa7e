"""What is worked out of what was measured: what a processor carries, which clients fit, what is full first.

A server's processor carries as many pairs a second as the time of one, in the largest crowd, goes into a
second; half of the kernel's work for packets is the server's. Redlock's servers all do the same work at the
same time, so one of them counts.

What is full first is asked for clients of one sort: each has so many pairs a second and keeps so many leases
alive, and a server has one processor, one GiB and the limit of connections that it comes with.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = [
    "GIB",
    "LEASES",
    "PAIRS",
    "TTL",
    "Point",
    "carried",
    "crowded",
    "errors",
    "first_full",
    "full_here",
    "leases_alive",
    "others",
    "pairs_carried",
    "points",
    "signs_alive",
    "used",
]

Data = Mapping[str, Any]

PAIRS, LEASES, TTL = 1.0, 10, 30.0
"""Of a client: pairs a second, leases that it keeps alive, and their ttl."""
GIB = 2**30
ONE_AT_A_TIME = {"redis", "valkey", "redlock"}
"""Servers that use one processor, however many there are."""
FULL = 0.85
"""The part of a processor's time from which on it counts as full: the rest is the system's."""


def crowded(one: Data) -> Data:
    """Return the largest load."""
    load: Data = one["loads"][-1]
    return load


def used(load: Data, processors: int) -> float:
    """Return the part of the machine's processors that both sides took."""
    return float((load["server"] + load["client"] + load["network"]) * load["rate"] / processors)


def others(data: Data) -> float:
    """Return the part of the processors that other programs took, by the median of all windows."""
    windows = [window for one in data["backends"] for window in (*one["loads"], *one["hot"], one["kept"])]
    return float(statistics.median(window["others"] for window in windows) / data["processors"])


def full_here(one: Data, processors: int) -> str:
    """Say what was full on the machine on which it was measured."""
    load = crowded(one)
    server, client = load["server"] * load["rate"], load["client"] * load["rate"]
    if one["kind"] in ONE_AT_A_TIME and server / max(one["members"], 1) >= FULL:
        return "the server"
    if client / load["processes"] >= FULL:
        return "the clients"
    if used(load, processors) >= FULL:
        most = "the clients" if client > server else "the servers" if one["members"] > 1 else "the server"
        return f"the machine, by {most} most of all"
    if used(load, processors) + load["others"] / processors >= FULL:
        return "not clear: other programs had the rest"
    return "the file: one writes at a time" if not one["members"] else "neither: steps wait for each other"


def server_time(one: Data, load: Data) -> float:
    """Return the seconds of one server for a pair or a handoff."""
    return float((load["server"] + load["network"] / 2) / max(one["members"], 1))


def pairs_carried(one: Data) -> float:
    """Return how many pairs a second a server's processor carries; of a file, the most that were seen."""
    if not one["members"]:
        return max(float(load["rate"]) for load in one["loads"])
    return 1 / server_time(one, crowded(one))


def _renewing(one: Data, key: str) -> float:
    """Return the seconds of one server for a renewal; without a server, of the client."""
    if not one["members"]:
        return float(one[key]["client"])
    return float(one[key]["server"] / one["members"])


def signs_alive(one: Data) -> float:
    """Return how many clients with one lease each a processor keeps alive: a sign of life after a third."""
    return TTL / 3 / _renewing(one, "beat")


def leases_alive(one: Data) -> float:
    """Return how many leases a processor keeps alive if clients have many each."""
    return TTL / 3 / _renewing(one, "renewal")


def carried(one: Data, sizes: Data) -> dict[str, float]:
    """Return how many clients of the one sort each part of a set-up carries."""
    further = (LEASES - 1) * _renewing(one, "renewal")
    busy = PAIRS / pairs_carried(one) + (_renewing(one, "beat") + further) / (TTL / 3)
    found = {"the processor" if one["members"] else "the file": 1 / busy}
    members, size = max(one["members"], 1), sizes.get(one["kind"])
    if one["members"] and size:
        each = max(one["resting"]["memory"], 0.0) / members + LEASES * size["lock"]
        found["a GiB of memory"] = GIB / each
    if one["limit"] and not one["limit"]["setting"].endswith("host"):
        connections = max(one["resting"]["connections"] / members, 1.0)
        found[one["limit"]["setting"]] = one["limit"]["connections"] / connections
    return found


def first_full(one: Data, sizes: Data) -> list[tuple[str, float]]:
    """Return what is full first, and what would be next, each with how many clients."""
    return sorted(carried(one, sizes).items(), key=lambda item: item[1])[:2]


class Point(NamedTuple):
    """One figure, measured and simulated."""

    what: str
    measured: float
    simulated: float

    @property
    def error(self) -> float:
        return self.simulated / self.measured - 1


def points(one: Data, simulated: Data, key: str, figure: str = "rate") -> Iterator[Point]:
    """Yield the loads, or the windows of the hot lock, that the simulation was not made from."""
    if key == "loads":
        pairs = list(zip(one["loads"], simulated["loads"], strict=True))[1:-1]
        named = [(f"{load['clients']} × {load['tasks']}", load, seen) for load, seen in pairs]
    else:
        windows = [*one["hot"], one["kept"]] if simulated["hot"] else []
        pairs = list(zip(windows, simulated["hot"], strict=True))
        named = [(_window(load), load, seen) for n, (load, seen) in enumerate(pairs) if n != 1]
    yield from (Point(what, load[figure], seen[figure]) for what, load, seen in named)


def _window(load: Data) -> str:
    kept = f", {load['section'] * 1e3:g} ms" if "section" in load else ""
    return f"{load['clients']}{kept}"


def errors(data: Data, key: str, figure: str) -> tuple[int, float, float]:
    """Return how many points there are, and the middle and the worst of their errors."""
    backends = data["simulated"]["backends"]
    found = [p.error for one in data["backends"] for p in points(one, backends[one["kind"]], key, figure)]
    return len(found), statistics.median(map(abs, found)), max(found, key=abs)
