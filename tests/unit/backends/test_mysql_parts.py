"""The pure parts of the MySQL backends: places, statements, records, pauses, messages, findings."""

from __future__ import annotations

import json
import ssl
from typing import Any

import pytest

from fencelock.backends.base import Origin, Request
from fencelock.backends.mysql import schema
from fencelock.backends.mysql.doctor import Facts, findings
from fencelock.backends.mysql.failures import (
    Kind,
    Unusable,
    kind_of,
    may_not_create,
    newer_schema,
    said,
    unreachable,
)
from fencelock.backends.mysql.getlock import lock_name
from fencelock.backends.mysql.pace import LONGEST, Waiter
from fencelock.backends.mysql.places import BUCKETS, Places
from fencelock.backends.mysql.records import Waiting, details, glance, state
from fencelock.errors import BackendUnavailable, ConfigurationError
from fencelock.runtime.blocking import BlockingSignal

NAMES = ["a", "A", "a ", "a/b", "a:b", "ä", "a\u0308", "%2F", "a\tb", "a" * 512]


def test_no_two_places_are_the_same() -> None:
    places = {Places(space).find(name).raw for space in ("", "x", "X") for name in NAMES}
    assert len(places) == 3 * len(NAMES)
    assert Places("a").find("b").raw != Places("").find("ab").raw
    assert all(0 <= Places("").find(name).bucket < BUCKETS for name in NAMES)
    assert len({Places("").find(str(number)).bucket for number in range(10_000)}) == BUCKETS


def test_a_place_is_written_in_hexadecimal() -> None:
    places = Places("ns")
    assert places.find("a'b").word == "x'" + b"ns\0a'b".hex() + "'"
    assert places.find("a'b") is places.find("a'b")
    assert places.name_of(places.find("ä").raw) == "ä"
    start, end = places.between("a")
    for name in ("a", "ab", "a\U0010ffff"):
        assert start <= places.find(name).word < end
    for name in ("A", "b"):
        assert not start <= places.find(name).word < end


def test_names_of_locks_are_hashes_of_everything() -> None:
    names = {lock_name(db, space, name) for db in ("d", "D") for space in ("", "x") for name in NAMES}
    assert len(names) == 4 * len(NAMES)
    for name in names:
        assert len(name) <= 64
        assert name == name.lower()
        assert name.startswith("fencelock:")


def test_statements_are_those_of_the_script() -> None:
    found = schema.statements("p_")
    assert len([one for one in found if one.startswith("CREATE TABLE IF NOT EXISTS p_")]) == 5
    procedures = [one for one in found if one.startswith("CREATE PROCEDURE p_")]
    assert len(procedures) == 6
    for procedure in procedures:
        assert "SQL SECURITY INVOKER" in procedure
        assert procedure.endswith("END")
        assert "COMMIT;" in procedure
    assert all("DELIMITER" not in one and not one.startswith("--") for one in found)
    assert found[-1].startswith("INSERT IGNORE INTO p_schema")
    assert f"VALUES ({schema.VERSION})" in found[-1]
    assert schema.script().count("CREATE PROCEDURE IF NOT EXISTS fencelock_") == 6
    assert len(schema.statements("p_", "getlock")) == 4


def test_the_latch_for_making_tables_has_a_name_that_fits() -> None:
    assert len(schema.latch("x" * 64, "y" * 40)) <= 64
    assert schema.latch("a", "b_") != schema.latch("a", "c_")


def request(metadata: str | None = None) -> Request:
    return Request("f" * 32, "job", "exclusive", 1, 30.0, Origin("me", "hôst'", 7), metadata)


@pytest.mark.parametrize("metadata", [None, json.dumps({"it's": "ü"}), "0", "null"])
def test_what_is_told_of_a_request_comes_back(metadata: str | None) -> None:
    told = bytes.fromhex(details(request(metadata))[2:-1])
    assert told.isascii()
    row = (2_000_000, b"\0job", b"f" * 32, 5, b"exclusive", 1, 3_500_000, 1_000_000, told)
    (holder,) = state("job", [row]).holders
    assert (holder.owner, holder.token, holder.mode, holder.limit) == ("f" * 32, 5, "exclusive", 1)
    assert (holder.client, holder.host, holder.pid) == ("me", "hôst'", 7)
    assert (holder.since, holder.age, holder.expires_in) == (1.0, 1.0, 1.5)
    assert holder.metadata == (None if metadata is None else json.loads(metadata))


def test_a_waiter_knows_who_holds() -> None:
    told = bytes.fromhex(details(request())[2:-1])
    row = (0, 9, 250_000, 2_000_000, 1, b"f" * 32, 5, b"exclusive", 1, 3_000_000, 1_000_000, told)
    busy = Waiting(row)
    assert (busy.token, busy.recheck, busy.before) == (9, 0.25, 1)
    assert busy.holder is not None
    assert busy.holder.expires_in == 1.0
    assert Waiting((0, 9, None, 2_000_000, 1, *[None] * 7)).holder is None


def told_of(mode: str, limit: int, count: int) -> list[tuple[Any, ...]]:
    told = bytes.fromhex(details(request())[2:-1])
    return [
        (
            2_000_000,
            b"\0job",
            b"%032x" % token,
            token,
            mode.encode(),
            limit,
            3_000_000 + token,
            1_000_000,
            told,
        )
        for token in range(count)
    ]


@pytest.mark.parametrize(
    ("mode", "limit", "others", "busy"),
    [
        ("exclusive", 1, told_of("exclusive", 1, 0), False),
        ("exclusive", 1, told_of("exclusive", 1, 1), True),
        ("shared", 0, told_of("shared", 0, 5), False),
        ("shared", 0, told_of("exclusive", 1, 1), True),
        ("permit", 3, told_of("permit", 3, 2), False),
        ("permit", 3, told_of("permit", 3, 3), True),
    ],
)
def test_a_glance_tells_whether_a_lock_is_busy(mode: Any, limit: int, others: Any, busy: bool) -> None:
    wanted = Request("f" * 32, "job", mode, limit, 30.0, Origin("me", "here", 7), None)
    seen = glance(state("job", others), wanted)
    assert (seen is not None) is busy
    if seen is not None:
        assert seen.holder is not None
        assert (seen.holder.token, seen.recheck) == (0, 1.0)


def test_pauses_grow_with_place_and_time() -> None:
    def pause(before: int, stood: float, slots: int = 1) -> float:
        return Waiter(1, before, 0.0, BlockingSignal()).pause(stood, slots, 0.5)

    assert 0.001 <= pause(1, 0.0) <= 0.002
    assert pause(1, 0.0) < pause(2, 0.0) < pause(10, 0.0)
    assert pause(1, 0.0) < pause(1, 1.0) < pause(1, 5.0)
    assert pause(1000, 0.0) == pause(1, 3600.0) == LONGEST
    assert pause(4, 0.0, slots=4) == pause(1, 0.0)
    waiter = Waiter(1, 5, 0.0, BlockingSignal())
    waiter.stands(1, 5, 10.0)
    assert waiter.since == 0.0
    waiter.stands(1, 4, 10.0)
    assert waiter.since == 10.0


def test_pauses_follow_the_pace_of_the_queue() -> None:
    waiter = Waiter(1, 9, 0.0, BlockingSignal())
    before = waiter.pause(0.0, 1, 0.5)
    waiter.stands(1, 7, 0.04)
    assert waiter.pace == pytest.approx(0.02)
    assert waiter.pause(0.04, 1, 0.5) > 3 * before
    assert waiter.pause(0.04, 1, 0.5) < 6 * 0.02  # it looks before its turn, not after it
    waiter.stands(1, 1, 0.05)
    assert waiter.pause(0.05, 1, 0.5) < 0.002


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2006, Kind.BROKEN),
        (2013, Kind.BROKEN),
        (1927, Kind.BROKEN),
        (1213, Kind.CONFLICT),
        (1205, Kind.CONFLICT),
        (1146, Kind.MISSING),
        (1305, Kind.MISSING),
        (1045, Kind.SAID),
        (1969, Kind.SAID),
    ],
)
def test_what_to_do_about_an_error(code: int, kind: Kind) -> None:
    assert kind_of(Unusable(code, "words")) is kind


@pytest.mark.parametrize(
    ("code", "words", "transient"),
    [
        (1045, "the user name or the password is wrong", False),
        (1049, "it has no such database", False),
        (1290, "read-only", True),
        (1792, "read-only", True),
        (1142, "this user may not do that: told by the server", False),
        (1227, "this user may not do that", False),
        (1370, "this user may not do that", False),
        (1040, "too many connections", True),
        (1203, "too many connections", True),
        (1226, "used up its allowance", True),
        (1969, "max_statement_time", True),
        (3024, "max_execution_time", True),
        (1213, "deadlocks", True),
        (1205, "innodb_lock_wait_timeout", True),
        (1665, "binlog_format=STATEMENT", False),
        (1047, "Galera", True),
        (1305, "fencelock schema --print URL", False),
        (9999, "told by the server (9999)", False),
    ],
)
def test_one_line_for_each_error(code: int, words: str, transient: bool) -> None:
    error = said("h:3306", Unusable(code, "told by\n the server"))
    assert isinstance(error, BackendUnavailable)
    assert str(error).startswith("mysql: h:3306: ")
    assert words in str(error)
    assert "\n" not in str(error)
    assert error.transient is transient


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "x"), "connection refused"),
        (chained(Unusable(2003, "x"), ConnectionRefusedError(111, "x")), "connection refused"),
        (chained(Unusable(2013, "x"), TimeoutError()), "no answer in time"),
        (Unusable(2006, "gone away"), "it closed the connection"),
        (ssl.SSLError(1, "[SSL: BAD] wrong"), "TLS failed"),
        (ssl.SSLError(1, "wrong version number"), "it does not speak TLS"),
        (Unusable(1045, "denied"), "password is wrong"),
    ],
)
def test_one_line_when_there_is_no_connection(error: BaseException, words: str) -> None:
    assert words in str(unreachable("h:3306", error))


def test_a_missing_package_says_what_to_install() -> None:
    with pytest.raises(ConfigurationError, match="pip install cryptography"):
        unreachable("h:3306", RuntimeError("'cryptography' package is required for sha256_password"))


def test_tables_that_cannot_be_made_or_used() -> None:
    assert "fencelock schema --print URL" in str(may_not_create("h:1", Unusable(1142, "CREATE denied")))
    assert "of version 7, this fencelock knows 1" in str(newer_schema("h:1", 7, 1))


GOOD: dict[str, Any] = {
    "settings": {"version": "10.11.6-MariaDB", "innodb_flush_log_at_trx_commit": "1", "log_bin": "OFF"},
    "tables": {"fencelock_queue": "InnoDB"},
    "version": 1,
    "grants": ["GRANT ALL PRIVILEGES ON *.* TO me"],
    "is_replica": False,
    "sessions": False,
}
BINLOG = {"log_bin": "ON", "sync_binlog": "1", "binlog_format": "MIXED"}


def facts(settings: dict[str, str] | None = None, **changes: Any) -> Facts:
    return Facts(**{**GOOD, **changes, "settings": {**GOOD["settings"], **(settings or {})}})


def test_a_good_server_has_nothing_but_good_findings() -> None:
    assert {finding.severity for finding in findings(facts())} == {"ok"}
    assert {finding.severity for finding in findings(facts(BINLOG, sessions=True))} == {"ok"}


@pytest.mark.parametrize(
    ("found", "severity", "subject"),
    [
        (facts({"version": "5.7.44"}), "warning", "version"),
        (facts({"innodb_flush_log_at_trx_commit": "2"}), "warning", "durability"),
        (facts({"innodb_flush_log_at_trx_commit": "0"}), "critical", "durability"),
        (facts({"innodb_flush_log_at_trx_commit": "0"}, sessions=True), "warning", "durability"),
        (facts({**BINLOG, "sync_binlog": "0"}), "warning", "binary log"),
        (facts({**BINLOG, "binlog_format": "STATEMENT"}), "critical", "binlog format"),
        (facts({"read_only": "ON"}), "critical", "role"),
        (facts(is_replica=True), "critical", "role"),
        (facts({"wsrep_on": "ON", "wsrep_provider": "/galera.so"}), "warning", "Galera"),
        (facts({"wsrep_on": "ON", "wsrep_provider": "/galera.so"}, sessions=True), "critical", "Galera"),
        (facts(tables={"fencelock_queue": "MyISAM"}), "critical", "tables"),
        (facts(version=None), "notice", "tables"),
        (facts(version=2), "critical", "tables"),
        (facts(grants=["GRANT SELECT ON d.* TO me"]), "warning", "rights"),
        (facts({"max_statement_time": "0.100000"}), "warning", "limits"),
    ],
)
def test_findings(found: Facts, severity: str, subject: str) -> None:
    (bad,) = [finding for finding in findings(found) if finding.severity != "ok"]
    assert (bad.severity, bad.subject) == (severity, subject)
    assert bad.advice
