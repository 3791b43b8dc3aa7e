"""The measured part of `docs/explanation/scale.md`: of each figure it says whether it was measured or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.scale import figures
from bench.scale.cells import few, room, row, seconds, table
from bench.scale.figures import GIB, LEASES, PAIRS, TTL
from bench.scale.model import LINE, SECTION, THINK, TRIP, WANT
from bench.scale.places import NAMES
from bench.sizing import rough

__all__ = ["block"]

Data = Mapping[str, Any]
BUSY = 0.1
SHOWN = (100, 1_000, 10_000)


def block(data: Data, pictures: Sequence[str]) -> str:
    """Return what stands between the marks of the page."""
    parts = (_about, _summary, _names, _one_lock, _clients, _renewals, _checked, _far, _shards)
    lines = [line for part in parts for line in [*part(data), ""]]
    for picture in pictures:
        place = lines.index(f"<!-- {picture.partition('](')[2].rpartition('/')[2].rstrip(')')} -->")
        lines[place] = picture
    return "\n".join(lines[:-1])


def _about(data: Data) -> Iterator[str]:
    others = figures.others(data)
    yield (
        f"Taken on {data['when'][:10]} at commit `{data['commit']}`, Python {data['python']}, "
        f"{data['processors']} processors, load {data['load']:.1f} before it began. Servers and clients "
        f"share the machine; other programs took {others:.0%} of its processors meanwhile, by the median. "
        "Two digits of each figure."
    )
    if others > BUSY:
        yield ""
        yield (
            "**The machine was busy**: rates are too low and times too long, and what is simulated from them "
            "too; processor times and memory change less."
        )


def _summary(data: Data) -> Iterator[str]:
    yield "### What a set-up carries"
    yield ""
    yield (
        f"*What is full first* is worked out for clients of one sort: each pairs {PAIRS:g} time a second "
        f"and keeps {LEASES} leases with a ttl of {TTL:g} s; a server has one processor, one GiB, and the "
        "limit of connections that it comes with."
    )
    yield ""
    yield from table(
        "backend",
        "pairs for each processor of a server (worked out)",
        "handoffs of one lock, 32 clients (measured)",
        "locks in a GiB (worked out)",
        "waiters in a GiB (worked out)",
        "full first (worked out)",
    )
    for one in data["backends"]:
        full = [
            f"{what}, with {rough(many)} clients" for what, many in figures.first_full(one, data["sizes"])
        ]
        size = data["sizes"].get(one["kind"])
        fit = [rough(GIB / size[key]) if size and size[key] >= 1 else "–" for key in ("lock", "waiter")]
        last = one["hot"][-1]
        pairs = f"{rough(figures.pairs_carried(one))}/s" + ("" if one["members"] else ", the file")
        handoffs = f"{rough(last['rate'] * last['passed'])}/s"
        yield row(NAMES[one["kind"]], pairs, handoffs, *fit, "; then ".join(full))


def _names(data: Data) -> Iterator[str]:
    loads = [f"{load['clients']} × {load['tasks']}" for load in data["backends"][0]["loads"]]
    yield "### Many names"
    yield ""
    yield (
        "Measured: pairs a second with so many clients × so many tasks each. Processor time for one pair "
        f"is that with {loads[-1]}. *Packets* is the kernel's work for them, on nobody's account; for what "
        "a processor carries half of it counts to each side."
    )
    yield ""
    yield from table(
        "backend",
        *loads,
        "server, a pair",
        "clients, a pair",
        "packets, a pair",
        "processors used",
        "full here",
    )
    for one in data["backends"]:
        load = figures.crowded(one)
        times = [seconds(load[key]) if load[key] else "–" for key in ("server", "client", "network")]
        used = f"{figures.used(load, data['processors']):.0%}"
        rates = [f"{rough(each['rate'])}/s" for each in one["loads"]]
        full = figures.full_here(one, data["processors"])
        yield row(f"{NAMES[one['kind']]} {one['version']}", *rates, *times, used, full)
    yield ""
    yield "Worked out: what a processor carries on either side, if nothing else is full before."
    yield ""
    yield from table("backend", "a server's processor", "a client's processor")
    for one in data["backends"]:
        load = figures.crowded(one)
        client = 1 / (load["client"] + load["network"] / 2)
        server = f"{rough(figures.pairs_carried(one))}/s" if one["members"] else "no server"
        yield row(NAMES[one["kind"]], server, f"{rough(client)}/s")


def _one_lock(data: Data) -> Iterator[str]:
    sizes = [load["clients"] for load in data["backends"][0]["hot"]]
    kept = data["backends"][0]["kept"]
    yield "### One lock that everybody wants"
    yield ""
    yield (
        f"Measured: handoffs a second with so many clients; with {kept['clients']} clients that keep it "
        f"for {kept['section'] * 1e3:g} ms each; and with {sizes[-1]} clients the time until one has it, "
        "and the processor time of all servers for one handoff."
    )
    yield ""
    heads = [f"{size} clients" for size in sizes]
    yield from table(
        "backend", *heads, f"kept for {kept['section'] * 1e3:g} ms", "p50", "p99", "servers, a handoff"
    )
    for one in data["backends"]:
        last = one["hot"][-1]
        rates = [f"{rough(load['rate'] * load['passed'])}/s" for load in [*one["hot"], one["kept"]]]
        server = seconds(last["server"]) if one["members"] else "–"
        yield row(NAMES[one["kind"]], *rates, seconds(last["p50"]), seconds(last["p99"]), server)


def _clients(data: Data) -> Iterator[str]:
    yield "### Clients that rest, and clients that wait"
    yield ""
    yield (
        "Measured: what one more client takes in all servers together, at rest, and what is added when it "
        "waits. Worked out: how many clients the default limit lets in, and a GiB of a server holds, all "
        "of them waiting with one task. The limit is the one that the server tells; of ZooKeeper and "
        "Consul it is the one in their documentation."
    )
    yield ""
    yield from table(
        "backend",
        "connections",
        "memory",
        "threads and processes",
        "waiting: connections",
        "memory",
        "limit by default",
        "clients within it",
        "clients in a GiB",
    )
    for one in data["backends"]:
        yield row(NAMES[one["kind"]], *(_client(one) if one["members"] else ["no server", *["–"] * 7]))
    yield ""
    yield "Measured: what one more client takes in its own process, and what is added when it waits."
    yield ""
    yield from table("backend", "files", "threads", "memory", "waiting: files", "threads", "memory")
    for one in data["backends"]:
        cells = []
        for each in (one["resting"], one["waiting"]):
            cells += [few(each[f"client_{key}"]) for key in ("descriptors", "threads")]
            cells.append(room(each["client_memory"]))
        yield row(NAMES[one["kind"]], *cells)


def _client(one: Data) -> list[str]:
    rest, wait, limit = one["resting"], one["waiting"], one["limit"]
    memory = [room(each["memory"]) for each in (rest, wait)]
    connections = (rest["connections"] + wait["connections"]) / one["members"]
    taken = (max(rest["memory"], 0) + max(wait["memory"], 0)) / one["members"]
    return [
        few(rest["connections"]),
        memory[0],
        few(rest["threads"]),
        few(wait["connections"]),
        memory[1],
        f"{limit['connections']:,}: {limit['setting']}" if limit else "none",
        rough(limit["connections"] / connections) if limit else "–",
        rough(GIB / taken) if taken >= 1024 else "not seen",
    ]


def _renewals(data: Data) -> Iterator[str]:
    many = data["backends"][0]["renewal"]["leases"]
    yield "### Renewals"
    yield ""
    yield (
        "Measured: processor time of all servers for the sign of life of a client with one lease, and for "
        f"each lease of a client that has {many}. Worked out: how many of either one processor keeps alive "
        f"with a ttl of {TTL:g} s, if it does nothing else. SQLite's is the client's time."
    )
    yield ""
    yield from table(
        "backend", "a sign of life", "a lease among many", "clients kept alive", "leases kept alive"
    )
    for one in data["backends"]:
        side = "server" if one["members"] else "client"
        times = [seconds(one[key][side]) for key in ("beat", "renewal")]
        yield row(
            NAMES[one["kind"]], *times, rough(figures.signs_alive(one)), rough(figures.leases_alive(one))
        )


def _checked(data: Data) -> Iterator[str]:
    yield "### Simulated against measured"
    yield ""
    yield "<!-- scale-check.svg -->"
    yield ""
    yield (
        "How far the simulation is off, where it was not made from what was measured: half of the points "
        "by less than the first figure, the worst by the second."
    )
    yield ""
    yield from table("", "points", "rate", "p50", "p99")
    for key, what in (("loads", "pairs on many names"), ("hot", "acquisitions of one lock")):
        found = [figures.errors(data, key, figure) for figure in ("rate", "p50", "p99")]
        cells = [f"{middle:.0%}, {worst:+.0%}" for _, middle, worst in found]
        yield row(what, f"{found[0][0]}", *cells)
    yield ""
    yield "Rates, measured: simulated."
    yield ""
    loads, hot = (list(_heads(data, key)) for key in ("loads", "hot"))
    yield from table("backend", *(f"pairs, {head}" for head in loads), *(f"one lock, {head}" for head in hot))
    for one in data["backends"]:
        seen = data["simulated"]["backends"][one["kind"]]
        cells = [
            f"{rough(point.measured)}/s: {rough(point.simulated)}/s ({point.error:+.0%})"
            for key in ("loads", "hot")
            for point in figures.points(one, seen, key)
        ]
        missing = len(loads) + len(hot) - len(cells)
        yield row(NAMES[one["kind"]], *cells, *["not simulated"] * missing)


def _heads(data: Data, key: str) -> Iterator[str]:
    one = data["backends"][0]
    yield from (point.what for point in figures.points(one, data["simulated"]["backends"][one["kind"]], key))


def _far(data: Data) -> Iterator[str]:
    yield "### Beyond this machine"
    yield ""
    yield (
        f"Simulated: each client on a machine of its own, {TRIP * 1e3:g} ms for a round trip, and one "
        f"processor for the server. On the left each client pairs and then thinks for {THINK:g} s; the "
        f"time is that of a pair. On the right all want one lock for {SECTION * 1e3:g} ms, {WANT:g} s "
        "after they last had it; the time is that until they have it. SQLite's clients are processes of "
        "one host, with a processor each."
    )
    yield ""
    yield "<!-- scale-far.svg -->"
    yield ""
    heads = [f"{clients:,} clients" for clients in SHOWN]
    lines = [f"one lock, {clients:,} clients" for clients in LINE]
    yield from table("backend", *heads, *lines)
    for one in data["backends"]:
        seen = data["simulated"]["backends"][one["kind"]]
        chosen = [each for each in seen["far"] if each["clients"] in SHOWN] + seen["line"]
        cells = [f"{rough(e['rate'])}/s, p50 {seconds(e['p50'])}, p99 {seconds(e['p99'])}" for e in chosen]
        yield row(NAMES[one["kind"]], *cells, *["not simulated"] * (len(SHOWN) + len(LINE) - len(cells)))


def _shards(data: Data) -> Iterator[str]:
    spread, several = data["spread"], data["simulated"]["several"]
    low, high = spread["bucket"]
    yield "### Several servers"
    yield ""
    yield (
        f"Worked out, with the functions that the backends use: of {spread['names']:,} names each of the "
        f"{spread['buckets']} buckets has between {low:.2%} and {high:.2%}. The largest share tells what a "
        "set carries, in times of what one server does; simulated, it is Redis, and every server is full."
    )
    yield ""
    buckets = {f"Cluster of {one['nodes']} nodes": one["buckets"] for one in spread["clusters"]}
    yield from table(
        "set",
        "buckets of a server",
        "largest share (worked out)",
        "carries (worked out)",
        "carries (simulated)",
    )
    base = several[0]["rate"]
    for one in several:
        has = buckets.get(one["what"])
        span = f"{has[0]} to {has[-1]}" if has else "–"
        simulated = f"{one['rate'] / base:.1f} times, {rough(one['rate'])}/s"
        yield row(one["what"], span, f"{one['largest']:.1%}", f"{1 / one['largest']:.1f} times", simulated)
