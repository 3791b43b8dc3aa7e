"""The page on scale has the figures that were kept, and its simulation gives the answers that are known."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.scale import figures, kept, model, page, pictures, sharding, simulation
from bench.scale.__main__ import main, page_with
from bench.scale.places import KINDS
from bench.scale.simulation import Steps, quantile
from bench.scale.world import Cost, Gate, Host, Station, World, majority
from bench.suites import SUITES

DATA = kept.load()
MILLI = Cost(0.001, 0.001)
FREE = Cost(0.0, 0.0)


# The page ---------------------------------------------------------------------------------------


def test_page_and_pictures_are_current() -> None:
    assert main(["--check"]) == 0


def test_every_backend_is_there() -> None:
    assert [one["kind"] for one in DATA["backends"]] == list(KINDS)
    assert list(DATA["simulated"]["backends"]) == list(KINDS)
    assert "scale" in SUITES


def test_what_is_kept_was_not_measured_in_a_hurry() -> None:
    assert DATA["quick"] is False
    with pytest.raises(SystemExit):
        kept.taken(_quick())


def _quick() -> Any:
    class Path:
        def read_text(self, encoding: str) -> str:
            return '{"quick": true}'

    return Path()


def test_every_table_says_where_its_figures_are_from() -> None:
    text = page.block(DATA, pictures.shown())
    for section in text.split("### ")[1:]:
        assert re.search(r"[Mm]easured|[Ww]orked out|[Ss]imulated", section), section[:60]
    assert "<!--" not in text, "a picture is missing"


def test_text_by_hand_has_no_figures() -> None:
    text = (kept.ROOT / "docs" / "explanation" / "scale.md").read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- measured")
    after = re.sub(r"```.*?```", "", rest.partition("<!-- /measured -->")[2], flags=re.DOTALL)
    assert not re.findall(r"(?<![\w`-])\d+(?![\w`])", re.sub(r"p50|p99", "", before + after))


def test_pictures_are_svg() -> None:
    for picture in pictures.drawn(DATA).values():
        ElementTree.fromstring(picture)


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no <!-- measured"):
        page_with("nothing", "text")


def test_figures_are_plausible() -> None:
    for one in DATA["backends"]:
        assert all(load["rate"] > 10 for load in [*one["loads"], *one["hot"]]), one["kind"]
        assert 0 < figures.used(figures.crowded(one), DATA["processors"]) < 1.1, one["kind"]
        assert max(load["rate"] for load in one["loads"]) > one["loads"][0]["rate"], "many do more than one"


# What is worked out -----------------------------------------------------------------------------


def backend(**changed: Any) -> dict[str, Any]:
    load = {
        "rate": 1000.0,
        "server": 0.0008,
        "client": 0.0004,
        "network": 0.0004,
        "others": 0.0,
        "processes": 2,
    }
    return {
        "kind": "redis",
        "members": 1,
        "limit": {"setting": "maxclients", "connections": 10_000},
        "loads": [load],
        "resting": {"memory": 20_000.0, "connections": 2.0},
        "beat": {"client": 0.0001, "server": 0.0001},
        "renewal": {"client": 0.00001, "server": 0.00001},
        **changed,
    }


def test_a_processor_carries_what_goes_into_a_second() -> None:
    assert figures.pairs_carried(backend()) == pytest.approx(1000)
    assert figures.pairs_carried(backend(members=5)) == pytest.approx(5000), "all five do the same"
    assert figures.pairs_carried(backend(members=0)) == 1000, "the most that was seen"
    assert figures.signs_alive(backend()) == pytest.approx(100_000)
    assert figures.leases_alive(backend()) == pytest.approx(1_000_000)


@pytest.mark.parametrize(
    ("changed", "what", "clients"),
    [
        ({}, "the processor", 1 / (0.001 + 0.00019 / 10)),
        ({"limit": {"setting": "max_connections", "connections": 100}}, "max_connections", 50),
        ({"limit": {"setting": "of one, for each host", "connections": 1}}, "the processor", 981.4),
        ({"resting": {"memory": 2.0**22, "connections": 1.0}}, "a GiB of memory", 255.8),
        ({"members": 0}, "the file", 981.4),
    ],
)
def test_what_is_full_first(changed: dict[str, Any], what: str, clients: float) -> None:
    found = figures.first_full(backend(**changed), {"redis": {"lock": 300.0, "waiter": 100.0}})
    assert found[0] == (what, pytest.approx(clients, rel=0.01))


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("etcd", {"server": 0.0013, "client": 0.0002}, "the machine, by the server most of all"),
        ("redis", {"server": 0.0009, "client": 0.0002}, "the server"),
        ("redis", {"server": 0.0004, "client": 0.0012}, "the machine, by the clients most of all"),
        ("redis", {"server": 0.0001, "client": 0.0009, "processes": 1}, "the clients"),
        (
            "redis",
            {"server": 0.0001, "client": 0.0001, "others": 1.2},
            "not clear: other programs had the rest",
        ),
        ("redis", {"server": 0.0001, "client": 0.0001}, "neither: steps wait for each other"),
    ],
)
def test_what_was_full_here(kind: str, changed: dict[str, Any], said: str) -> None:
    one = backend(kind=kind)
    assert figures.full_here({**one, "loads": [{**one["loads"][0], **changed}]}, 2) == said


# The simulation ---------------------------------------------------------------------------------


def test_one_client_alone_takes_the_sum_of_its_steps() -> None:
    steps = Steps(Cost(0.0002, 9.0), Cost(0.0005, 9.0), [0.0003])
    seen = simulation.pairs(steps, clients=1, count=100)
    assert seen.rate == pytest.approx(1000) and quantile(seen.times, 0.99) == pytest.approx(0.001)
    assert (seen.client, seen.server) == (pytest.approx(0.0002, rel=0.05), pytest.approx(0.0005, rel=0.05))
    assert simulation.pairs(steps, clients=1, count=100, trip=0.0005).rate == pytest.approx(500)


@pytest.mark.parametrize("clients", [100, 400])
def test_a_full_server_carries_what_goes_into_a_second(clients: int) -> None:
    seen = simulation.pairs(Steps(FREE, MILLI, [0.002]), clients=clients, count=50 * clients)
    assert seen.rate == pytest.approx(1000, rel=0.03) and seen.busy == pytest.approx(1.0, abs=0.02)
    assert quantile(seen.times, 0.5) == pytest.approx(clients / 1000, rel=0.05), "Little's law"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.8])
def test_random_arrivals_wait_as_long_as_a_queue_of_that_sort_says(part: float) -> None:
    """Pollaczek and Khinchine, for steps that all take as long; here they are served one by one."""
    world = World(7)
    server, waited, rate = Station(world), list[float](), part / 0.001

    def arrive() -> Any:
        while len(waited) < 40_000:
            yield world.rest(world.random.expovariate(rate))
            world.live(customer())

    def customer() -> Any:
        started = world.now
        yield turn.enter
        yield server.serve(MILLI)
        turn.leave()
        waited.append(world.now - started - 0.001)

    turn = Gate(world)
    world.live(arrive())
    world.run(lambda: len(waited) >= 40_000)
    assert sum(waited) / len(waited) == pytest.approx(0.001 * part / (2 * (1 - part)), rel=0.06)


def test_many_clients_that_think_are_served_as_often_as_they_ask() -> None:
    seen = simulation.pairs(Steps(FREE, MILLI, [0.0]), clients=300, count=6_000, think=1.0)
    assert seen.rate == pytest.approx(300, rel=0.05) and seen.busy == pytest.approx(0.3, rel=0.1)


def test_whoever_serves_many_serves_each_for_less() -> None:
    world = World(1)
    station, done = Station(world), list[float]()
    for _ in range(5):
        station.serve(Cost(1.0, 0.1))(lambda: done.append(world.now))
    world.run(lambda: False)
    assert done == [1.0, *[pytest.approx(2.3)] * 4], "one alone, then four in one go"


def test_an_answer_comes_before_all_work_is_done() -> None:
    world = World(1)
    station, done = Station(world, path=0.25), list[float]()
    station.serve(Cost(1.0, 1.0))(lambda: station.serve(Cost(1.0, 1.0))(lambda: done.append(world.now)))
    world.run(lambda: False)
    assert done == [1.25]


def test_a_host_has_so_many_processors() -> None:
    world, done = World(1), list[float]()
    host = Host(world, 2)
    for station in [Station(world, host=host) for _ in range(3)]:
        station.serve(Cost(1.0, 1.0))(lambda: done.append(world.now))
    world.run(lambda: False)
    assert done == [1.0, 1.0, 2.0]


def test_a_majority_is_enough() -> None:
    world, done = World(1), list[float]()
    majority([world.rest(seconds) for seconds in (5.0, 1.0, 3.0, 2.0, 4.0)], 3)(
        lambda: done.append(world.now)
    )
    world.run(lambda: False)
    assert done == [3.0]


@pytest.mark.parametrize("clients", [4, 50])
def test_one_lock_takes_a_section_and_a_handoff(clients: int) -> None:
    steps = Steps(Cost(0.0003, 0.0003), Cost(0.0002, 0.0002), [0.0007])
    seen = simulation.hot(steps, clients=clients, count=500, section=0.01)
    each = 0.01 + 2 * 0.0001 + 0.0001 + 0.0007  # kept; heard and given back; released; on the way
    assert seen.rate == pytest.approx(1 / each, rel=0.01)
    assert quantile(seen.times, 0.5) == pytest.approx((clients - 1) * each, rel=0.05)


def test_a_door_lets_so_many_through() -> None:
    wide, narrow = Steps(FREE, FREE, [0.01]), Steps(FREE, FREE, [0.01], door=2)
    rates = [simulation.pairs(one, clients=1, tasks=8, count=500).rate for one in (wide, narrow)]
    assert rates == [pytest.approx(800, rel=0.02), pytest.approx(200, rel=0.02)]


def test_two_servers_carry_twice_as_much_and_a_larger_share_less() -> None:
    steps = Steps(FREE, MILLI, [0.0])
    rates = [
        simulation.pairs(steps, clients=200, count=4_000, shares=shares, settle=20).rate
        for shares in ([1.0], [0.5, 0.5], [0.8, 0.2])
    ]
    assert [rate / rates[0] for rate in rates] == [
        1,
        pytest.approx(2, rel=0.1),
        pytest.approx(1.25, rel=0.05),
    ]


def test_the_same_seed_gives_the_same_figures() -> None:
    one = next(each for each in DATA["backends"] if each["kind"] == "redis")
    processors, said = DATA["processors"], DATA["simulated"]["backends"]["redis"]
    steps, turns = model.steps_of(one, processors), model.turns_of(one, processors)
    assert model.checked(one, processors, steps, turns) == {key: said[key] for key in ("loads", "hot")}
    assert model.further(one, steps, turns, crowds=(100,))["far"] == said["far"][:1]


def test_no_set_carries_more_than_its_busiest_server_lets_it() -> None:
    # Somewhat more: the busiest of several has more to do than one alone, so it serves more at once.
    for one in DATA["simulated"]["several"]:
        assert one["rate"] <= 1.05 * DATA["simulated"]["several"][0]["rate"] / one["largest"], one["what"]


# Sharding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", sharding.NODES)
def test_slots_are_shared_evenly(nodes: int) -> None:
    owned = Counter(sharding.node_of(slot, nodes) for slot in range(sharding.ALL_SLOTS))
    assert sorted(owned) == list(range(nodes)) and max(owned.values()) - min(owned.values()) <= 1


def test_the_spread_is_that_of_the_backend() -> None:
    assert kept.short(sharding.spread()) == DATA["spread"]
    for one in DATA["spread"]["clusters"]:
        assert sum(one["buckets"]) == DATA["spread"]["buckets"]
        assert sum(one["shares"]) == pytest.approx(1, abs=0.01) and min(one["shares"]) > 0
