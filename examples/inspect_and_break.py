"""Look at a lock, and break it: who holds it, who waits, since when, and what they say about it.

The same from the shell: `fencelock show nightly`, `fencelock break nightly`.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time

from fencelock import Client, release_on_exit


def backup(locks: Client) -> None:
    with locks.lock("nightly", metadata={"job": "backup"}) as lease:
        print(f"the backup runs after all, token {lease.token}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            stuck = locks.lock("nightly", ttl=60, metadata={"job": "report", "ticket": 17}).acquire()
            waiting = threading.Thread(target=backup, args=(locks,))
            waiting.start()
            time.sleep(0.2)

            state = locks.inspect("nightly")
            for role, entries in (("holds", state.holders), ("waits", state.waiters)):
                for entry in entries:
                    print(f"{entry.client} on {entry.host}, pid {entry.pid}, {role} as {entry.metadata}")
            print(f"locks in use that begin with 'night': {[found.name for found in locks.list('night')]}")

            # One holder, by its owner id; without it, whoever holds the lock at that moment.
            (broken,) = locks.force_release("nightly", owner=state.holders[0].owner)
            print(f"broken: token {broken.token} was held for {broken.age:.1f}s")
            waiting.join()
            print(f"the one that was stuck finds out: verify() says {stuck.verify()}")


if __name__ == "__main__":
    release_on_exit()  # SIGTERM releases what is held
    main()
