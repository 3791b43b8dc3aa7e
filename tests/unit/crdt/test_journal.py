"""The file of a replica: what a change costs there, what a crash leaves, and which damage is refused."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencelock import BackendUnavailable, ConfigurationError
from fencelock.crdt import DecodeError, GCounter, ORSet, Replica
from fencelock.crdt import journal as journal_module
from fencelock.crdt.journal import Journal
from fencelock.crdt.memory import Memory, Step
from fencelock.crdt.packing import Wrong, pack
from fencelock.crdt.tail import bodies, frame
from fencelock.testing.conformance.expect import took

from .makers import KINDS, clock_of, step


def opened(folder: Path, kind: Any = ORSet, file: str = "one") -> Replica[Any]:
    shared = folder / "shared"
    shared.mkdir(exist_ok=True)
    return Replica("tags", kind, path=folder / file, exchange=shared)


def add(to: Replica[Any], *elements: Any) -> None:
    to.update(lambda value: value.add(to.id, *elements))


# What a change costs ------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which files were synced, one by one."""
    calls: list[int] = []
    real = os.fsync

    def fsync(file: int) -> None:
        calls.append(os.fstat(file).st_ino)
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return calls


def test_a_change_writes_what_is_new_and_syncs_once(tmp_path: Path, synced: list[int]) -> None:
    with opened(tmp_path) as one:
        add(one, *range(20_000))
        one.sync()
        path = tmp_path / "one"
        before = path.stat()
        for number in range(10):
            synced.clear()
            add(one, f"new {number}")
            assert synced == [before.st_ino]
        after = path.stat()
        assert after.st_ino == before.st_ino, "the file was written anew"
        assert after.st_size - before.st_size < 10 * 200


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: for tests in which processes die, and not the machine."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)


def test_the_file_stays_proportional_to_the_value(
    tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SHORT_TAIL", 0)
    path = tmp_path / "one"
    with opened(tmp_path) as one:
        add(one, *range(3000))
        whole = path.stat().st_size
        longest = 0
        for number in range(300):
            one.update(lambda value, number=number: value.remove(number))
            one.update(lambda value, number=number: value.add(one.id, number))
            longest = max(longest, path.stat().st_size)
        assert 2 * whole < longest + whole // 2, "it was never short of room: no test"
        assert longest < 3 * whole
        kept = one.value
    with opened(tmp_path) as again:
        assert again.value == kept
        assert path.stat().st_size < 2 * whole, "opening has not written it whole"


@pytest.mark.timing
def test_a_long_tail_is_read_in_reasonable_time(
    tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SHORT_TAIL", 2**24)
    with opened(tmp_path) as one:
        for number in range(4000):
            add(one, number)
        kept = one.value
    began = time.perf_counter()
    with opened(tmp_path) as again:
        assert again.value == kept
    took(0.0, time.perf_counter() - began, 5.0, "reading it")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_steps_give_the_memory_that_they_led_to(kind: Any, tmp_path: Path) -> None:
    """Value, what is to be sent, id, numbers: as they were, for every type."""
    rng = random.Random(kind.code)
    clock = clock_of(rng, "anna")
    keeper: Journal[Any] = Journal(tmp_path / "file", "tags", kind)
    memory = keeper.load()
    keeper.save(memory)
    for number in range(60):
        match rng.randrange(6):
            case 0:
                one: Step[Any] = Step(sent=True)
            case 1:
                one = Step(seq=number, seen={"b": number + 1})
            case 2:
                one = Step(id=f"id{number}", seq=0)
            case 3:
                one = Step(step(rng, kind(), "ben", clock_of(rng, "ben")).delta, seen={"c": number + 1})
            case _:
                one = Step(step(rng, memory.value, "anna", clock).delta, own=True)
        memory = memory.after(one)
        keeper.keep(memory, one)
        if number % 10 == 0:
            assert keeper.load() == memory
    assert keeper.load() == memory
    keeper.close()


# Crashes ------------------------------------------------------------------------------------


class Killed:
    """Kills this process at one of the points where a file is about to change, or has just changed."""

    def __init__(self, point: int) -> None:
        self.left = point
        self.write = os.write
        for name in ("open", "fsync", "replace", "unlink", "mkdir"):
            setattr(os, name, self.around(getattr(os, name)))
        os.write = self.torn  # type: ignore[assignment]

    def pass_by(self) -> bool:
        self.left -= 1
        return self.left == 0

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **options: Any) -> Any:
            if self.pass_by():
                self.die()
            made = call(*args, **options)
            if self.pass_by():
                self.die()
            return made

        return called

    def torn(self, file: int, data: bytes) -> int:
        for part in (0, 1, len(data) // 2, len(data) - 1, len(data)):
            if self.pass_by():
                self.write(file, data[:part])
                self.die()
        return self.write(file, data)


def life(folder: Path, told: int, point: int) -> None:
    """Change, sync and say so, until the point is reached."""
    with opened(folder) as one:
        known = set(one.value.elements)
        killed = Killed(point)
        for number in range(6):
            add(one, number)
            killed.write(told, bytes([number]))
            if number % 3 == 1:
                one.sync()
        assert one.value.elements == known | set(range(6))


def killed_at(folder: Path, point: int) -> tuple[bool, bytes]:
    """Live until a point in a process of its own; return whether it was killed, and what it had said."""
    hear, tell = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            life(folder, tell, point)
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(tell)
    with os.fdopen(hear, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, -signal.SIGKILL}
    return status != 0, said


@pytest.mark.parametrize("short_tail", [0, 2**16], ids=["written whole often", "appended to"])
def test_a_kill_at_any_point_keeps_all_that_was_said(
    short_tail: int, tmp_path: Path, unsynced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "SHORT_TAIL", short_tail)
    between = cut = 0
    for point in range(1, 1000):
        folder = tmp_path / str(point)
        folder.mkdir()
        was_killed, said = killed_at(folder, point)
        with opened(folder) as one, opened(folder, file="other") as other:
            found = one.value.elements
            assert found in (set(said), {*said, len(said)}), f"killed at point {point}"
            between += found != set(said)
            cut += was_killed and found == set(said)
            add(one, "after")
            one.sync()
            other.sync()
            assert other.value == one.value
        with opened(folder) as one:
            assert one.value.elements == {*found, "after"}
        if not was_killed:
            assert len(said) == 6
            break
    assert point > 60
    assert between > 5
    assert cut > 20


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_change_that_could_not_be_written_leaves_no_trace(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one"
    with opened(tmp_path) as one:
        add(one, "x")
        before = path.read_bytes()
        real = os.write

        def full(file: int, data: bytes = b"") -> int:
            if data:
                real(file, data[:20])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, where, full)
            with pytest.raises(BackendUnavailable, match="no space left on device"):
                add(one, "y")
            assert path.read_bytes() == before
        known = path.stat().st_ino
        add(one, "z")
        assert path.stat().st_ino != known, "what an error left behind was trusted"
        assert one.value.elements == {"x", "z"}
    with opened(tmp_path) as again:
        assert again.value.elements == {"x", "z"}


def test_writes_that_take_only_a_part_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    with opened(tmp_path) as one, monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: real(file, data[:7]))
        add(one, "x" * 50)
    with opened(tmp_path) as again:
        assert again.value.elements == {"x" * 50}


@pytest.mark.parametrize("what", ["removed", "replaced", "longer"])
def test_a_file_that_is_not_as_it_was_left_is_written_whole(what: str, tmp_path: Path) -> None:
    path = tmp_path / "one"
    with opened(tmp_path) as one:
        add(one, "x")
        if what == "removed":
            path.unlink()
        elif what == "replaced":
            (tmp_path / "another").write_bytes(bytes(path.stat().st_size))
            (tmp_path / "another").replace(path)
        else:
            with path.open("ab") as file:
                file.write(b"surplus")
        add(one, "y")
    with opened(tmp_path) as again:
        assert again.value.elements == {"x", "y"}


# Damage -------------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path: Path) -> Iterator[tuple[Path, int, list[int]]]:
    """A file, where its frames begin, and where each of them ends."""
    path = tmp_path / "one"
    with opened(tmp_path) as one:
        begin, ends = path.stat().st_size, []
        for number in range(4):
            add(one, number)
            ends.append(path.stat().st_size)
    yield path, begin, ends


def test_a_torn_tail_is_cut_off(good: tuple[Path, int, list[int]], tmp_path: Path, unsynced: None) -> None:
    path, begin, ends = good
    data = path.read_bytes()
    rng = random.Random(2)
    for place in [*range(begin, ends[-2], 7), *range(ends[-2], len(data))]:
        whole = sum(end <= place for end in ends)
        start = ends[whole - 1] if whole else begin
        full = ends[whole] - start
        written = data[start:place]
        junk = rng.randbytes(full - len(written))
        for torn in (written, written.ljust(full, b"\0"), written + junk):
            path.write_bytes(data[:start] + torn)
            if torn == data[start : ends[whole]]:
                continue
            with opened(tmp_path) as one:
                assert one.value.elements == set(range(whole))
                add(one, "after")
            with opened(tmp_path) as again:
                assert again.value.elements == {*range(whole), "after"}


def test_damage_that_something_good_follows_is_refused(
    good: tuple[Path, int, list[int]], tmp_path: Path
) -> None:
    path, begin, ends = good
    data = path.read_bytes()
    bad = [
        data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]
        for place in range(ends[-2])
    ]
    bad += [data[:start] + data[end:] for start, end in ((begin, ends[0]), (ends[0], ends[1]))]  # one is gone
    bad += [data[:begin] + data[ends[0] : ends[1]] + data[begin : ends[0]] + data[ends[1] :]]  # two swapped
    bad += [data[: ends[1]] + data[ends[0] :]]  # one is there twice
    bad += [data[:place] for place in range(begin)]  # the whole state is cut
    for damaged in bad:
        path.write_bytes(damaged)
        with pytest.raises(DecodeError, match="is not the file of a replica"):
            opened(tmp_path)
        assert path.read_bytes() == damaged, "it was not left alone"
    path.write_bytes(data)
    with opened(tmp_path) as one:
        assert one.value.elements == set(range(4))


def test_frames_of_another_file_do_not_fit() -> None:
    mine, theirs = b"m" * 16, b"t" * 16
    assert bodies(mine, frame(mine, 1, b"one") + frame(theirs, 2, b"two")) == [b"one"]
    with pytest.raises(Wrong, match="a change in the middle cannot be read"):
        bodies(mine, frame(theirs, 1, b"one") + frame(mine, 2, b"two"))
    assert bodies(mine, frame(mine, 1, mine * 3) + frame(mine, 2, b"")) == [mine * 3, b""]


BAD_STEPS: dict[str, Any] = {
    "a shorter one": (None, True, False),
    "no news": (7, True, False, None, None, None),
    "a number for a bool": (None, 1, False, None, None, None),
    "no id": (None, False, False, "Not One", None, None),
    "an id of another type": (None, False, False, 7, None, None),
    "a number below nought": (None, False, False, None, -1, None),
    "news of another type": (GCounter().to_bytes(), True, False, None, None, None),
}


@pytest.mark.parametrize("case", BAD_STEPS)
def test_steps_that_cannot_be(case: str, tmp_path: Path) -> None:
    keeper: Journal[Any] = Journal(tmp_path / "file", "tags", ORSet)
    keeper.save(Memory(ORSet(), ORSet()))
    assert keeper._append(pack(BAD_STEPS[case]))
    with pytest.raises(DecodeError, match="is not the file of a replica"):
        keeper.load()
    keeper.close()


def test_a_value_that_could_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_BYTES", 2000)
    with opened(tmp_path) as one:
        with pytest.raises(ConfigurationError, match=r"the value has \d+ bytes, 2000 are possible"):
            for number in range(1000):
                add(one, f"element {number}")
        kept = one.value
        assert len(kept) > 50
    with opened(tmp_path) as again:
        assert again.value == kept
