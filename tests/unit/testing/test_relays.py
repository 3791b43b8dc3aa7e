"""Relays stand in front of every server of a URL, and one request of all of them is struck."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from fencelock.backends.memory import MemoryBackend
from fencelock.backends.url import addresses, split
from fencelock.testing.conformance import run
from fencelock.testing.conformance.relays import Nth, Relays
from fencelock.testing.conformance.target import Target
from fencelock.testing.conformance.themes.wire import STRUCK, chosen, nothing, reset_before


@pytest.fixture
def servers() -> Iterator[list[socket.socket]]:
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    yield listening
    for server in listening:
        server.close()


def hosts(servers: list[socket.socket]) -> str:
    return ",".join(f"127.0.0.1:{server.getsockname()[1]}" for server in servers)


def test_the_url_leads_through_the_relays_and_keeps_the_rest(servers: list[socket.socket]) -> None:
    url = f"redlock://user:p%40ss@{hosts(servers)}/1?namespace=a%2Fb&x={hosts(servers)}"
    with closing(Relays(url, 6379)) as relays:
        through, parts = split(relays.url), split(url)
        assert (through.user, through.password) == ("user", "p@ss")
        assert (through.scheme, through.path, through.query) == (parts.scheme, parts.path, parts.query)
        found, given = (addresses(one.hosts, 6379, "") for one in (through, parts))
        assert len(found) == 2
        assert not {*found} & {*given}


def test_a_host_without_a_port_has_the_usual_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with closing(Relays("redis://127.0.0.1", port)) as relays:
            [address] = addresses(split(relays.url).hosts, 6379, "")
            with socket.create_connection(address, timeout=5) as client, server.accept()[0] as at_server:
                client.sendall(b"hello")
                assert at_server.recv(5) == b"hello"


def test_requests_are_counted_over_all_relays(servers: list[socket.socket]) -> None:
    with closing(Relays(f"etcd://{hosts(servers)}", 2379)) as relays:
        counted, _ = relays.arm(nothing, 0)
        _, faults = relays.arm(reset_before, 3)
        clients = [
            socket.create_connection(address, timeout=5)
            for address in addresses(split(relays.url).hosts, 2379, "")
        ]
        at_servers = [server.accept()[0] for server in servers]
        for number in (0, 1):
            clients[number].sendall(b"x")
            assert at_servers[number].recv(1) == b"x"
        clients[0].sendall(b"y")
        with pytest.raises(ConnectionResetError):
            clients[0].recv(1)
        assert [fault.struck for fault in faults] == [1, 0]
        assert counted.seen == 3
        for sock in (*clients, *at_servers):
            sock.close()


def test_the_nth_is_chosen_once() -> None:
    nth = Nth(2)
    assert [nth(b"") for _ in range(4)] == [False, True, False, False]
    assert nth.seen == 4


@pytest.mark.parametrize("requests", [1, 3, STRUCK, STRUCK + 1, 5 * STRUCK])
def test_requests_are_struck_from_the_first_on_and_spread_over_all(requests: int) -> None:
    numbers = chosen(requests)
    assert numbers[0] == 1
    assert len({*numbers}) == len(numbers) == min(requests, STRUCK)
    assert requests - numbers[-1] < max(1, requests / STRUCK)


def test_what_has_no_network_says_so() -> None:
    names = ["replies_that_are_lost", "connections_reset_before_a_request"]
    summary = run("memory://", only=names, flavours=["asyncio"])
    assert [result.outcome for result in summary.results] == ["not applicable"] * 2
    assert {result.detail for result in summary.results} == {
        "needs relays, and the URL names no hosts that clients connect to"
    }
    with closing(Target(MemoryBackend)) as target:
        assert target.unrelayed == "needs relays, and they need a URL"
