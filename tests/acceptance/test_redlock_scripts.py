"""Redlock's scripts on one node: no two requests agree on one token there, whatever names they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import redis
from tools.servers import start

LUA = files("fencelock.backends.redlock") / "lua"
ONE, OTHER = "1" * 32, "2" * 32
BUCKET = "7"


class Node:
    """A node that votes, asked by hand."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        client.hset("memory", mapping={"run": "any", "member": 1})

    def ask(self, script: str, *args: Any) -> Any:
        lock, *rest = args
        text = (LUA / f"{script}.lua").read_text(encoding="utf-8")
        return self.client.eval(text, 2, "memory", lock, BUCKET, *rest)

    def acquire(self, lock: str, owner: str) -> int:
        return int(self.ask("acquire", lock, owner, 60_000, 1, ""))


@pytest.fixture
def node() -> Iterator[Node]:
    with start("redis") as group, redis.Redis.from_url(group.url) as client:
        yield Node(client)


def test_a_node_agrees_with_one_writer_of_a_token(node: Node) -> None:
    first = node.acquire("a", ONE)
    second = node.acquire("b", OTHER)
    assert second == first + 1, "names of one bucket share a counter"
    assert node.ask("write_back", "b", OTHER, second) == second, "it wrote that itself"
    assert node.ask("write_back", "a", ONE, second) == -second, "somebody else wrote that"
    assert node.ask("write_back", "a", ONE, first) == -second, "the counter has gone on"
    assert node.ask("write_back", "a", ONE, second + 5) == second + 5
    assert node.ask("write_back", "a", ONE, second + 5) == second + 5, "asked twice it agrees twice"


def test_a_node_agrees_only_with_who_has_its_lock(node: Node) -> None:
    token = node.acquire("a", ONE)
    node.client.delete("a")  # it has expired
    assert node.ask("write_back", "a", ONE, token) == -token
    assert node.acquire("a", OTHER) == token + 1
    assert node.ask("release", "a", ONE, 0, 9) == 0, "the successor's lock"
    assert node.ask("write_back", "a", ONE, token + 9) == -(token + 1)
