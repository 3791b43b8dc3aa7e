"""What the dashboard sees of real backends, and what it costs them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from cli_helpers import fencelock_command
from crew import sqlite_url, wait_until
from dashboard_desk import Stream, dashboard
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import create_engine
from tools.servers import start

import fencelock
from fencelock.dashboard import hub, watch
from fencelock.dashboard.metrics import METRICS
from fencelock.jobs import Table
from fencelock.schedule import Schedule

LOCKS = int(os.environ.get("FENCELOCK_LOCKS", "2000"))
BROWSERS = 20
BUFFER = 32 * 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with start("redis", settings={"appendonly": "yes"}) as group:
        yield group


@pytest.fixture
def locks(server: Any) -> Iterator[fencelock.Client]:
    with fencelock.Client(server.url) as client:
        yield client


def broken(client: httpx.Client, stream: Stream, name: str, owners: list[str]) -> httpx.Response:
    order = {"backend": "b0", "name": name, "owners": owners, "reason": "the host is on fire"}
    return client.post("/api/break", json=order, headers=stream.csrf)


def test_breaking_makes_the_lease_lost_and_is_audited(
    server: Any, locks: fencelock.Client, tmp_path: Path
) -> None:
    log = tmp_path / "audit" / "log"
    with dashboard(server.url, audit_log=log) as client:
        stream = Stream(client)
        lease = locks.lock("invoice:42", ttl=6, metadata={"step": "capture"}).acquire()
        wait_until(lambda: "invoice:42" in stream.locks(), "it appears")
        detail = client.get("/api/lock", params={"backend": "b0", "name": "invoice:42"}).json()
        (holder,) = detail["holders"]
        assert holder["owner"] == lease.owner and holder["token"] == lease.token
        assert holder["metadata"] == {"step": "capture"} and 0 < holder["expires"] - detail["at"] <= 6
        answer = broken(client, stream, "invoice:42", [lease.owner])
        assert answer.status_code == 200
        assert lease.lost.wait(30) and not lease.is_held()
        wait_until(lambda: "invoice:42" not in stream.locks(), "it disappears")
        told = [event[0] for data in stream.find("change") for event in data["events"]]
        assert told.count("broken") == 1 and "released" not in told
        after = locks.lock("invoice:42", ttl=30).acquire()
        assert broken(client, stream, "invoice:42", [lease.owner]).status_code == 409
        assert after.verify(), "whoever took it meanwhile keeps it"
        after.release()
        (line,) = client.get("/api/audit").json()
        assert line["reason"] == "the host is on fire" and line["name"] == "invoice:42"
        assert line["broken"][0]["owner"] == lease.owner and line["address"] == "127.0.0.1"
        assert stream.wait("audit") == line
    assert [json.loads(text) for text in log.read_text().splitlines()] == [line]
    assert log.stat().st_mode & 0o077 == 0
    with dashboard(server.url, audit_log=log) as client:
        assert client.get("/api/audit").json() == [line], "it is there after a restart"


def test_a_break_from_the_shell_is_in_the_same_audit_log(
    server: Any, locks: fencelock.Client, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with dashboard(server.url, audit_log=log) as client:
        lease = locks.lock("job").acquire()
        words = ("break", "--yes", "--reason", "the host is on fire", "--audit-log", str(log), "job")
        assert fencelock_command(server.url, *words).returncode == 0
        (line,) = client.get("/api/audit").json()
        assert (line["name"], line["reason"]) == ("job", "the host is on fire")
        assert line["broken"][0]["owner"] == lease.owner
        assert not lease.verify()


def test_queues_renewals_and_kinds(server: Any, locks: fencelock.Client, tmp_path: Path) -> None:
    election = locks.election("boss", metadata={"address": "10.0.0.1"})
    leading = election.lead().acquire()
    permits = [locks.semaphore("pool", 3).acquire() for _ in range(2)]
    readers = [locks.rwlock("docs").read().acquire() for _ in range(2)]
    first = locks.lock("queue", ttl=1.5).acquire()
    with dashboard(server.url) as client, fencelock.Client(server.url, client_name="second") as others:
        stream = Stream(client)
        stream.wait("picture")
        waiting = others.lock("queue", ttl=30)
        got: list[fencelock.Lease] = []
        thread = threading.Thread(target=lambda: got.append(waiting.acquire()))
        thread.start()
        wait_until(lambda: stream.locks().get("queue", {}).get("waiting") == 1, "somebody waits")
        wait_until(lambda: [one for data in stream.find("change") for one in data["renewed"]], "a renewal")
        assert stream.locks()["queue"]["who"] != "" and stream.locks()["queue"]["waited"] is not None
        first.release()
        thread.join(30)
        wait_until(lambda: stream.locks()["queue"]["who"].startswith("second "), "the next one holds it")
        kinds = {name: (lock["kind"], lock["held"], lock["limit"]) for name, lock in stream.locks().items()}
        assert kinds["boss"] == ("leader", 1, 1)
        assert kinds["pool"] == ("semaphore", 2, 3)
        assert kinds["docs"] == ("readers", 2, 0)
        assert kinds["queue"] == ("lock", 1, 1)
        detail = client.get("/api/lock?backend=b0&name=boss").json()
        assert detail["holders"][0]["metadata"] == {"address": "10.0.0.1"}, "the mark is not in it"
        entry = election.leader()
        assert entry is not None and entry.metadata == {"address": "10.0.0.1"} and entry.kind == "leader"
        waits = wait_until(lambda: seen_waits(stream), "a wait that was seen")
        assert len(waits) == 1 and waits[0] > 0
        history = client.get("/api/lock?backend=b0&name=queue").json()["history"]
        assert [event[0] for event in history] == ["queued", "released", "taken"]
        for lease in (leading, *permits, *readers, *got):
            lease.release()


def seen_waits(stream: Stream) -> list[float]:
    points = [data["point"] for data in stream.find("change") if data["point"]]
    return [point[5] for point in points if point[5] is not None]


def commands(server: Any) -> int:
    """How many commands the server has done, but for those that ask for this."""
    stats = server.members[0].ask("INFO", "commandstats")
    lines = [line for line in stats.splitlines() if line.startswith("cmdstat_")]
    counts = {line.partition(":")[0]: int(line.partition("calls=")[2].partition(",")[0]) for line in lines}
    return sum(count for name, count in counts.items() if name != "cmdstat_info")


def cost(server: Any, stream: Stream, polls: int = 20) -> float:
    """Commands of a poll."""
    stream.wait("checkup")

    def seen() -> int:
        return len(stream.find("change"))

    first, before = seen(), commands(server)
    wait_until(lambda: seen() >= first + polls, f"{polls} polls")
    return (commands(server) - before) / (seen() - first)


def test_twenty_browsers_cost_what_one_does_and_none_costs_nothing(
    server: Any, locks: fencelock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "IDLE", 0.5)
    monkeypatch.setattr("fencelock.dashboard.rounds.SCHEDULES", 600.0)
    with locks.lock("kept", ttl=600), dashboard(server.url, interval=0.05) as client:
        one = Stream(client)
        alone = cost(server, one)
        many = [Stream(client) for _ in range(BROWSERS - 1)]
        for stream in many:
            stream.wait("change")
        together = cost(server, one)
        print(f"commands for a poll: {alone:.1f} with 1 browser, {together:.1f} with {BROWSERS}")
        assert together <= alone + 1, "a poll is a poll, whoever looks"
        assert {str(data["totals"]["locks"]) for data in many[-1].find("change")} == {"1"}
        client.close()  # everybody goes
        wait_until(lambda: all(stream.ended for stream in (one, *many)), "they are gone")
        quiet = wait_until(lambda: is_quiet(server), "nothing is asked any more")
        assert quiet
        clients = server.members[0].ask("CLIENT", "LIST")
        assert "fencelock dashboard" not in clients


def is_quiet(server: Any) -> bool:
    before = commands(server)
    time.sleep(0.4)
    return commands(server) == before


def test_a_backend_that_goes_away_comes_back_and_the_other_goes_on(
    server: Any, locks: fencelock.Client, tmp_path: Path
) -> None:
    lease = locks.lock("kept", ttl=600).acquire()
    with (
        fencelock.Client(sqlite_url(tmp_path)) as others,
        dashboard(server.url, sqlite_url(tmp_path)) as client,
    ):
        stream = Stream(client)
        wait_until(lambda: "kept" in stream.locks("b0"), "the first backend")
        server.members[0].kill()
        wait_until(lambda: stream.trouble("b0"), "trouble")
        with others.lock("other", ttl=600):
            wait_until(lambda: "other" in stream.locks("b1"), "the second backend goes on")
            assert stream.trouble("b1") is None
            assert "kept" in stream.locks("b0"), "what was last seen stays"
            up = samples(client, "fencelock_backend_up")
            assert sorted(up.values()) == [0.0, 1.0]
            order = {"backend": "b0", "name": "kept", "owners": [lease.owner], "reason": "x"}
            assert client.post("/api/break", json=order, headers=stream.csrf).status_code == 503
            late = Stream(client)
            assert late.wait("picture", lambda data: data["b"] == "b0")["trouble"]
        server.members[0].start()
        server.wait()
        wait_until(lambda: stream.trouble("b0") is None, "it is back")
        assert "kept" in stream.locks("b0")
    lease.release()
    with contextlib.closing(sqlite3.connect(tmp_path / "locks.db")) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables and "fencelock_schedule" not in tables, "who only looks makes no table"


def test_without_permission_to_list_the_rest_works(server: Any, tmp_path: Path) -> None:
    ask = server.members[0].ask
    ask("ACL", "SETUSER", "looker", "on", ">open-sesame", "~*", "&*", "+@all", "-scan")
    url = server.url.replace("redis://", "redis://looker:open-sesame@")
    with (
        fencelock.Client(sqlite_url(tmp_path)) as others,
        others.lock("seen", ttl=60),
        dashboard(url, sqlite_url(tmp_path)) as client,
    ):
        stream = Stream(client)
        trouble = stream.wait("picture", lambda data: data["b"] == "b0")["trouble"]
        assert "may not do that" in trouble and "scan" in trouble
        wait_until(lambda: "seen" in stream.locks("b1"), "the other backend")
        assert stream.wait("checkup", lambda data: data["b"] == "b0")["findings"]
        assert "open-sesame" not in str(stream.frames)
    ask("ACL", "DELUSER", "looker")


def test_a_browser_that_does_not_read_gets_a_new_picture_when_it_does(
    server: Any, locks: fencelock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "FRAMES", 8)
    leases = [locks.lock(f"long:{'x' * 480}:{number}", ttl=600).acquire() for number in range(500)]
    with dashboard(server.url, interval=0.05, buffer=BUFFER) as client:
        quick = Stream(client)
        quick.wait("picture")
        place = urlsplit(str(client.base_url))
        assert place.hostname is not None
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            slow.connect((place.hostname, place.port))
            slow.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            seen = len(quick.find("change"))
            wait_until(lambda: len(quick.find("change")) > seen + 24, "many frames later")
            with locks.lock("late", ttl=600):
                wait_until(lambda: "late" in quick.locks(), "the others go on")
                slow.settimeout(30)
                data = b""
                for _ in range(100_000):
                    data += slow.recv(1 << 20)
                    if data.count(b"event: picture") == 2 and b'"name":"late"' in data:
                        break
                assert b'"name":"late"' in data
    for lease in leases:
        lease.release()


def test_many_locks(server: Any) -> None:
    with fencelock.Client(server.url) as locks, dashboard(server.url) as client:
        leases = [locks.lock(f"many:{number}", ttl=600).acquire() for number in range(LOCKS)]
        stream = Stream(client)
        picture = stream.wait("picture")
        assert len(picture["locks"]) == LOCKS and picture["totals"]["held"] == LOCKS
        change = stream.wait("change")
        quiet = len(json.dumps(change))
        print(f"{LOCKS} locks: poll {change['totals']['poll']}s, {quiet} bytes when nothing changes")
        assert change["put"] == [] and change["gone"] == [] and quiet < 1000
        leases.pop().release()
        wait_until(lambda: len(stream.locks()) == LOCKS - 1, "one less")
        gone = [data["gone"] for data in stream.find("change") if data["gone"]]
        assert len(gone) == 1 and len(gone[0]) == 1
        assert samples(client, "fencelock_backend_locks") == {"many:*": LOCKS - 1}
    # closing the client has released them all


def samples(client: httpx.Client, name: str) -> dict[str, float]:
    """The values of a metric by its last label, as Prometheus's own parser reads them."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        list(sample.labels.values())[-1]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


def test_metrics(server: Any, locks: fencelock.Client) -> None:
    with (
        locks.lock("invoice:1"),
        locks.lock("invoice:2"),
        locks.lock("nightly"),
        dashboard(server.url) as client,
    ):
        assert samples(client, "fencelock_backend_locks") == {"invoice:*": 2, "nightly": 1}
        families = {each.name for each in text_string_to_metric_families(client.get("/metrics").text)}
        assert {each.name for each in METRICS} <= families
        assert {"process_cpu_seconds", "fencelock_held"} <= families
        assert samples(client, "fencelock_backend_holders")["invoice:*"] == 2
        assert samples(client, "fencelock_backend_oldest_hold_seconds")["nightly"] > 0
        stream = Stream(client)
        stream.wait("checkup")
        assert sum(samples(client, "fencelock_backend_findings").values()) > 3


def test_jobs_and_schedules(server: Any, locks: fencelock.Client, tmp_path: Path) -> None:
    schedule = Schedule(locks)

    @schedule.every(timedelta(days=1), name="report")
    def report() -> None: ...

    schedule.tick("report")
    engine = create_engine(f"sqlite:///{tmp_path / 'jobs.db'}")
    table = Table(engine)
    table.create()
    table.enqueue("send_email", {"to": "somebody", "password": "hush"})
    with dashboard(server.url, jobs=table) as client:
        stream = Stream(client)
        told = stream.wait("jobs", lambda data: data["counts"] and data["schedules"])
        assert told["counts"]["pending"] == 1 and told["rows"][0]["kind"] == "send_email"
        assert told["source"].startswith("fencelock_jobs in sqlite:///")
        assert "hush" not in str(told), "what a job is given is not shown"
        (found,) = [each for each in told["schedules"] if each["name"] == "report"]
        assert isinstance(found["runs"], list)
        late = Stream(client)
        late.wait("jobs")
    engine.dispose()
    schedule.close()
