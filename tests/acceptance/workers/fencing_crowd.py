"""Many writers at once, each with tokens of its own choice.

Each task is a line with [KIND, WHERE, SEED, THREADS, WRITES] in JSON, and one more line lets them begin. Each
thread has a shelf of its own. Says which tokens were accepted and which refused.
"""

from __future__ import annotations

import json
import random
import sys
import threading

from fencing_shelves import shelf
from resources import say

from fencelock import StaleToken


def play(kind: str, where: str, seed: int, threads: int, writes: int) -> None:
    accepted: list[int] = []
    refused: list[int] = []
    errors: list[str] = []
    ready = threading.Semaphore(0)
    begin = threading.Event()

    def write(number: int) -> None:
        try:
            dice = random.Random(seed * 1000 + number)
            mine = shelf(kind, where)
            ready.release()
            begin.wait(60)
            for step in range(writes):
                # Most tokens rise, as they do in life; the rest are those of sleepers.
                token = dice.randrange(1, 1_000 * (step + 1))
                try:
                    mine.write(token, str(token))
                    accepted.append(token)
                except StaleToken as error:
                    assert error.newest > token
                    refused.append(token)
            mine.close()
        except BaseException as error:
            errors.append(repr(error))
            ready.release()

    crowd = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for thread in crowd:
        thread.start()
    for _ in crowd:
        ready.acquire(timeout=60)
    say(ready=threads)
    sys.stdin.readline()
    begin.set()
    for thread in crowd:
        thread.join()
    say(accepted=accepted, refused=refused, errors=errors)


if __name__ == "__main__":
    while line := sys.stdin.readline():
        play(*json.loads(line))
