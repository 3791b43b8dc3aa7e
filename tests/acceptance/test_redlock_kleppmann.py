"""Kleppmann's scenarios on five real servers: tokens stay ordered, and a guarded resource loses nothing.

1. The client is stopped (SIGSTOP) after it reached its quorum, for longer than its ttl.
2. The client is stopped while the replies that make its quorum are on their way.
3. A node is killed and comes back without its memory, while its vote counts.
4. The clock of one node jumps ahead, by a minute, and keys there expire early; and the same where the holder
   had only just a quorum, by deleting the key on one node, which is what a jump does.

In the first and the fourth the unguarded resource loses an update: the fault was real.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, wait_until
from redlock_nodes import (
    MEMORY,
    behind_proxies,
    client,
    is_everywhere,
    keys,
    names_in_one_bucket,
    no_keys,
    url,
)
from tools.servers import Group, start
from tools.servers.clock import Clock
from workers.resources import Guarded, Plain

import fencelock
from fencelock.testing import pause, resume

TTL = 1.0
SHORT = 2.0
"""The longest ttl, where a test waits for a node to be readmitted."""

SECTION = """
import sys, time
from pathlib import Path
sys.path.insert(0, {workers!r})
from resources import Guarded, Plain, say
import fencelock
from fencelock.backends.redlock import RedlockBackend

url, folder, ttl = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
plain, guarded = Plain(folder / "plain"), Guarded(folder / "list.db")
with fencelock.Client(RedlockBackend.from_url(url)) as locks:
    say(ready=True)
    sys.stdin.readline()
    lease = locks.lock("list", ttl=ttl, renew=False).acquire(timeout=60)
    words, (_, safe) = plain.read(), guarded.read(lease.token)
    say(token=lease.token, remaining=lease.remaining())
    sys.stdin.readline()
    held = lease.is_held()
    plain.write([*words, "sleeper"])
    try:
        guarded.write(lease.token, [*safe, "sleeper"])
        stale = False
    except fencelock.StaleToken:
        stale = True
    say(held=held, stale=stale, released=lease.release())
guarded.close()
""".format(workers=str(Path(__file__).parent / "workers"))


@pytest.fixture
def group() -> Iterator[Any]:
    with start("redlock") as group:
        yield group


def add(lease: fencelock.Lease, folder: Path, word: str) -> None:
    """A section that reads and writes both resources."""
    plain = Plain(folder / "plain")
    plain.write([*plain.read(), word])
    with contextlib.closing(Guarded(folder / "list.db")) as guarded:
        _, words = guarded.read(lease.token)
        guarded.write(lease.token, [*words, word])


def guarded_words(folder: Path) -> list[str]:
    with contextlib.closing(Guarded(folder / "list.db")) as guarded:
        return guarded.look()


def test_client_stopped_after_quorum(group: Group, tmp_path: Path) -> None:
    with Crew() as crew, client(group.members) as locks:
        sleeper = crew.python(SECTION, url(group.members), tmp_path, TTL)
        assert sleeper.hear()["ready"]
        sleeper.tell()
        first = sleeper.hear()["token"]
        pause(sleeper.pid)
        lease = locks.lock("list", ttl=30).acquire(timeout=30)
        assert lease.token > first
        add(lease, tmp_path, "test")
        resume(sleeper.pid)
        sleeper.tell()
        assert sleeper.hear() == {"held": False, "stale": True, "released": False}
        assert sleeper.end() == 0, sleeper.errors
        assert lease.verify(), "the sleeper has done something to a lease that is not its own"
        assert lease.release()
    assert guarded_words(tmp_path) == ["test"]
    assert Plain(tmp_path / "plain").read() == ["sleeper"], "no teeth: the unguarded resource lost nothing"


def test_client_stopped_while_its_quorum_is_on_its_way(group: Group, tmp_path: Path) -> None:
    with behind_proxies(group, 3) as (places, proxies), Crew() as crew, client(group.members) as locks:
        sleeper = crew.python(SECTION, url(places), tmp_path, TTL)
        assert sleeper.hear()["ready"]
        holds = [proxy.hold("replies", match=lambda request: b"EVALSHA" in request) for proxy in proxies]
        sleeper.tell()
        assert all(hold.wait(30) for hold in holds), "the votes are cast, and on their way"
        pause(sleeper.pid)
        for proxy in proxies:
            proxy.let_go()
        lease = locks.lock("list", ttl=30).acquire(timeout=30)  # the votes have expired
        add(lease, tmp_path, "test")
        resume(sleeper.pid)
        assert lease.verify()
        assert lease.release()
        late = sleeper.hear()
        assert late["token"] > lease.token, "votes that were over when they arrived were counted"
        assert late["remaining"] > 0
        sleeper.tell()
        sleeper.hear()
        assert sleeper.end() == 0, sleeper.errors
    assert guarded_words(tmp_path)[0] == "test"


def only_on(group: Group, lease: fencelock.Lease, nodes: list[int]) -> None:
    """Take a lock away from all other nodes: as if its holder had only reached these."""
    key = f"{MEMORY}::{lease.name}"
    wait_until(lambda: is_everywhere(group.members, lease), "all nodes have it")
    for number, member in enumerate(group.members):
        if number not in nodes:
            member.ask("DEL", key)


def next_holder(locks: fencelock.Client, lease: fencelock.Lease) -> fencelock.Lease:
    """Try to get the lock until it is given; by then the other one must have ended."""
    successor = wait_until(lambda: locks.lock("list", ttl=SHORT).try_acquire(), "the lock is free")
    assert not lease.is_held(), "two hold the lock"
    assert isinstance(successor, fencelock.Lease)
    return successor


def test_node_restarted_without_its_memory(group: Group) -> None:
    """The holder counts on nodes 0, 1 and 2; node 2 forgets. Another might have a quorum with 2, 3 and 4."""
    nodes = group.members
    with client(nodes, max_ttl=SHORT) as one, client(nodes, max_ttl=SHORT) as other:
        assert other.lock("list", ttl=SHORT).try_acquire().release()
        wait_until(lambda: no_keys(nodes), "the last node has heard of the release")
        lease = one.lock("list", ttl=SHORT, renew=False).acquire(timeout=10)
        only_on(group, lease, [0, 1, 2])
        nodes[2].restart(keep=False)
        successor = next_holder(other, lease)
        assert successor.token > lease.token
        assert successor.release()
        wait_until(lambda: readmitted(other, nodes[2]), "node 2 votes again")
        # Now it is needed: with it, and without those that remember most, tokens still rise.
        for member in nodes[:2]:
            member.kill()
        last = other.lock("list", ttl=SHORT).acquire(timeout=10)
        assert last.token > successor.token


def readmitted(locks: fencelock.Client, member: Any) -> bool:
    with locks.lock("anything else", ttl=1, timeout=10):
        return bool(member.ask("HEXISTS", MEMORY, "member"))


def test_a_majority_that_lost_its_memory_begins_anew_with_larger_tokens(group: Group) -> None:
    """Nodes 3 and 4 hung, and node 2, which knew, forgets; the three together know nothing of the latest."""
    nodes, names = group.members, names_in_one_bucket(2)
    with client(nodes, max_ttl=SHORT) as locks:
        first = locks.lock(names[0], ttl=1).acquire(timeout=10)
        assert first.release()
        for member in nodes[3:]:
            member.pause()
        tokens = []
        for _ in range(20):
            lease = locks.lock(names[1], ttl=1).acquire(timeout=10)
            tokens.append(lease.token)
            assert lease.release()
    with client(
        nodes, max_ttl=SHORT
    ) as locks:  # what the other one sent to the two that hung is not to be heard
        nodes[2].restart(keep=False)
        for member in nodes[3:]:
            member.kill()
            member.start()
            member.wait()
        # Three nodes of five have lost their memory now: they wait, and begin anew.
        lease = wait_until(lambda: acquired(locks, names[1]), "a quorum votes again")
        assert lease.token > tokens[-1]
        assert lease.release()


def acquired(locks: fencelock.Client, name: str) -> fencelock.Lease | None:
    try:
        return locks.lock(name, ttl=1).try_acquire()
    except fencelock.QuorumNotReached as error:
        assert "left out" in str(error)
        return None


@pytest.mark.parametrize("how", ["FLUSHALL", "DEL"])
def test_a_node_that_was_wiped_is_left_out(group: Group, how: str) -> None:
    nodes = group.members
    with client(nodes, max_ttl=SHORT) as one, client(nodes, max_ttl=SHORT) as other:
        lease = one.lock("list", ttl=SHORT, renew=False).acquire(timeout=10)
        only_on(group, lease, [0, 1, 2])
        nodes[2].ask(*([how] if how == "FLUSHALL" else [how, MEMORY, *keys(nodes[2])]))
        successor = next_holder(other, lease)
        assert successor.token > lease.token
        assert successor.release()


def test_all_nodes_wiped_tokens_still_rise(group: Group) -> None:
    with client(group.members) as locks:
        tokens = []
        for _ in range(3):
            lease = locks.lock("list").acquire(timeout=10)
            tokens.append(lease.token)
            assert lease.release()
            for member in group.members:
                member.ask("FLUSHALL")
        assert tokens == sorted(set(tokens))


def test_a_node_that_forgets_nothing_votes_again_at_once() -> None:
    settings = {"appendonly": "yes", "appendfsync": "always"}
    with start("redlock", settings=settings) as group, client(group.members) as locks:
        nodes = group.members
        lease = locks.lock("list", ttl=60).acquire(timeout=10)
        only_on(group, lease, [0, 1, 2])
        nodes[2].restart()
        assert wait_until(lambda: verified(lease), "node 2 is connected to again")
        with client(nodes) as other:
            assert other.lock("list").try_acquire() is None
        assert lease.release()
        wait_until(lambda: no_keys(nodes), "released there too")


def verified(lease: fencelock.Lease) -> bool:
    try:
        return lease.verify()
    except fencelock.BackendUnavailable:
        return False


def test_a_restart_that_may_lose_something_is_noticed_although_the_data_is_there() -> None:
    settings = {"appendonly": "yes", "appendfsync": "everysec"}
    with start("redlock", settings=settings) as group, client(group.members, max_ttl=SHORT) as locks:
        assert locks.lock("list", ttl=1).acquire(timeout=10).release()
        node = group.members[2]
        node.restart()
        wait_until(lambda: not readmitted(locks, node), "it is left out")
        wait_until(lambda: readmitted(locks, node), "and votes again")


def test_the_real_clock_of_one_node_jumps(tmp_path: Path) -> None:
    """Four nodes go on counting, so nobody else gets in; tokens rise, whatever the fifth believes."""
    clock = Clock(tmp_path)
    with contextlib.ExitStack() as stack:
        groups = [
            stack.enter_context(start("redis", env=clock.env if number == 0 else {})) for number in range(5)
        ]
        members = [group.members[0] for group in groups]
        one, other = stack.enter_context(client(members)), stack.enter_context(client(members))
        tokens = []
        for jump in (0, 60, -60, 3600, 0):
            clock.set(0)
            lease = one.lock("list", ttl=20).acquire(timeout=60)
            clock.set(jump)
            assert abs(int(members[0].ask("TIME")[0]) - int(members[1].ask("TIME")[0]) - jump) <= 2
            assert other.lock("list").try_acquire() is None
            assert lease.verify(), "a quorum has it"
            assert lease.release()
            successor = other.lock("list", ttl=20).acquire(timeout=60)
            assert successor.release()
            tokens += [lease.token, successor.token]
        assert tokens == sorted(set(tokens))


def test_the_clock_of_one_node_jumps(group: Group, tmp_path: Path) -> None:
    """With votes to spare nothing happens; with a bare quorum there are two holders, told apart by tokens."""
    with client(group.members) as one, client(group.members) as other:
        lease = one.lock("list", ttl=30, renew=False).acquire(timeout=10)
        words = Plain(tmp_path / "plain").read()
        only_on(group, lease, [0, 1, 2, 3])
        assert other.lock("list").try_acquire() is None
        group.members[3].ask("DEL", f"{MEMORY}::list")
        assert other.lock("list").try_acquire() is None
        wait_until(lambda: no_keys(group.members[3:]), "the votes of the try were taken back")
        group.members[2].ask("DEL", f"{MEMORY}::list")  # the jump
        second = other.lock("list", ttl=30).acquire(timeout=10)
        assert lease.is_held(), "no teeth: there are not two holders"
        assert second.token > lease.token
        add(second, tmp_path, "second")
        with (
            contextlib.closing(Guarded(tmp_path / "list.db")) as guarded,
            pytest.raises(fencelock.StaleToken),
        ):
            guarded.write(lease.token, ["first"])
        Plain(tmp_path / "plain").write([*words, "first"])
        assert second.verify()
        assert lease.verify() is False, "a holder that asks knows"
        assert second.release()
    assert guarded_words(tmp_path) == ["second"]
    assert Plain(tmp_path / "plain").read() == ["first"], "no teeth: the unguarded resource lost nothing"
