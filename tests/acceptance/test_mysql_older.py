"""Tables that an older fencelock made, and clients of it beside newer ones.

An older client that had a lock calls `take_v1` to take it again, with the token that it had. If the bucket
has given no other token since, `take_v1` does not look at the queue. So newer clients must draw a token for
whatever stands in a queue, and for a request that they give up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from cli_helpers import fencelock_command
from mysql_desk import FLAVOURS, ask, desk_for, residue
from tools.servers import start

from fencelock import Client
from fencelock.backends import backend_from_url
from fencelock.backends.mysql.places import Places

TAKE = """
CREATE PROCEDURE fencelock_take_v1 (
  IN p_seen BIGINT,
  IN p_bucket SMALLINT UNSIGNED,
  IN p_place VARBINARY(1100),
  IN p_owner VARBINARY(64),
  IN p_mode VARBINARY(16),
  IN p_slots INT,
  IN p_ttl BIGINT,
  IN p_patience BIGINT,
  IN p_wait TINYINT,
  IN p_details BLOB
)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_token BIGINT;
  START TRANSACTION;
  UPDATE fencelock_buckets SET token = LAST_INSERT_ID(
      GREATEST(token + 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))))
    WHERE bucket = p_bucket AND token = p_seen;
  IF ROW_COUNT() = 1 THEN
    SET v_token = LAST_INSERT_ID();
    INSERT INTO fencelock_queue (place, token, owner, mode, slots, deadline, since, held, details)
      VALUES (p_place, v_token, p_owner, p_mode, p_slots,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + p_ttl,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 1, p_details);
    COMMIT;
    SELECT -v_token;
  ELSE
    ROLLBACK;
    CALL fencelock_acquire_v1(
      p_bucket, p_place, p_owner, p_mode, p_slots, p_ttl, p_patience, p_wait, p_details);
  END IF;
END
"""
OWNER = "e" * 32
DETAILS = """'{"client": "c", "host": "h", "pid": 1}'"""
PROCEDURES = "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = 'fencelock'"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("mariadb") as group:
        server = group.members[0]
        with Client(server.url) as locks, locks.lock("first"):
            pass
        ask(server, TAKE)
        yield server


@pytest.fixture
def locks(server: Any) -> Iterator[Client]:
    with Client(server.url) as locks:
        yield locks
    ask(server, "DELETE FROM fencelock_queue", "DELETE FROM fencelock_gone")


def had(locks: Client, name: str) -> int:
    """Return the token of a lease that has left, as an older client remembers it."""
    with locks.lock(name) as lease:
        return lease.token


def take(server: Any, name: str, last: int) -> Any:
    """Let an older client take a lock again; below zero is the token that it took without a look."""
    place = Places("").find(name)
    rest = f"'exclusive', 1, 60000000, 3000000, 2, {DETAILS}"
    return ask(server, f"CALL fencelock_take_v1({last}, {place.bucket}, {place.word}, '{OWNER}', {rest})")[0]


def test_nobody_came(server: Any, locks: Client) -> None:
    last = had(locks, "mine")
    (token,) = take(server, "mine", last)
    assert -token > last
    assert [holder.token for holder in locks.inspect("mine").holders] == [-token]
    assert locks.lock("mine").try_acquire() is None


@pytest.mark.parametrize("mode", ["exclusive", "shared", "permit"])
def test_a_newer_client_came_and_stays(server: Any, locks: Client, mode: str) -> None:
    last = had(locks, mode)
    ways = {"shared": locks.rwlock(mode).read(), "permit": locks.semaphore(mode, 2)}
    with ways.get(mode, locks.lock(mode)):
        assert take(server, mode, last)[0] == 0
        assert len(locks.inspect(mode).holders) == 1


def test_a_newer_client_came_and_left(server: Any, locks: Client) -> None:
    last = had(locks, "left")
    theirs = had(locks, "left")
    assert take(server, "left", last)[0] > theirs


def test_a_late_step_of_a_request_that_was_given_up(server: Any, locks: Client) -> None:
    last = had(locks, "late")
    place = Places("").find("late")
    assert ask(server, f"CALL fencelock_leave_v2({place.bucket}, {place.word}, '{OWNER}', 0, 1)") == ((0,),)
    assert take(server, "late", last) == (3, 0)
    assert locks.inspect("late").is_free


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_user_who_may_neither_make_anything_nor_call_take(server: Any, flavour: str) -> None:
    ask(server, "DROP USER IF EXISTS worker", "CREATE USER worker IDENTIFIED BY 'worker'")
    script = backend_from_url(server.url).schema()  # type: ignore[attr-defined]
    for line in script.partition("-- One that only looks:")[0].splitlines():
        if line.startswith("-- GRANT"):
            ask(server, line.removeprefix("-- "))
    url = f"mysql://worker:worker@{server.address}/fencelock"
    with desk_for(flavour, url) as desk:
        for _ in range(2):
            lease = desk.acquire("job", ttl=30)
            assert desk(lease.verify)
            assert desk(lease.release)
    assert fencelock_command(url, "doctor", "--fail-on", "warning").returncode == 0
    assert residue(server) == 0


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_missing_is_made_and_the_rest_left_alone(
    server: Any, flavour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And nothing is logged: asyncmy logs what the server says of tables that are there already."""
    made = set(ask(server, PROCEDURES))
    with desk_for(flavour, server.url) as desk:
        ask(server, "DROP PROCEDURE fencelock_acquire_v1")
        desk(desk.acquire("job").release)
    assert ("fencelock_take_v1",) in made
    assert set(ask(server, PROCEDURES)) == made
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
