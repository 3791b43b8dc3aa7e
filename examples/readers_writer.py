"""Readers and a writer: many may read together, one writes alone, and neither starves.

The queue is first come first served. A writer that waits is not overtaken by readers that come
later, so it gets its turn as soon as the readers before it are done.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time

from fencelock import Client


def main() -> None:
    order: list[str] = []
    finish = threading.Event()

    def read(name: str) -> None:
        with catalogue.read():
            order.append(name)
            finish.wait()

    def write() -> None:
        with catalogue.write() as lease:
            order.append("writer")
            print(f"the writer is alone, in mode {lease.mode}")

    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        with Client(url) as locks:
            catalogue = locks.rwlock("catalogue", ttl=10)
            threads = [threading.Thread(target=read, args=(f"reader {n}",)) for n in (1, 2, 3)]
            threads += [threading.Thread(target=write), threading.Thread(target=read, args=("late reader",))]
            for thread in threads[:3]:
                thread.start()
            while len(locks.inspect("catalogue").holders) < 3:
                time.sleep(0.01)
            print("3 readers at once")
            for waiting, thread in enumerate(threads[3:], 1):
                thread.start()
                while len(locks.inspect("catalogue").waiters) < waiting:
                    time.sleep(0.01)
            finish.set()
            for thread in threads:
                thread.join()
    print(f"order: {', '.join(order)}")
    assert order[3:] == ["writer", "late reader"]


if __name__ == "__main__":
    main()
