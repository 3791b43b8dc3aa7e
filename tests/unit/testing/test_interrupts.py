"""Where Python runs the handlers of signals: the check of interrupts raises there, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys

LOOKS = ("RESUME", "CALL", "PRECALL", "JUMP_BACKWARD", "POP_JUMP_BACKWARD", "INSTRUMENTED")
"""How the names of those instructions begin."""
JUMPS = {"COMPARE_OP"}
"""On 3.11 a comparison at the end of a loop is one with its jump back."""

PROGRAM = """
import collections, dis, json, signal, threading, time

seen = collections.Counter()
lock = threading.Lock()
SOON = 0.0002

def handle(number, frame):
    seen[frame.f_code, frame.f_lasti] += 1
    signal.setitimer(signal.ITIMER_REAL, SOON)

class Thing:
    def __init__(self, value):
        self.value = value

    def guarded(self, more):
        with lock:
            try:
                result = self.value + more
            finally:
                lock.locked()
        return result

async def inner(thing):
    return thing.guarded(3)

async def outer(thing):
    total = 0
    for _ in range(20):
        total += await inner(thing)
    return total

def work():
    found = {}
    thing = Thing(1)
    for number in range(50):
        found[number] = thing.guarded(number)
        if number in found and found[number] is not None:
            thing.value = found.get(number)
        while number > 45:
            number -= 1
        try:
            outer(thing).send(None)
        except StopIteration as done:
            found[done.value] = 1

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, SOON)
end = time.monotonic() + 60
while sum(seen.values()) < 4000 and time.monotonic() < end:
    work()
signal.setitimer(signal.ITIMER_REAL, 0)
where = collections.Counter()
for (code, offset), count in seen.items():
    if code is not handle.__code__:
        names = {each.offset: each.opname for each in dis.get_instructions(code)}
        where[names[offset]] += count
print(json.dumps(where))
"""


def test_signals_come_when_a_function_begins_after_a_call_and_at_the_end_of_a_loop() -> None:
    """If this fails on a new Python, `Interrupter` has to follow: look where signals come there."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    where = json.loads(done.stdout)
    assert sum(where.values()) > 1000
    assert [name for name in where if not name.startswith(LOOKS) and name not in JUMPS] == []
    assert any(name.startswith("RESUME") for name in where)
    assert any("CALL" in name for name in where)
