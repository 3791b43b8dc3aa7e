"""The URL, and what a set of servers must be."""

from __future__ import annotations

import pickle

import pytest

import fencelock
from fencelock.backends.redis.server import Server
from fencelock.backends.redlock import RedlockBackend
from fencelock.backends.redlock.failures import TooFewNodes, broke, said
from fencelock.backends.redlock.url import parse
from fencelock.errors import BackendUnavailable, ConfigurationError, QuorumNotReached


def test_servers_and_limits() -> None:
    servers, limits = parse("redlock://me:s3cret@a,b:7000,[::1]:7001/2?tls=yes&node_timeout=0.5&max_ttl=60")
    assert [server.label for server in servers] == ["a:6379", "b:7000", "[::1]:7001"]
    assert limits == {"node_timeout": 0.5, "max_ttl": 60.0}
    assert all(server.tls for server in servers)
    assert {server.options["db"] for server in servers} == {2}
    assert {server.options["password"] for server in servers} == {"s3cret"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redlock://", "names no servers"),
        ("redlock://a", "1 servers are too few"),
        ("redlock://a,b", "2 servers are too few"),
        ("redlock://a,b,a", "a:6379 is there twice"),
        ("redlock://a,b,c:x", "is not an address"),
        ("redlock://a,b,", "is not an address"),
        ("redlock://:s3cret@a,b,c?speed=1", "unknown option speed"),
        ("redlock://a,b,c?max_ttl=0", "a number of seconds above 0"),
        ("redlock://a,b,c?max_ttl=1.1e9", "max_ttl=1.1e.09 is out of range.* at most 1e.09 seconds"),
        ("redlock://a,b,c?node_timeout=soon", "a number of seconds above 0"),
        ("redlock://a,b,c?tls=maybe", "write yes or no"),
        ("redlock://a,b,c/one", "is not a number"),
    ],
)
def test_bad_urls_are_refused_in_one_line_without_the_password(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        RedlockBackend.from_url(url)
    assert "\n" not in str(told.value)
    assert "s3cret" not in str(told.value)


def test_guarantees_need_no_connection() -> None:
    backend = RedlockBackend([Server(host=host) for host in "abcd"], max_ttl=60)
    with fencelock.Client(backend) as locks:
        told = locks.guarantees
        assert (told.scope, told.fairness, told.wakeup) == ("cluster", "none", "push")
        assert any("1 of 4 nodes" in caveat for caveat in told.caveats)
        assert repr(locks) == "<Client <RedlockBackend a:6379,b:6379,c:6379,d:6379>>"
        for lock in (locks.rwlock, lambda name: locks.semaphore(name, 2)):
            with pytest.raises(fencelock.Unsupported):
                lock("name")


def test_too_few_nodes_is_an_outage_too_and_survives_pickling() -> None:
    error = TooFewNodes(
        backend="redlock", votes={"a:1": "granted", "b:2": "connection refused"}, transient=False
    )
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, QuorumNotReached)
    assert isinstance(again, BackendUnavailable)
    assert (again.votes, again.transient) == (error.votes, False)
    assert str(again) == "redlock: no quorum (a:1: granted, b:2: connection refused)"


def test_advice_is_for_urls_of_this_scheme() -> None:
    assert "redlock://:PASSWORD@" in said("a:1", Exception("NOAUTH Authentication required.")).why
    reset = ConnectionResetError(104, "Connection reset by peer")
    assert broke("a:1", reset, greeted=False).why == (
        "connection reset by peer (does it expect TLS? then write ?tls=yes)"
    )
    assert broke("a:1", reset).why == "connection reset by peer"
