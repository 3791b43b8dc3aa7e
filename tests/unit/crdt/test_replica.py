"""Replicas: what is kept, what is exchanged, and what happens when something of it fails."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fencelock import BackendUnavailable, ConfigurationError
from fencelock.crdt import (
    AsyncReplica,
    ClockAhead,
    DecodeError,
    DirectoryExchange,
    Exchange,
    GCounter,
    LWWRegister,
    ORMap,
    ORSet,
    PNCounter,
    Record,
    RedisExchange,
    Replica,
    SQLExchange,
    Synced,
)
from fencelock.crdt.causal import Context
from fencelock.crdt.exchange.plan import wanted
from fencelock.crdt.replica import MOST_DELTAS

from .makers import KINDS, step


class Shelf(Exchange):
    """An exchange in memory that can be told to fail."""

    def __init__(self) -> None:
        self.held: dict[str, dict[Record, bytes]] = {}
        self.fail: Callable[[str], bool] = lambda _: False
        self.read_records = 0

    def _maybe(self, what: str) -> None:
        if self.fail(what):
            raise BackendUnavailable(backend="shelf", detail=what)

    def records(self, name: str) -> list[Record]:
        self._maybe("records")
        return list(self.held.get(name, {}))

    def read(self, name: str, records: Sequence[Record]) -> dict[Record, bytes]:
        self._maybe("read")
        self.read_records += len(records)
        held = self.held.get(name, {})
        return {record: held[record] for record in records if record in held}

    def write(self, name: str, record: Record, body: bytes, replaced: Sequence[Record]) -> None:
        self._maybe("before writing")
        held = self.held.setdefault(name, {})
        assert record not in held, "a record was written twice"
        held[record] = body
        self._maybe("after writing")
        for old in replaced:
            held.pop(old, None)

    def remove(self, name: str, records: Sequence[Record]) -> None:
        for record in records:
            self.held.get(name, {}).pop(record, None)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def replica(tmp_path: Path, shelf: Shelf) -> Any:
    opened: list[Replica[Any]] = []

    def make(file: str, kind: Any = ORSet, **options: Any) -> Replica[Any]:
        options.setdefault("exchange", shelf)
        made = Replica("tags", kind, path=tmp_path / file, **options)
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


def add(to: Replica[Any], *elements: Any) -> None:
    to.update(lambda value: value.add(to.id, *elements))


def meet(*replicas: Replica[Any]) -> None:
    for _ in range(2):
        for one in replicas:
            one.sync()


# What is kept -------------------------------------------------------------------------------


def test_a_value_and_an_id_outlive_the_process(replica: Any) -> None:
    one = replica("one")
    add(one, "x")
    known = one.id
    one.close()
    again = replica("one")
    assert again.id == known
    assert again.value.elements == {"x"}
    assert again.sync() == Synced(received=0, sent=True)


def test_an_update_that_cannot_be_written_has_not_happened(
    replica: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replica("one")
    add(one, "x")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(BackendUnavailable, match="no space left on device"):
            add(one, "y")
    assert one.value.elements == {"x"}
    one.close()
    assert replica("one").value.elements == {"x"}


def test_a_damaged_file_is_refused_and_left_alone(replica: Any, tmp_path: Path) -> None:
    one = replica("one")
    add(one, "x")
    one.close()
    replica("one").close()  # writes it whole; what a crash may do to changes at its end is in test_journal.py
    good = (tmp_path / "one").read_bytes()
    rng = random.Random(1)
    for _ in range(300):
        place = rng.randrange(len(good))
        bad = good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :]
        (tmp_path / "one").write_bytes(rng.choice([bad, good[:place], bad + b"x"]))
        before = (tmp_path / "one").read_bytes()
        with pytest.raises(DecodeError, match="is not the file of a replica"):
            replica("one")
        assert (tmp_path / "one").read_bytes() == before
    (tmp_path / "one").write_bytes(good)
    assert replica("one").value.elements == {"x"}


def test_a_file_of_another_name_type_or_version(replica: Any, tmp_path: Path, shelf: Shelf) -> None:
    replica("one").close()
    with pytest.raises(DecodeError, match="it belongs to 'tags', not to 'other'"):
        Replica("other", ORSet, path=tmp_path / "one", exchange=shelf)
    with pytest.raises(DecodeError, match="it is a ORSet"):
        replica("one", GCounter)
    data = (tmp_path / "one").read_bytes()
    (tmp_path / "one").write_bytes(data[:3] + b"\x02" + data[4:])
    with pytest.raises(DecodeError, match="version 2, this fencelock reads up to 1: upgrade"):
        replica("one")


def test_a_file_belongs_to_one_at_a_time(replica: Any) -> None:
    one = replica("one")
    with pytest.raises(BackendUnavailable, match="is in use: give each process a file of its own"):
        replica("one")
    one.close()
    replica("one")


def test_a_forked_child_is_told_to_open_its_own(replica: Any) -> None:
    one = replica("one")
    pid = os.fork()
    if not pid:
        try:
            one.update(lambda value: value.add(one.id, "child"))
        except ConfigurationError as error:
            os._exit(0 if "after a fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    add(one, "parent")
    assert one.value.elements == {"parent"}


def test_a_forked_child_closes_nothing_of_its_parent(tmp_path: Path) -> None:
    exchange = f"sqlite://{tmp_path}/exchange.db"
    with Replica("tags", ORSet, path=tmp_path / "one", exchange=exchange) as one:
        add(one, "x")
        one.sync()
        with one._syncing:  # as if another thread were in the middle of one
            pid = os.fork()
            if not pid:
                one._exchange.close = lambda: os._exit(3)  # type: ignore[method-assign]
                signal.alarm(10)
                one.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with pytest.raises(BackendUnavailable, match="is in use"):
            Replica("tags", ORSet, path=tmp_path / "one", exchange=exchange)
        add(one, "y")
        assert one.sync().sent


# What is exchanged --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_replicas_that_were_offline_converge(kind: Any, replica: Any) -> None:
    rng = random.Random(3)
    team = [replica(name, kind) for name in ("one", "two", "three")]
    for _ in range(4):
        for one in team:
            for _ in range(rng.randrange(5)):
                one.update(lambda value, one=one: step(rng, value, one.id, one.clock))
            if rng.random() < 0.3:
                one.sync()
    meet(*team)
    assert team[0].value == team[1].value == team[2].value != kind()
    assert [one.sync() for one in team] == [Synced(0, False)] * 3


def test_deltas_travel_not_states(replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(one, *range(2000))
    meet(one, two)
    add(one, "new")
    one.sync()
    body = max(shelf.held["tags"].items(), key=lambda item: item[0].seq)[1]
    assert len(body) < 250
    shelf.read_records = 0
    assert two.sync() == Synced(received=1, sent=False)
    assert shelf.read_records == 1
    assert "new" in two.value


def test_what_is_changed_during_a_sync_is_sent_by_the_next(replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(one, "x")

    def meanwhile(what: str) -> bool:
        if what == "before writing":
            add(one, "meanwhile")
        return False

    shelf.fail = meanwhile
    one.sync()
    shelf.fail = lambda _: False
    two.sync()
    assert two.value.elements == {"x"}, "the change came too early to test anything"
    assert one.sync().sent
    two.sync()
    assert two.value.elements == {"x", "meanwhile"}


def test_records_do_not_pile_up(replica: Any, shelf: Shelf) -> None:
    one = replica("one")
    for number in range(3 * MOST_DELTAS):
        add(one, number)
        one.sync()
        assert len(shelf.held["tags"]) <= MOST_DELTAS + 1
    two = replica("two")
    two.sync()
    assert two.value == one.value


def test_a_wiped_exchange_is_filled_again(replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(one, "x")
    meet(one, two)
    shelf.held.clear()
    two.sync()
    three = replica("three")
    three.sync()
    assert three.value.elements == {"x"}, "two does not pass on what it has of one"


def test_the_records_of_one_are_lost_and_another_passes_them_on(replica: Any, shelf: Shelf) -> None:
    one, two, three = replica("one"), replica("two"), replica("three")
    add(one, "x")
    one.sync()
    two.sync()
    shelf.held["tags"] = {}
    one.close()  # for good
    two.sync()
    three.sync()
    assert three.value.elements == {"x"}


def test_forget_keeps_the_value_and_drops_the_records(replica: Any, shelf: Shelf) -> None:
    one, two, three = replica("one"), replica("two"), replica("three")
    add(one, "x")
    one.sync()
    two.forget(one.id)
    assert {record.author for record in shelf.held["tags"]} == {two.id}
    three.sync()
    assert three.value.elements == {"x"}
    add(one, "alive")
    meet(one, two)
    assert two.value.elements == {"x", "alive"}
    with pytest.raises(ConfigurationError, match="it cannot forget itself"):
        two.forget(two.id)


def test_forget_does_not_drop_what_it_could_not_merge(replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(one, "x")
    one.sync()
    add(one, "y")
    one.sync()
    held = shelf.held["tags"]
    del held[min(held)]  # the whole one: what is left has no beginning
    with pytest.raises(BackendUnavailable, match="cannot be merged yet"):
        two.forget(one.id)
    assert held


def test_a_file_restored_from_a_copy_goes_on_under_a_new_id(replica: Any, tmp_path: Path) -> None:
    one, two = replica("one"), replica("two")
    add(one, "x")
    one.sync()
    copy = (tmp_path / "one").read_bytes()
    add(one, "y")
    one.sync()
    known = one.id
    one.close()
    (tmp_path / "one").write_bytes(copy)
    again = replica("one")
    again.sync()
    assert again.id != known
    assert again.clock.replica == again.id
    assert again.value.elements == {"x", "y"}
    add(again, "z")
    meet(again, two)
    assert two.value.elements == {"x", "y", "z"}


# What fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["records", "read", "before writing", "after writing"])
def test_a_failed_sync_loses_nothing(where: str, replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(two, "theirs")
    two.sync()
    add(one, "mine")
    shelf.fail = lambda what: what == where
    with pytest.raises(BackendUnavailable, match=where):
        one.sync()
    shelf.fail = lambda _: False
    one.close()
    one = replica("one")
    meet(one, two)
    assert one.value == two.value
    assert two.value.elements == {"mine", "theirs"}


@pytest.mark.parametrize("seed", range(12))
def test_an_exchange_that_fails_at_random(seed: int, replica: Any, shelf: Shelf) -> None:
    rng = random.Random(seed)
    team = [replica(str(number)) for number in range(4)]
    added: set[Any] = set()
    shelf.fail = lambda _: rng.random() < 0.25
    for number in range(120):
        place = rng.randrange(4)
        if rng.random() < 0.5:
            add(team[place], number)
            added.add(number)
        elif rng.random() < 0.1:
            team[place].close()
            team[place] = replica(str(place))
        elif rng.random() < 0.05:
            shelf.held.clear()
        else:
            try:
                team[place].sync()
            except BackendUnavailable:
                pass
    shelf.fail = lambda _: False
    meet(*team)
    assert {one.value.to_bytes() for one in team} == {team[0].value.to_bytes()}
    assert team[0].value.elements == added


def test_a_bad_record_is_refused_and_the_others_are_merged(replica: Any, shelf: Shelf) -> None:
    one, two, three = replica("one"), replica("two"), replica("three")
    add(one, "x")
    add(two, "y")
    add(three, "z")
    two.sync()
    one.sync()
    shelf.held["tags"][Record(one.id, 1, True)] = b"HFM\x01 no message at all"
    with pytest.raises(DecodeError, match=f"record {one.id}-1.whole of 'tags' cannot be read: it is damaged"):
        three.sync()
    assert three.value.elements == {"y", "z"}
    assert any(record.author == three.id for record in shelf.held["tags"]), "it has left nothing itself"
    shelf.held["tags"][Record(one.id, 1, True)] = shelf.held["tags"][Record(two.id, 1, True)]
    with pytest.raises(DecodeError, match="it is that of another record"):
        three.sync()


def test_a_clock_too_far_ahead_is_refused(replica: Any) -> None:
    wrong = replica("wrong", LWWRegister, time=lambda: 5000.0)
    right = replica("right", LWWRegister, time=lambda: 1000.0)
    wrong.update(lambda value: value.set(wrong.clock, "from the future"))
    wrong.sync()
    right.update(lambda value: value.set(right.clock, "now"))
    with pytest.raises(ClockAhead, match=r"4e\+03s ahead of this clock, at most 60s"):
        right.sync()
    assert right.value.value == "now"


def test_a_write_is_later_than_what_was_merged(replica: Any) -> None:
    fast = replica("fast", LWWRegister, time=lambda: 1030.0)
    slow = replica("slow", LWWRegister, time=lambda: 1000.0)
    fast.update(lambda value: value.set(fast.clock, "old"))
    fast.sync()
    slow.sync()
    slow.update(lambda value: value.set(slow.clock, "new"))
    meet(slow, fast)
    assert fast.value.value == "new"


def test_a_record_that_is_replaced_between_digest_and_read(replica: Any, shelf: Shelf) -> None:
    one, two = replica("one"), replica("two")
    add(one, "x")
    one.sync()
    real = shelf.records
    shelf.records = lambda name: [*real(name), Record(one.id, 2, False)]  # type: ignore[method-assign]
    assert two.sync().received == 1
    shelf.records = real  # type: ignore[method-assign]
    add(one, "y")
    one.sync()
    two.sync()
    assert two.value.elements == {"x", "y"}


def test_wanted_begins_with_a_whole_and_stops_at_a_gap() -> None:
    def seqs(there: str, seen: int) -> str:
        records = [Record("a", int(one[1:]), one[0] == "w") for one in there.split()]
        random.Random(1).shuffle(records)
        return " ".join(f"{'w' if one.whole else 'd'}{one.seq}" for one in wanted(records, seen))

    assert seqs("w1 d2 d3", 0) == "w1 d2 d3"
    assert seqs("w1 d2 d3", 2) == "d3"
    assert seqs("w1 d3", 0) == "w1"
    assert seqs("d2 d3", 0) == ""
    assert seqs("d2 d3", 1) == "d2 d3"
    assert seqs("w1 d2 w7 d8", 2) == "w7 d8"
    assert seqs("w1", 5) == ""


# The interface ------------------------------------------------------------------------------


def test_threads_share_a_replica(replica: Any) -> None:
    one = replica("one", PNCounter)

    def work() -> None:
        for _ in range(20):
            one.update(lambda value: value.increment(one.id))
            one.sync()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    two = replica("two", PNCounter)
    two.sync()
    assert one.value.value == two.value.value == 80


def test_misuse(replica: Any, tmp_path: Path, shelf: Shelf) -> None:
    one = replica("one")
    with pytest.raises(ConfigurationError, match="return what a mutator of ORSet returns"):
        one.update(lambda value: value)
    with pytest.raises(ConfigurationError, match="inside of a change"):
        one.update(lambda value: one.update(lambda inner: inner.add("a", "b")))
    with pytest.raises(ZeroDivisionError):
        one.update(lambda value: 1 / 0)
    add(one, "x")
    one.close()
    one.close()
    for use in (one.sync, lambda: add(one, "y"), one.__enter__):
        with pytest.raises(ConfigurationError, match="is closed"):
            use()
    for wrong in ({"name": ""}, {"kind": int}, {"kind": ORMap()}, {"path": 7}, {"max_ahead": -1}):
        options: dict[str, Any] = {"name": "n", "kind": ORSet, "path": tmp_path / "n", "exchange": shelf}
        with pytest.raises(ConfigurationError):
            Replica(**{**options, **wrong})
    assert not (tmp_path / "n").exists()
    with pytest.raises(BackendUnavailable, match="no such file or directory"):
        replica("missing/folder/file")


BAD_EXCHANGES = {
    "7": 7,
    "a word": "shared",
    "an unknown scheme": "gopher://host/x",
    "no directory": "file://host/x",
    "no file": "sqlite://",
    "no database": "mysql://localhost/",
    "an unknown option": "mysql://localhost/db?colour=red",
}


@pytest.mark.parametrize("case", BAD_EXCHANGES)
def test_bad_exchanges(case: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        Replica("n", ORSet, path=tmp_path / "n", exchange=BAD_EXCHANGES[case])  # type: ignore[arg-type]


def test_passwords_are_not_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Replica("n", ORSet, path=tmp_path / "n", exchange="gopher://me:reef-knot@host/x")
    assert "reef-knot" not in str(caught.value)


@pytest.mark.parametrize("thing", [None, 7, object()])
def test_what_is_no_connection_and_no_client(thing: Any) -> None:
    with pytest.raises(ConfigurationError, match="is not a connection of sqlite3, psycopg or PyMySQL"):
        SQLExchange(thing)
    with pytest.raises(ConfigurationError, match="is not a client of redis-py"):
        RedisExchange(thing)


def test_clients_that_cannot_carry_bytes() -> None:
    import redis
    import redis.asyncio

    with pytest.raises(ConfigurationError, match="decode_responses"):
        RedisExchange(redis.Redis(decode_responses=True))
    with pytest.raises(ConfigurationError, match="asynchronous"):
        RedisExchange(redis.asyncio.Redis())


def test_a_directory_that_is_not_there(replica: Any, tmp_path: Path) -> None:
    one = replica("one", exchange=DirectoryExchange(tmp_path / "missing"))
    with pytest.raises(BackendUnavailable, match="missing is not there: make it"):
        one.sync()


def test_files_of_others_in_the_directory_are_left_alone(replica: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    one, two = replica("one", exchange=shared), replica("two", exchange=f"file://{shared}")
    add(one, "x")
    one.sync()
    (folder,) = shared.iterdir()
    for other in ("README", "UPPER-1.whole", "a-1.whole.part", ".a-2.part", "a-99999999999999999999.delta"):
        (folder / other).write_text("hands off")
    two.sync()
    assert two.value.elements == {"x"}
    assert (folder / "README").read_text() == "hands off"


def test_a_table_that_is_missing_and_a_transaction_that_is_open(replica: Any) -> None:
    import sqlite3

    conn = sqlite3.connect(":memory:")
    one = replica("one", exchange=SQLExchange(conn))
    with pytest.raises(ConfigurationError, match="fencelock_crdt is missing: call SQLExchange"):
        one.sync()
    SQLExchange(conn).create_table()
    conn.execute("CREATE TABLE mine (x)")
    conn.execute("INSERT INTO mine VALUES (1)")
    with pytest.raises(ConfigurationError, match="is in a transaction: end it first"):
        one.sync()
    conn.rollback()
    add(one, "x")
    conn.row_factory = sqlite3.Row
    assert one.sync().sent
    assert replica("two", exchange=SQLExchange(conn)).sync().received == 1
    conn.close()


def test_asyncio_does_the_same(tmp_path: Path, shelf: Shelf) -> None:
    async def main() -> None:
        one: Any = AsyncReplica("tags", ORSet, path=tmp_path / "one", exchange=shelf)
        with pytest.raises(ConfigurationError, match="not open: use it in `async with`"):
            await one.sync()
        async with one, AsyncReplica("tags", ORSet, path=tmp_path / "two", exchange=shelf) as two:
            await asyncio.gather(*(one.update(lambda v, n=n: v.add(one.id, n)) for n in range(10)))
            await two.update(lambda v: v.add(two.id, "theirs"))
            for each in (one, two, one):
                await each.sync()
            assert one.value == two.value
            assert (len(one.value), one.name, one.clock.replica) == (11, "tags", one.id)
            assert repr(one).startswith("<AsyncReplica 'tags'")
            await two.forget(one.id)
        with pytest.raises(ConfigurationError, match="is closed"):
            await one.update(lambda v: v.add("a", "late"))

    asyncio.run(main())


def test_both_flavours_have_the_same_interface() -> None:
    def public(cls: type) -> dict[str, Any]:
        return {name: value for name, value in vars(cls).items() if not name.startswith("_")}

    blocking, tasks = public(Replica), public(AsyncReplica)
    assert blocking.keys() == tasks.keys()
    assert inspect.signature(Replica) == inspect.signature(AsyncReplica)
    for name, value in blocking.items():
        if inspect.isfunction(value):
            assert inspect.signature(value) == inspect.signature(tasks[name]), name
            assert inspect.iscoroutinefunction(tasks[name]), name


def test_an_opening_that_is_cancelled_leaves_the_file_free(tmp_path: Path, shelf: Shelf) -> None:
    started, go_on = threading.Event(), threading.Event()

    async def main() -> None:
        late: Any = AsyncReplica("tags", ORSet, path=tmp_path / "one", exchange=shelf)
        make, kept = late._make, []

        def held_up() -> Any:
            made = make()
            kept.append(made)  # so that it is closed, and not merely collected
            started.set()
            go_on.wait(10)
            return made

        late._make = held_up
        opening = asyncio.ensure_future(late.__aenter__())
        await asyncio.to_thread(started.wait, 10)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()
        for _ in range(200):
            try:
                Replica("tags", ORSet, path=tmp_path / "one", exchange=shelf).close()
            except BackendUnavailable:
                await asyncio.sleep(0.01)
            else:
                return
        raise AssertionError("the file is still locked")

    asyncio.run(main())


def test_an_abandoned_replica_frees_its_file(tmp_path: Path, shelf: Shelf) -> None:
    Replica("tags", ORSet, path=tmp_path / "one", exchange=shelf)
    gc.collect()
    Replica("tags", ORSet, path=tmp_path / "one", exchange=shelf).close()


def test_a_batch_is_refused_as_a_whole_when_numbers_run_out() -> None:
    almost = ORSet._of({}, Context({"a": 2**63 - 3}, {}))
    assert len(almost.add("a", "x", "y").value) == 2
    with pytest.raises(ConfigurationError, match="'a' has no dots left: take another name"):
        almost.add("a", "x", "y", "z")
