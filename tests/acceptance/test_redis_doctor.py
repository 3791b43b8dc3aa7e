"""The doctor of Redis and Valkey, on real servers whose settings are changed under it; and what the docs
say about them: the user's rights, the guarantees, the findings, and the examples that need a server.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from crew import wait_until
from rights_page import block
from tools.servers import Group, start

import fencelock
from fencelock.backends.base import Finding
from fencelock.backends.redis import RedisBackend
from fencelock.backends.redis.doctor import (
    COMMANDS,
    LOOKING,
    WITHOUT,
    Facts,
    _findings,
    _network,
    _version,
)
from fencelock.backends.redis.server import OPTIONS, Server
from fencelock.backends.redis.topology import Topology
from fencelock.backends.redis.wire import Wire
from fencelock.cli import main
from fencelock.errors import BackendUnavailable
from fencelock.runtime.blocking import run

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "backends" / "redis.md"
PASSWORD = "a-password-nobody-may-see"
SUBJECTS = [
    *("version", "role", "rights", "persistence", "eviction", "memory", "replicas"),
    *("pushes", "timeout", "network"),
]


@pytest.fixture(scope="module", params=["redis", "valkey"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    with start(request.param) as started:
        yield started


def ask(group: Group, *words: str | int) -> Any:
    return group.members[0].ask(*words)  # type: ignore[attr-defined]


@contextmanager
def settings(group: Group, **values: str) -> Iterator[None]:
    """Change settings of a running server, and change them back."""
    names = {name: name.replace("_", "-") for name in values}
    before = {name: ask(group, "CONFIG", "GET", names[name])[1] for name in values}
    for name, value in values.items():
        ask(group, "CONFIG", "SET", names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            ask(group, "CONFIG", "SET", names[name], value)


@contextmanager
def user(group: Group, *rules: str) -> Iterator[str]:
    """A user with these rights; the URL to come as this user."""
    ask(group, "ACL", "SETUSER", "locks", "reset", "on", f">{PASSWORD}", *rules)
    try:
        yield group.url.replace("://", f"://locks:{PASSWORD}@")
    finally:
        ask(group, "ACL", "DELUSER", "locks")


def examined(target: Any) -> dict[str, Finding]:
    """What the doctor says, by subject; the same in both flavours."""

    async def in_asyncio() -> Sequence[Finding]:
        async with fencelock.AsyncClient(target() if callable(target) else target) as locks:
            return await locks._session.backend.doctor()

    with fencelock.Client(target() if callable(target) else target) as locks:
        found = run(locks._session.backend.doctor())
    again = asyncio.run(in_asyncio())
    assert _compared(found) == _compared(again)
    assert not any(PASSWORD in f"{each}" for each in (*found, *again))
    return {each.subject: each for each in found}


def _compared(found: Sequence[Finding]) -> set[tuple[str, str]]:
    figures = ("memory",)  # servers may or may not have the same
    return {(each.severity, each.subject) for each in found if not each.subject.startswith(figures)}


# Settings -----------------------------------------------------------------------------------


def test_a_server_as_it_comes(group: Group) -> None:
    writes = re.compile(r"rdb_changes_since_last_save:(\d+)")
    before = writes.findall(ask(group, "INFO", "persistence"))
    found = examined(group.url)
    assert list(found) == SUBJECTS
    assert found["version"].detail.lower().startswith(group.members[0].name)
    assert {subject for subject in found if found[subject].severity != "ok"} == {"persistence"}
    assert found["persistence"].severity == "warning" and "nothing is written" in found["persistence"].detail
    assert all(each.advice for each in found.values() if each.severity != "ok")
    assert writes.findall(ask(group, "INFO", "persistence")) == before, "it wrote something"
    assert ask(group, "DBSIZE") == 0


@pytest.mark.parametrize(
    ("values", "subject", "severity", "says"),
    [
        ({"save": "3600 1"}, "persistence", "warning", "snapshots only"),
        ({"appendonly": "yes", "appendfsync": "always"}, "persistence", "ok", "survive a power loss"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "persistence", "warning", "last second"),
        ({"appendonly": "yes", "appendfsync": "no"}, "persistence", "warning", "half a minute"),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": "50mb"}, "eviction", "critical", "any key"),
        (
            {"maxmemory_policy": "volatile-ttl", "maxmemory": "50mb"},
            "eviction",
            "critical",
            "as all locks do",
        ),
        ({"maxmemory_policy": "volatile-lru"}, "eviction", "notice", "no maxmemory"),
        ({"maxmemory": "50mb"}, "memory", "ok", "of 50.0 MiB"),
        ({"maxmemory": "500kb"}, "memory", "warning", "no lock is granted"),
        ({"maxmemory": "500kb"}, "writes", "critical", "out of memory"),
        ({"min_replicas_to_write": "1"}, "writes", "critical", "fewer replicas"),
        ({"timeout": "30"}, "timeout", "notice", "30 s"),
        ({"client_output_buffer_limit": "pubsub 1000 1000 1"}, "pushes", "notice", "1000 bytes"),
        ({"client_output_buffer_limit": "pubsub 0 0 0"}, "pushes", "ok", "no limit"),
    ],
)
def test_settings(group: Group, values: dict[str, str], subject: str, severity: str, says: str) -> None:
    with settings(group, **values):
        finding = examined(group.url)[subject]
    assert (finding.severity, says in finding.detail) == (severity, True), finding


def test_a_replica_and_its_primary(group: Group) -> None:
    with start(group.members[0].name) as other:
        ask(other, "REPLICAOF", group.members[0].host, group.members[0].port)
        other.wait()
        found = examined(other.url)
        assert found["role"].severity == "critical" and "a replica" in found["role"].detail
        assert "writes" not in found and "replicas" not in found
        primary = examined(group.url)["replicas"]
        assert primary.severity == "warning" and "1 connected" in primary.detail
        wait_until(lambda: "state=online" in str(ask(group, "INFO", "replication")), "it has caught up")
        with settings(group, min_replicas_to_write="1", min_replicas_max_lag="30"):
            assert examined(group.url)["replicas"].severity == "notice"


def test_a_node_of_a_cluster() -> None:
    with start("redis", settings={"cluster-enabled": "yes"}) as node:
        finding = examined(node.url)["role"]
    assert finding.severity == "critical" and "redis+cluster://" in finding.advice


# Rights -------------------------------------------------------------------------------------

ALLOWED = [f"+{command}" for command in COMMANDS]
PATTERNS = ["~fencelock:*", "&fencelock:*"]


def test_a_user_with_the_rights_that_the_page_names(group: Group) -> None:
    words = block("Redis operator").replace("PASSWORD", PASSWORD).split()[3:]
    looking = [f"+{command}" for command in LOOKING]
    assert set(words) >= {*ALLOWED, *PATTERNS, *looking}
    with user(group, *(word for word in words if word not in looking)) as url:
        found = examined(url)
        assert found["rights"].severity == "ok"
        assert found["settings"].severity == "notice" and "appendfsync" in found["settings"].detail
        assert "+info +config|get" in found["settings"].advice
        ask(group, "ACL", "SETUSER", "locks", *words)
        assert "settings" not in examined(url)
        ask(group, "ACL", "LOG", "RESET")
        with fencelock.Client(url) as locks, locks.lock("a") as lease:
            assert locks.lock("a", timeout=0.2).try_acquire() is None
            assert [state.name for state in locks.list()] == ["a"] and lease.verify()
        assert ask(group, "ACL", "LOG") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_one_command_is_missing(group: Group, command: str) -> None:
    with user(group, *PATTERNS, *ALLOWED, f"-{command}") as url:
        found = examined(url)
        finding = found["rights"]
        assert finding.severity == ("warning" if command in WITHOUT else "critical")
        assert f"may not call {command.upper()}:" in finding.detail
        assert finding.advice == f"ACL SETUSER locks +{command}"


@pytest.mark.parametrize(
    "rules",
    [["~other:*", *ALLOWED], ["allkeys", "resetchannels", "&other:*", *ALLOWED], ["+@read"], ["-@all"]],
)
def test_the_advice_mends_it(group: Group, rules: list[str]) -> None:
    with user(group, *rules) as url:
        finding = examined(url)["rights"]
        assert finding.severity == "critical"
        ask(group, *finding.advice.split())
        assert examined(url)["rights"].severity == "ok"


def test_a_user_of_one_namespace(group: Group) -> None:
    rules = [*block("Redis namespaces").split(), "&fencelock:*", *ALLOWED]
    with user(group, *rules) as url:
        with fencelock.Client(url, namespace="billing") as locks, locks.lock("a"):
            pass
        with (
            pytest.raises(BackendUnavailable, match="this user may not do that"),
            fencelock.Client(url) as locks,
        ):
            locks.lock("a").acquire()


def test_a_server_without_scripts() -> None:
    with start("redis", settings={"rename-command": 'EVALSHA ""'}) as server:
        finding = examined(server.url)["rights"]
    assert finding.severity == "critical" and "EVALSHA" in finding.detail


# Several servers ----------------------------------------------------------------------------


class Several(Topology):
    """Servers side by side."""

    label = "several"

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers

    def known(self, bucket: int) -> Server:
        return self._servers[0]

    async def learn(self, bucket: int, wire: Wire, deadline: float) -> Server:
        return self._servers[0]

    async def servers(self, wire: Wire, deadline: float) -> Sequence[Server]:
        return self._servers


def test_several_servers_are_told_apart(group: Group) -> None:
    with start(group.members[0].name, settings={"appendonly": "yes"}) as other:
        servers = [Server(host=each.members[0].host, port=each.members[0].port) for each in (group, other)]
        found = examined(lambda: RedisBackend(Several(servers)))
        first, second = (server.label for server in servers)
        assert found["rights"].severity == "ok"  # they have it in common, so it is said once
        assert found[f"persistence of {first}"].severity == "warning"
        assert "everysec" in found[f"persistence of {second}"].setting
        assert "persistence" not in found
        other.members[0].kill()
        found = examined(lambda: RedisBackend(Several(servers)))
        assert found[f"server {second}"].severity == "critical"
        assert found["role"].severity == "ok"
        with pytest.raises(BackendUnavailable):
            examined(other.url)


# On the command line ------------------------------------------------------------------------


def test_command_line(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    with user(group, *PATTERNS, *ALLOWED, *(f"+{command}" for command in LOOKING)) as url:
        assert main(["doctor", url]) == 0
        assert main(["doctor", "--fail-on", "warning", url]) == 1
        text = capsys.readouterr().out
        assert "persistence" in text and "nothing is written to disk" in text
        assert "nearly always has one holder" in text
        with settings(group, maxmemory_policy="allkeys-lru", maxmemory="50mb"):
            assert main(["doctor", "--json", url]) == 2
            dump = capsys.readouterr().out
        findings = {each["subject"]: each for each in json.loads(dump)["findings"]}
        assert findings["eviction"]["severity"] == "critical"
    assert PASSWORD not in text + dump


# What cannot be had here --------------------------------------------------------------------


def facts(server: Server | None = None, **changed: Any) -> Facts:
    told: dict[str, Any] = {
        "sharded": False,
        "alone": True,
        "hello": {},
        "info": {},
        "config": {},
        "tried": {},
    }
    return Facts(server or Server(), **{**told, **changed})


def test_old_versions() -> None:
    for version, severity in (
        ("6.0.16", "critical"),
        ("5.0.7", "critical"),
        ("6.2.0", "ok"),
        ("8.2.1", "ok"),
    ):
        finding = _version(facts(info={"redis_version": version}))
        assert finding is not None and finding.severity == severity
    assert _version(facts()) is None


def test_a_sentinel() -> None:
    (finding,) = _findings(facts(hello={"mode": "sentinel"}))
    assert finding.severity == "critical" and "redis+sentinel://" in finding.advice


@pytest.mark.parametrize(
    ("server", "severity"),
    [
        (Server(host="localhost"), "ok"),
        (Server(host="127.0.0.7", password=PASSWORD), "ok"),
        (Server(host="::1"), "ok"),
        (Server(path="/run/redis.sock"), "ok"),
        (Server(host="redis.example.org", tls=True, password=PASSWORD), "ok"),
        (Server(host="redis.example.org", tls=True, ssl_cert_reqs="none"), "warning"),
        (Server(host="redis.example.org", password=PASSWORD), "warning"),
        (Server(host="10.0.0.7"), "warning"),
    ],
)
def test_network(server: Server, severity: str) -> None:
    finding = _network(server)
    assert finding.severity == severity and PASSWORD not in str(finding)


# The docs -----------------------------------------------------------------------------------


def test_the_page_explains_every_finding() -> None:
    rows = set(re.findall(r"^\| (\w+) \|", PAGE.read_text().partition("## doctor")[2], flags=re.MULTILINE))
    assert rows >= {*SUBJECTS, "writes", "settings", "server"}


def test_the_page_has_the_guarantees_and_the_options() -> None:
    text = PAGE.read_text()
    promised = RedisBackend.from_url("redis://localhost").guarantees.as_dict()
    for caveat in promised.pop("caveats"):
        assert f"- {caveat}" in re.sub(r"\n +", " ", text)
    for field, value in promised.items():
        assert f"| `{field}` | {f'{value:g} s' if isinstance(value, float) else value} |" in text
    assert set(re.findall(r"`(\w+)=", text.partition("## URL")[2].partition("## How")[0])) >= OPTIONS


def files(page: Path) -> dict[str, str]:
    """The programs on a page, by file name."""
    block = re.compile(r"^```python file=(\S+)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
    return dict(block.findall(page.read_text()))


def launched(text: str, url: str) -> subprocess.Popen[str]:
    # redis-py does not know valkey://
    environment = {**os.environ, "REDIS_URL": url.replace("valkey://", "redis://")}
    return subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE, text=True)


def finished(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    said = [program.communicate(timeout=60)[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * len(programs)
    return said


def test_the_first_example_runs(group: Group) -> None:
    (said,) = finished([launched(files(PAGE)["first.py"], group.url)])
    assert "token 1" in said and "holders ['-c']" in said


@pytest.mark.parametrize("peer", ["redis-py", "python-redis-lock"])
def test_the_old_lock_and_the_new_one_side_by_side(group: Group, peer: str) -> None:
    programs = files(DOCS / "howto" / f"migrate-from-{peer}.md")
    assert list(programs) == ["before.py", "after.py", "both.py"]
    for step in (["before.py", "both.py"], ["both.py", "after.py"]):
        ask(group, "DEL", "sold:7")
        running = [launched(programs[name], group.url) for name in step * 2]
        assert finished(running) == ["done\n"] * 4
        assert ask(group, "GET", "sold:7") == "40", f"{step} do not exclude each other"
    ask(group, "DEL", "sold:7")
