"""tools/servers keeps its promises: every kind starts, answers, survives a kill, and leaves nothing."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.servers import (  # noqa: E402
    ELSEWHERE,
    KINDS,
    Group,
    NotReady,
    ServerError,
    apt,
    packages,
    ports,
    proc,
    start,
    suites,
    wire,
)
from tools.servers.__main__ import main  # noqa: E402

from fencelock.testing.conformance.expect import took  # noqa: E402


def pids(group: Group) -> list[int]:
    """The processes of a group, children included."""
    return [pid for member in group.members for pid in proc.tree(member.pid)]


def nothing_left(processes: list[int], folder: Path, seconds: float = 0.0) -> bool:
    """No such process, no such folder, at least after a while."""
    deadline = time.monotonic() + seconds
    while (left := any(proc.runs(pid) for pid in processes) or folder.exists()) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    return not left


@contextlib.contextmanager
def started(kind: str, **options: Any) -> Iterator[Any]:
    """A group, and the proof that it left nothing. Untyped, since each family has members of its own."""
    with start(kind, **options) as group:
        processes = pids(group)
        yield group
        processes += pids(group)
    assert nothing_left(processes, group.site.folder)


# A write and a read for every kind; where there are several members, the read is from another one.


def redis_each(group: Any) -> None:
    for member in group.members:
        assert member.ask("SET", "name", "value") == "OK"
        assert member.ask("GET", "name") == "value"


def redis_cluster(group: Any) -> None:
    for key in ("a", "b", "c"):
        owners = [node for node in group.members if _accepts(node, key)]
        assert len(owners) == 1
        assert owners[0].ask("GET", key) == "value"


def _accepts(node: Any, key: str) -> bool:
    try:
        return bool(node.ask("SET", key, "value") == "OK")
    except NotReady as refusal:
        assert str(refusal).startswith("MOVED")
        return False


def redis_sentinel(group: Any) -> None:
    for sentinel in group.sentinels:
        host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
        assert wire.redis(host, int(port), "SET", "name", "value") == "OK"
    replica = next(server for server in group.members[:3] if not server.is_primary())
    eventually(lambda: replica.ask("GET", "name") == "value")


def sql(group: Any) -> None:
    (server,) = group.members
    server.query("CREATE TABLE IF NOT EXISTS things (n INT)")
    server.query("INSERT INTO things VALUES (42)")
    assert server.query("SELECT DISTINCT n FROM things") == "42"


def sql_pooled(group: Any) -> None:
    direct, session, transaction = group.members
    session.query("CREATE TABLE IF NOT EXISTS things (n INT)")
    transaction.query("INSERT INTO things VALUES (42)")
    assert direct.query("SELECT DISTINCT n FROM things") == "42"
    for pooler in (session, transaction):
        pools = pooler.query("SHOW POOLS", database="pgbouncer").splitlines()
        assert any(line.startswith("fencelock|") and pooler.mode in line.split("|") for line in pools)


def zookeeper(group: Any) -> None:
    with ZooKeeperSession(group.members[0]) as first, ZooKeeperSession(group.members[-1]) as last:
        name = first.create("/name-", b"value")
        last.sync(name)
        assert last.get(name) == b"value"


def etcd(group: Any) -> None:
    key, value = (base64.b64encode(word).decode() for word in (b"name", b"value"))
    group.members[0].ask("kv/put", {"key": key, "value": value})
    assert group.members[-1].ask("kv/range", {"key": key})["kvs"][0]["value"] == value


def consul(group: Any) -> None:
    assert group.members[0].ask("kv/name", "value", "PUT") is True
    (entry,) = group.members[-1].ask("kv/name?consistent")
    assert base64.b64decode(entry["Value"]) == b"value"


ROUND_TRIP: dict[str, Callable[[Any], None]] = {
    "redis": redis_each,
    "valkey": redis_each,
    "redlock": redis_each,
    "cluster": redis_cluster,
    "sentinel": redis_sentinel,
    "postgres": sql,
    "pgbouncer": sql_pooled,
    "mariadb": sql,
    "mysql": sql,
    "zookeeper": zookeeper,
    "zookeeper3": zookeeper,
    "etcd": etcd,
    "etcd3": etcd,
    "consul": consul,
    "consul3": consul,
}
SCHEMES = {
    "redis": "redis",
    "valkey": "valkey",
    "redlock": "redlock",
    "cluster": "redis+cluster",
    "sentinel": "redis+sentinel",
    "postgres": "postgresql",
    "pgbouncer": "postgresql",
    "mariadb": "mysql",
    "mysql": "mysql",
    "zookeeper": "zookeeper",
    "zookeeper3": "zookeeper",
    "etcd": "etcd",
    "etcd3": "etcd",
    "consul": "consul",
    "consul3": "consul",
}
SIZES = {"redlock": 5, "cluster": 6, "sentinel": 6, "pgbouncer": 3, "zookeeper3": 3, "etcd3": 3, "consul3": 3}


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for it. A server that changes its part hangs up on everybody, also in the middle of a question."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, NotReady):
            if condition():
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


class ZooKeeperSession:
    """As much of ZooKeeper's binary protocol as a write and a read take."""

    def __init__(self, server: Any) -> None:
        self._socket = socket.create_connection((server.host, server.port), 10)
        self._stream = self._socket.makefile("rb")
        self._exchange(struct.pack(">iqiqi", 0, 0, 5000, 0, 16) + bytes(16))
        self._number = 0

    def __enter__(self) -> ZooKeeperSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._request(-11)
        self._stream.close()
        self._socket.close()

    def create(self, path: str, data: bytes) -> str:
        anyone = struct.pack(">ii", 1, 31) + _jute(b"world") + _jute(b"anyone")
        ephemeral_sequential = struct.pack(">i", 3)
        reply = self._request(1, _jute(path.encode()) + _jute(data) + anyone + ephemeral_sequential)
        return reply[4:].decode()

    def sync(self, path: str) -> None:
        self._request(9, _jute(path.encode()))

    def get(self, path: str) -> bytes:
        reply = self._request(4, _jute(path.encode()) + b"\0")
        (length,) = struct.unpack_from(">i", reply)
        return reply[4 : 4 + length]

    def _request(self, operation: int, body: bytes = b"") -> bytes:
        self._number += 1
        reply = self._exchange(struct.pack(">ii", self._number, operation) + body)
        number, _zxid, error = struct.unpack_from(">iqi", reply)
        assert (number, error) == (self._number, 0)
        return reply[16:]

    def _exchange(self, packet: bytes) -> bytes:
        self._socket.sendall(_jute(packet))
        (length,) = struct.unpack(">i", self._stream.read(4))
        return self._stream.read(length)


def _jute(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_every_kind_is_tested() -> None:
    assert set(ROUND_TRIP) == set(SCHEMES) == {*KINDS, *ELSEWHERE}
    assert not set(ELSEWHERE) & set(KINDS)


# Named by `make versions`, which may download; Consul is the same package everywhere.
FROM_SUITES = [
    f"{name}@{suite}"
    for suite in os.environ.get("FENCELOCK_SUITES", "").split()
    for name, kind in {**KINDS, **ELSEWHERE}.items()
    if packages.CONSUL not in kind.needs
]


@pytest.mark.parametrize("wanted", [*KINDS, *FROM_SUITES])
def test_starts_answers_survives_a_kill_and_leaves_nothing(wanted: str) -> None:
    kind = wanted.partition("@")[0]
    with started(wanted) as group:
        assert group.url.startswith(f"{SCHEMES[kind]}://")
        assert str(group.members[-1].port) in "".join(group.urls.values())
        assert len(group.members) == SIZES.get(kind, 1)
        assert group.version()[0].isdigit()
        ROUND_TRIP[kind](group)

        member = group.members[0]
        before = member.pid, member.port
        member.kill()
        assert not member.is_alive()
        member.restart()
        assert member.is_alive()
        assert member.pid != before[0]
        assert member.port == before[1]
        group.wait()
        ROUND_TRIP[kind](group)


def test_pgbouncer_has_three_ways() -> None:
    with started("pgbouncer") as group:
        assert list(group.urls) == ["session", "transaction", "direct"]
        assert group.url == group.urls["session"]
        assert len(set(group.urls.values())) == 3


# Members.


def test_a_paused_server_is_alive_and_silent() -> None:
    with started("redis") as group:
        (member,) = group.members
        member.pause()
        assert member.is_alive()
        with pytest.raises(TimeoutError):
            member.probe()
        member.resume()
        member.probe()


def test_a_paused_server_can_be_stopped() -> None:
    with started("redis") as group:
        (member,) = group.members
        member.pause()
        begun = time.monotonic()
        member.stop()
        assert not member.is_alive()
        assert time.monotonic() - begun < 20


def test_pausing_postgres_pauses_the_backends_too() -> None:
    with started("postgres") as group:
        (member,) = group.members
        member.pause()
        states = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids(group)}
        member.resume()
        assert states == {"T"}
        assert member.query("SELECT 1") == "1"


def test_restart_keeps_the_data_or_wipes_it() -> None:
    with started("redis", settings={"appendonly": "yes", "appendfsync": "always"}) as group:
        (member,) = group.members
        member.ask("SET", "name", "value")
        member.kill()
        member.restart()
        assert member.ask("GET", "name") == "value"
        member.restart(keep=False)
        assert member.ask("GET", "name") is None


@pytest.mark.parametrize("kind", ["zookeeper3", "etcd3", "consul3"])
def test_a_wiped_member_finds_back_into_its_ensemble(kind: str) -> None:
    with started(kind) as group:
        group.members[0].kill()
        group.members[0].restart(keep=False)
        group.wait()
        ROUND_TRIP[kind](group)


@pytest.mark.parametrize("kind", ["zookeeper3", "etcd3", "consul3"])
def test_an_ensemble_comes_back_after_all_were_killed(kind: str) -> None:
    with started(kind) as group:
        for member in group.members:
            member.kill()
        for member in group.members:
            member.restart(wait=False)
        group.wait()
        ROUND_TRIP[kind](group)


def test_a_wiped_cluster_node_is_refused() -> None:
    with started("cluster") as group:
        with pytest.raises(ServerError, match="node-6 cannot be wiped"):
            group["node-6"].restart(keep=False)
        group.wait(0)


def test_sentinel_fails_over_and_takes_the_old_primary_back() -> None:
    with started("sentinel") as group:
        group["primary"].kill()
        eventually(lambda: any(replica.is_primary() for replica in group.replicas), 30)
        group["primary"].restart()
        group.wait()
        redis_sentinel(group)


def test_environment_reaches_the_server() -> None:
    with started("etcd", env={"FENCELOCK_TEST": "here"}) as group:
        environ = Path(f"/proc/{group.members[0].pid}/environ").read_bytes()
        assert b"FENCELOCK_TEST=here" in environ.split(b"\0")


# Partitions.


def test_a_partitioned_member_cannot_write() -> None:
    with started("etcd3", netns=True) as group:
        lonely, other = group.members[0], group.members[1]
        group.partition(lonely)
        with pytest.raises((NotReady, TimeoutError)):
            lonely.ask("kv/put", {"key": "bmFtZQ==", "value": ""})
        eventually(lambda: _writes(other))
        group.heal()
        group.wait()
        etcd(group)
        namespaces = [member.netns for member in group.members]
    assert not [name for name in namespaces if Path(f"/run/netns/{name}").exists()]


def _writes(member: Any) -> bool:
    with contextlib.suppress(NotReady, OSError):
        return bool(member.ask("kv/put", {"key": "bmFtZQ==", "value": ""}))
    return False


def test_clients_can_be_cut_off_one_way() -> None:
    with started("redis", netns=True) as group:
        (member,) = group.members
        for source, target in ((None, member), (member, None)):
            group.cut(source, target)
            with pytest.raises(TimeoutError):
                member.probe()
            group.heal()
            member.probe()


def test_cutting_needs_namespaces() -> None:
    with started("redlock") as group, pytest.raises(ServerError, match="netns=True"):
        group.partition(group.members[0])


# Nothing stays behind.

OWNER = """
import json, os, sys, time
from tools.servers import proc, start

groups = [start("redis"), start("postgres"), start("redis", netns=True)]
pids = [pid for group in groups for member in group.members for pid in proc.tree(member.pid)]
folders = [str(group.site.folder) for group in groups]
if os.fork() == 0:
    os.closerange(0, 3)  # a child that holds every other descriptor of its parent, for longer than it lives
    time.sleep(15)
    os._exit(0)
print(json.dumps([pids, folders, groups[2].members[0].netns]), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("end", ["exit", "SIGTERM", "SIGKILL"])
def test_nothing_outlives_the_owner(end: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    processes, folders, namespace = json.loads(owner.stdout.readline())
    assert all(proc.runs(pid) for pid in processes)
    if end == "exit":
        owner.communicate("\n", timeout=20)
    else:
        owner.send_signal(signal.Signals[end])
        owner.communicate(timeout=20)
    for folder in folders:
        assert nothing_left(processes, Path(folder), seconds=10)
    eventually(lambda: not Path(f"/run/netns/{namespace}").exists())


def test_a_server_outlives_the_thread_that_started_it() -> None:
    found: list[Group] = []
    thread = threading.Thread(target=lambda: found.append(start("redis")))
    thread.start()
    thread.join()
    with found[0] as group:
        time.sleep(0.3)
        group.members[0].check()


FORKER = """
import os, sys
from tools.servers import start

with start("redis") as group:
    child = os.fork()
    if child == 0:
        sys.exit()  # through the end of the block and the exit handlers
    os.waitpid(child, 0)
    group.members[0].check()
"""


def test_a_forked_child_does_not_stop_its_parents_servers() -> None:
    done = subprocess.run([sys.executable, "-c", FORKER], cwd=ROOT, timeout=30, check=False)
    assert done.returncode == 0


def test_a_failed_start_tells_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ServerError, match=r"redis ended with status 1\n(.*\n)*.*Bad directive") as caught:
        start("redis", settings={"no-such-thing": "1"})
    assert "no-such-thing" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_exchanged_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        free = ports.take
        offered = iter([taken])
        monkeypatch.setattr(ports, "take", lambda: next(offered, None) or free())
        with started("redis") as group:
            assert group.members[0].port != taken


def test_ports_are_not_those_of_outgoing_connections() -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    port = ports.take()
    ports.give_back(port)
    assert not low <= port <= high


def test_a_stranger_on_the_port_is_not_taken_for_the_server() -> None:
    with started("redis") as one, started("redis") as other:
        assert proc.listens(one.members[0].pid, one.members[0].port)
        assert not proc.listens(one.members[0].pid, other.members[0].port)


# Installing.


@pytest.mark.timing
def test_installing_is_quick_when_nothing_is_missing() -> None:
    begun = time.monotonic()
    assert packages.install(package for kind in KINDS.values() for package in kind.needs) == []
    took(0.0, time.monotonic() - begun, 1.0, "it")


def test_installing_without_being_root_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerError, match=r"^not installed: no-such-server; run this as root, .*$"):
        packages.install([packages.Package("no-such-server", ("no-such-program",))])


def test_both_forms_of_apt_sources_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/x gone main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://a.example/x rel main extra # why\n"
        "deb-src http://a.example/x rel main\n"
    )
    (folder / "b.sources").write_text(
        "Types: deb deb-src\n# a comment\nURIs: http://b.example/x\n  http://c.example/x\n"
        "Suites: rel rel-updates\nComponents: main\nSigned-By: /k.gpg\n"
        "\n\nTypes: deb\nEnabled: no\nURIs: http://d.example/x\nSuites: rel\nComponents: main\n"
    )
    assert [str(source) for source in apt.machine_sources(tmp_path)] == [
        "deb [arch=amd64 signed-by=/k.gpg] http://a.example/x rel main extra",
        "deb [signed-by=/k.gpg] http://b.example/x rel main",
        "deb [signed-by=/k.gpg] http://b.example/x rel-updates main",
        "deb [signed-by=/k.gpg] http://c.example/x rel main",
        "deb [signed-by=/k.gpg] http://c.example/x rel-updates main",
    ]


@pytest.mark.parametrize("before", [None, "#!/bin/sh\nexit 0\n", "#!/bin/sh\nexit 101\n"])
def test_services_are_denied_for_a_while_and_the_policy_comes_back(
    tmp_path: Path, before: str | None
) -> None:
    policy = tmp_path / "policy-rc.d"
    if before is not None:
        policy.write_text(before)
        policy.chmod(0o755)
    with apt.services_denied(policy):
        assert subprocess.run([policy, "redis-server", "start"], check=False).returncode == 101
    assert (policy.read_text() if policy.exists() else None) == before
    assert len(list(tmp_path.iterdir())) == (before is not None)


# Another suite. The archive is a folder of small packages here: `make versions` runs the real servers.


def archive_of(folder: Path, names: list[str]) -> apt.Source:
    """Make an archive with the suite `odd`, each package with a program of its own name."""
    listing = folder / "dists/odd/main" / f"binary-{_architecture()}"
    listing.mkdir(parents=True)
    for name in names:
        draft = folder / "drafts" / name
        # As in older suites, where /lib is not a link.
        for place in ("usr/bin", "lib"):
            (draft / place).mkdir(parents=True)
            (draft / place / name).write_text(name)
        (draft / "DEBIAN").mkdir()
        (draft / "DEBIAN/control").write_text(
            f"Package: {name}\nVersion: 5:8.0.6-3\nArchitecture: all\nMaintainer: Odd\nDescription: odd\n"
        )
        subprocess.run(["dpkg-deb", "-b", draft, folder / f"{name}.deb"], check=True, capture_output=True)
    entries = [_entry(folder / f"{name}.deb") for name in names]
    (listing / "Packages").write_text("\n".join(entries))
    _sign(folder / "dists/odd")
    return apt.Source(f"copy:{folder}", apt.codename(), ("main",), "trusted=yes")


def _architecture() -> str:
    asked = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return asked.stdout.strip()


def _entry(file: Path) -> str:
    fields = subprocess.run(["dpkg-deb", "-f", file], capture_output=True, text=True, check=True).stdout
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{fields}Filename: {file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n"


def _sign(suite: Path) -> None:
    lines = [
        f" {hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_size} {file.relative_to(suite)}\n"
        for file in suite.glob("main/*/Packages")
    ]
    (suite / "Release").write_text("Suite: odd\nComponents: main\nSHA256:\n" + "".join(lines))


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose archive has the suite `odd` with a redis-server, and whose cache is empty."""
    source = archive_of(tmp_path / "archive", ["redis-server", *suites.TOOLS])
    monkeypatch.setattr(apt, "machine_sources", lambda: [source])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/fencelock/servers"


def test_another_suite_is_unpacked_once_and_listed(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "redis@odd"]) == 0
    assert main(["install", "redis@odd"]) == 0
    assert capsys.readouterr().out == "installed redis@odd\nnothing is missing\n"
    root = suites.root("redis@odd", "odd", (packages.REDIS,))
    assert root.program("redis-server") == "/usr/bin/redis-server"
    assert (root.folder / "lib").is_symlink()
    assert (root.folder / "usr/lib/redis-server").read_text() == "redis-server"
    assert not list(odd.rglob("*.deb"))
    assert main(["list", "--json"]) == 0
    listed = {row["kind"]: row for row in json.loads(capsys.readouterr().out)}
    assert [name for name in listed if "@" in name] == [
        f"{name}@odd" for name in ("redis", "redlock", "cluster", "sentinel")
    ]
    assert (listed["redis@odd"]["version"], listed["redis@odd"]["missing"]) == ("8.0.6", [])


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (
            "redis@even",
            r"redis@even: suite 'even' cannot be read from this machine's archive \(.*\): name one .*",
        ),
        ("etcd@odd", r"etcd@odd: etcd-server cannot be had from suite 'odd' \(.*\): name a suite .*"),
        ("redis@", r"redis@: '' is not the name of a suite: write NAME@SUITE, as in redis@sid"),
        ("redis@../x", r"redis@\.\./x: '\.\./x' is not the name of a suite: write NAME@SUITE, .*"),
        ("mysql", r"mysql is not in this machine's release: name a suite that has it, as in mysql@sid"),
        ("mongo@sid", r"no kind of server is called 'mongo'; there are: redis .* mysql"),
    ],
)
def test_a_suite_that_cannot_be_installed_is_one_line(odd: Path, wanted: str, told: str) -> None:
    with pytest.raises(ServerError, match=f"^{told}$") as caught:
        start(wanted)
    assert "\n" not in str(caught.value)
    assert not (odd / "roots").exists()


def test_another_suite_without_being_root_is_one_line(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ServerError, match=r"^redis@odd: a server of another suite .*: run this as root$"):
        start("redis@odd")


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("5:8.0.6-3", "8.0.6"),
        ("18+293", "18"),
        ("1:11.8.9+ds-4", "11.8.9"),
        ("3.4.23-1+b1", "3.4.23"),
        ("", ""),
    ],
)
def test_versions_are_shown_as_their_authors_write_them(version: str, upstream: str) -> None:
    assert packages.upstream(version) == upstream


# The command line.


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frob"],
        ["up"],
        ["up", "mongo"],
        ["check", "redis", "mongo"],
        ["install", "x"],
        ["up", "mysql"],
        ["up", "redis@"],
        ["up", "redis", "--set", "x"],
    ],
)
def test_bad_input_is_one_line_and_status_64(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    if "mongo" in arguments:
        assert all(kind in printed.err for kind in KINDS)


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ServerError, match="no kind of server is called 'mongo'; there are: redis valkey"):
        start("mongo")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [words[0] for words in lines][: len(KINDS)] == list(KINDS)
    assert all("@" in words[0] for words in lines[len(KINDS) :])
    assert main(["list", "--json"]) == 0
    rows = {row["kind"]: row for row in json.loads(capsys.readouterr().out)}
    assert [words[0] for words in lines] == list(rows)
    assert all(rows[kind]["missing"] or rows[kind]["version"][0].isdigit() for kind in KINDS)


def command_line(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tools.servers", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_check() -> None:
    out, _ = command_line("check", "redis", "etcd").communicate(timeout=60)
    lines = out.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", "redis"], ["ok", "etcd"]]
    assert lines[-1] == "2 passed, 0 failed"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_runs_until_it_is_interrupted(number: signal.Signals) -> None:
    tool = command_line("up", "redis", "redlock", "--json", "--set", "maxmemory=10mb")
    assert tool.stdout is not None
    redis, redlock = json.loads(tool.stdout.readline())
    assert len(redlock["members"]) == 5
    member = redis["members"][0]
    assert wire.redis(member["host"], member["port"], "CONFIG", "GET", "maxmemory") == [
        "maxmemory",
        "10485760",
    ]
    tool.send_signal(number)
    _, err = tool.communicate(timeout=20)
    assert (tool.returncode, err) == (0, "")
    assert not any(proc.runs(each["pid"]) for group in (redis, redlock) for each in group["members"])
