"""What `postgresql+advisory://` does without a server: URLs, keys, settings, the watch over connections."""

from __future__ import annotations

import re
import socket
import threading
import time

import pytest

from fencelock.backends import backend_from_url
from fencelock.backends.postgres.advisory import POOL_SIZE, AdvisoryBackend, watch
from fencelock.backends.postgres.advisory.keys import Keys
from fencelock.backends.postgres.advisory.settings import settings_for
from fencelock.backends.postgres.keys import advisory_key
from fencelock.errors import ConfigurationError
from fencelock.runtime.threads import join

SECRET = "s3cr3t"


def test_options() -> None:
    backend = backend_from_url(f"postgresql+advisory://u:{SECRET}@h:1/d?dead_after=7&pool_size=3&schema=x")
    assert isinstance(backend, AdvisoryBackend)
    assert (backend._dead_after, backend._address.pool_size, backend._address.schema) == (7, 3, "x")
    assert SECRET not in repr(backend)
    assert AdvisoryBackend.from_url("postgresql+advisory://h")._address.pool_size == POOL_SIZE


@pytest.mark.parametrize("value", ["", "0", "1", "-3", "1.5", "soon", "3601", "1e3"])
def test_a_wrong_dead_after(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"dead_after=.*2 to 3600") as caught:
        AdvisoryBackend.from_url(f"postgresql+advisory://u:{SECRET}@h?dead_after={value}")
    assert SECRET not in str(caught.value)


def test_guarantees() -> None:
    backend = AdvisoryBackend.from_url("postgresql+advisory://h?dead_after=9")
    promised = backend.guarantees
    assert (promised.crash_release, promised.fencing, promised.wakeup) == ("connection", "durable", "push")
    assert promised.fairness == "fifo" and "fifo" in backend.capabilities
    assert not backend.capabilities & {"permit", "force_release"}
    assert any("9s" in caveat for caveat in promised.caveats)


def test_the_schema_is_complete() -> None:
    """Every function that is called is made, under the schema's own name, and nothing is left to fill in."""
    script = AdvisoryBackend.from_url("postgresql+advisory://h?schema=mine").schema()
    assert "{" not in script and '"mine".advisory_take(' in script
    made = set(re.findall(r'FUNCTION "mine"\.advisory_(\w+)\(', script))
    assert made == {
        "cancel", "drop", "enter", "leave", "move", "queue", "renew", "reserve", "stand", "take",
    }  # fmt: skip
    assert "UNLOGGED" in script


def test_keys_are_of_the_whole_place() -> None:
    keys = Keys("ns")
    key = keys.find("näme")
    assert key.number == b"%d" % advisory_key("ns", "näme")
    assert keys.name_of(key.place) == "näme"
    assert Keys("").find("ns\0x"[3:]).number != Keys("ns").find("x").number
    low, high = keys.range_of("a")
    assert low <= keys.find("a").place < high and not low <= keys.find("b").place < high
    for number in range(3000):  # it remembers no more than some
        keys.find(str(number))
    assert len(keys._known) <= 1024


@pytest.mark.parametrize("dead_after", [2, 3, 15, 3600])
def test_the_server_gives_up_within_the_time(dead_after: int) -> None:
    """Silence is noticed when a probe is due: the limit and one interval must fit into the time."""
    found = dict(re.findall(r"SET (\w+) = '?([\w ]+)'?;", settings_for(dead_after, 150000)))
    limit, interval = int(found["tcp_user_timeout"]) / 1000, int(found["tcp_keepalives_interval"])
    assert 0 < limit <= dead_after - interval
    assert int(found["tcp_keepalives_idle"]) <= limit
    assert int(found["tcp_keepalives_idle"]) + interval * int(found["tcp_keepalives_count"]) >= limit


def test_settings_that_a_version_does_not_know_are_left_alone() -> None:
    assert "idle_session_timeout" not in settings_for(15, 130000)
    assert "idle_session_timeout" in settings_for(15, 140000)
    assert "transaction_timeout" not in settings_for(15, 160000).replace("in_transaction", "")
    assert "SET transaction_timeout" in settings_for(15, 170000)


def test_the_watch_tells_of_an_end_and_of_nothing_else() -> None:
    here, there = socket.socketpair()
    other, _peer = pair = socket.socketpair()
    told = threading.Event()
    watch.watch(here.fileno(), told.set)
    watch.watch(other.fileno(), lambda: pytest.fail("it has not ended"))
    there.sendall(b"words")
    assert not told.wait(0.1)
    there.close()
    assert told.wait(10)
    watch.forget(other.fileno())
    watch.forget(other.fileno())
    for each in (here, *pair):
        each.close()


def test_the_watch_ends_with_the_last_connection() -> None:
    def watching() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "fencelock-watch"]

    for thread in watching():
        thread.join(30)
    for _ in range(3):
        here, there = socket.socketpair()
        watch.watch(here.fileno(), lambda: None)
        deadline = time.monotonic() + 10
        while not watching():  # it starts in a moment
            assert time.monotonic() < deadline
        (thread,) = watching()
        watch.forget(here.fileno())
        join(thread, 10)
        assert not thread.is_alive()
        here.close()
        there.close()
