"""Locks that a `with` statement always gives back, wherever a signal's handler raises; all code uses them."""

from __future__ import annotations

import ast
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import fencelock
from fencelock.runtime import locks

SOURCES = Path(fencelock.__file__).parent
SEMAPHORES = {
    "runtime/locks.py",
    "runtime/blocking.py",
    "backends/line.py",
    "backends/pushes.py",
    "backends/zookeeper/answers.py",
    "jobs/hands.py",
}
"""Here a lock is what a thread waits with: another one releases it, and no `with` takes it."""

PROGRAM = """
import random, signal, sys, threading
from fencelock.runtime import locks

class Interrupted(Exception): pass

def handle(number, frame):
    raise Interrupted

def work(own):
    while True:
        for _ in range(50):
            with own:
                pass
            with own:
                list(range(3))

def is_free(own):
    taken = []
    def look():
        if own.acquire(blocking=False):
            own.release()
            taken.append(True)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return bool(taken)

makers = {
    "lock": locks.lock,
    "rlock": locks.rlock,
    "guarded lock": lambda: locks.Guarded(threading.Lock()),
    "guarded rlock": lambda: locks.Guarded(threading.RLock()),
    "plain": threading.Lock,
}
own = makers[sys.argv[1]]()
signal.signal(signal.SIGALRM, handle)
lost = 0
for _ in range(2000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0002))
        work(own)
    except Interrupted:
        pass
    if not is_free(own):
        lost += 1
        own = makers[sys.argv[1]]()
print(lost)
"""


def lost(kind: str) -> int:
    """Interrupt blocks 2,000 times; return how often the lock stayed taken."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], capture_output=True, text=True, check=True, timeout=120
    )
    return int(done.stdout)


@pytest.mark.parametrize("kind", ["lock", "rlock", "guarded lock", "guarded rlock"])
def test_a_handler_that_raises_never_leaves_a_lock_taken(kind: str) -> None:
    assert lost(kind) == 0


def test_they_guard_where_python_does_not() -> None:
    """If this fails on a new Python 3.14, `with` is sound there, and `NEEDED` is about older ones only."""
    assert (lost("plain") > 0) is locks.NEEDED


def test_only_where_it_is_needed() -> None:
    assert (type(locks.lock()) is type(threading.Lock())) is not locks.NEEDED
    assert (type(locks.rlock()) is type(threading.RLock())) is not locks.NEEDED


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_it_is_the_lock_that_it_guards(make: Any) -> None:
    made = make()
    own = locks.Guarded(made)

    def is_free() -> bool:
        taken: list[bool] = []

        def look() -> None:
            if made.acquire(blocking=False):
                made.release()
                taken.append(True)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return bool(taken)

    with own as taken:
        assert taken is True
        assert not is_free()
    assert is_free()
    with pytest.raises(LookupError), own:
        raise LookupError
    assert is_free()
    assert own.acquire(timeout=1)
    assert not is_free()
    own.release()
    assert is_free()


def test_threads_exclude_each_other() -> None:
    own = locks.Guarded(threading.Lock())
    inside = most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(300):
            with own:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (1, 0)


def test_all_code_uses_them() -> None:
    """A lock of `threading` that a `with` takes is lost to an interrupt on Python 3.14."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_lock = isinstance(node, ast.Attribute) and node.attr in {"Lock", "RLock", "allocate_lock"}
            if is_lock and ast.unparse(node.value) in {"threading", "_thread"}:  # type: ignore[attr-defined]
                found.add(str(path.relative_to(SOURCES)))
    assert found == SEMAPHORES
