"""`python -m tools.walk`: which functions an acquire and a release run, and which way they go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.walk import FLAVOURS, Tracer, floor_of, main, walk  # noqa: E402

import fencelock  # noqa: E402


@pytest.mark.parametrize(
    ("file", "floor"),
    [
        ("client.py", 0),
        ("core/acquire.py", 1),
        ("core/queue.py", None),
        ("backends/redis/wire.py", 2),
        ("net/stream.py", 3),
        ("backends/etcd/protocol.py", 4),
        ("runtime/blocking.py", None),
        ("errors.py", None),
    ],
)
def test_each_file_is_on_its_floor(file: str, floor: int | None) -> None:
    assert floor_of(file) == floor


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_request_goes_from_the_lock_through_the_core_to_the_backend(flavour: str) -> None:
    found = walk("memory://", flavour)
    order = list(dict.fromkeys(call.floor for call in found.calls if call.floor is not None))
    assert order == [0, 1, 2]
    assert {"lock.py", "core/acquire.py", "backends/memory.py", "lease.py"} <= found.files
    assert f"{len(found.calls)} calls" in str(found)


def test_a_call_from_a_lower_floor_to_a_higher_one_is_a_step_up() -> None:
    tracer = Tracer()
    with fencelock.Client("memory://") as client:
        lock = client.lock("walked")
        with tracer.tracing():
            lock.acquire().release()
    ups = {(call.file, call.function) for call in tracer.walk.steps_up}
    assert ups == {("lock.py", "Lock._lease")}, "the core makes the lease with a function that it was given"


def test_a_coroutine_is_one_call_however_often_it_is_resumed(tmp_path: Path) -> None:
    found = walk(f"sqlite://{tmp_path}/locks.db", "asyncio")
    assert sum(call.function == "SQLiteBackend.acquire" for call in found.calls) == 1


def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 64
    assert capsys.readouterr().err.endswith("walk: name a store, or --table for all of them\n")


def test_a_walk_is_printed_with_each_call_below_its_caller(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sqlite", "--flavour", "blocking"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sqlite, blocking: ")
    assert lines[1] == "  lock.py  BlockingLock.acquire"
    assert "      core/acquire.py  acquire" in lines
