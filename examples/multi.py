"""Several locks as one: money moves between accounts, in all directions at once, and nobody deadlocks.

A transfer needs both accounts. Locked one after the other, a transfer from A to B and one from B to A
would wait for each other for ever. `multi` takes all of them or none, within one timeout, in an order
that is the same for everybody.
"""

from __future__ import annotations

import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor

from fencelock import Client, release_on_exit

balances = {"alice": 100, "bob": 100, "carol": 100}


def transfer(locks: Client, source: str, target: str, amount: int) -> None:
    with locks.multi([f"account:{source}", f"account:{target}"], ttl=10, timeout=30) as lease:
        lease.check()
        taken = balances[source] - amount
        given = balances[target] + amount
        balances[source], balances[target] = taken, given


def main() -> None:
    def teller(seed: int) -> None:
        choice = random.Random(seed)
        for _ in range(25):
            source, target = choice.sample(sorted(balances), 2)
            transfer(locks, source, target, choice.randint(1, 10))

    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks, ThreadPoolExecutor(4) as pool:
            list(pool.map(teller, range(4)))
    print(f"after 100 transfers: {balances}, together {sum(balances.values())}")
    assert sum(balances.values()) == 300


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
