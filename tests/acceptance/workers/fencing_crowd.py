"""Many writers at once, each with tokens of its own choice: fencing_crowd.py KIND WHERE SEED THREADS WRITES.

Each thread has a shelf of its own. Says which tokens were accepted and which refused.
"""

from __future__ import annotations

import random
import sys
import threading

from fencing_shelves import shelf
from resources import say

from holdfast import StaleToken


def main(kind: str, where: str, seed: int, threads: int, writes: int) -> None:
    accepted: list[int] = []
    refused: list[int] = []
    errors: list[str] = []
    start = threading.Barrier(threads)

    def write(number: int) -> None:
        try:
            dice = random.Random(seed * 1000 + number)
            mine = shelf(kind, where)
            start.wait(60)
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
            start.abort()

    crowd = [threading.Thread(target=write, args=(number,)) for number in range(threads)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    say(accepted=accepted, refused=refused, errors=errors)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]))
