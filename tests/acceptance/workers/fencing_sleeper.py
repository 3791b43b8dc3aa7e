"""Holds a lock, is stopped in the middle of its section, and finishes its writes when it wakes.

Each story is a line with [KIND, WHERE, LOCKS, TTL, ROUNDS] in JSON: a shelf, and the URL of the lock. In each
round it acquires, reads, says its token, waits for a line, and then writes as a program does that does not
ask: first without care, then with its token.
"""

from __future__ import annotations

import json
import sys

from fencing_shelves import shelf
from resources import say

from fencelock import Client, StaleToken


def play(kind: str, where: str, url: str, ttl: float, rounds: int) -> None:
    guarded = shelf(kind, where)
    with Client(url) as locks:
        for number in range(rounds):
            lease = locks.lock("shelf", ttl=ttl).acquire()
            plain, words = guarded.read()
            say(token=lease.token)
            sys.stdin.readline()
            held = lease.is_held()
            guarded.trample(f"{plain} sleeper{number}")
            try:
                guarded.write(lease.token, f"{words} sleeper{number}")
                newest = None
            except StaleToken as error:
                newest = error.newest
            lease.release()
            say(held=held, newest=newest)
    guarded.close()
    say(rounds=rounds)


if __name__ == "__main__":
    while line := sys.stdin.readline():
        play(*json.loads(line))
