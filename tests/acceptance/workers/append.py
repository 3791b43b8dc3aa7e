"""Appends words to a guarded list under a lock until told to stop, or killed.

append.py FOLDER CLIENT KIND TTL, where KIND is lock, read, write or permit.

A word is acknowledged, in a log of its own, only after the lock was released. Readers and
permits touch nothing: for them the history alone is the evidence.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from resources import Guarded, say

from fencelock import Client, Lease, Lock, StaleToken
from fencelock.testing import HistoryFile, Mode

SECTION = 0.02
LIMIT = 2


class Appender:
    def __init__(self, folder: Path, client: str, kind: str, ttl: float) -> None:
        self.folder, self.client, self.kind, self.ttl = folder, client, kind, ttl
        self.history = HistoryFile(folder / "history")
        self.words = Guarded(folder / "list.db")
        self.acks = os.open(folder / "acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def lock(self, locks: Client) -> tuple[Lock, Mode, int | None]:
        if self.kind == "permit":
            return locks.semaphore("list", LIMIT, ttl=self.ttl), "permit", LIMIT
        if self.kind == "read":
            return locks.rwlock("list", ttl=self.ttl).read(), "shared", None
        if self.kind == "write":
            return locks.rwlock("list", ttl=self.ttl).write(), "exclusive", None
        return locks.lock("list", ttl=self.ttl), "exclusive", None

    def work(self) -> None:
        with Client(f"sqlite://{self.folder / 'locks.db'}", client_name=self.client) as locks:
            lock, mode, limit = self.lock(locks)
            for number in itertools.count():
                if (self.folder / "stop").exists():
                    return
                attempt = self.history.acquire(self.client, "list", mode=mode, limit=limit)
                lease = lock.acquire(timeout=60)
                attempt.leased(lease)
                word = f"{self.client}.{number}"
                written = self.section(lease, word)
                attempt.release()
                lease.release()
                attempt.released()
                if written:
                    os.write(self.acks, f"{word}\n".encode())

    def section(self, lease: Lease, word: str) -> bool:
        if self.kind in {"read", "permit"}:
            time.sleep(SECTION)
            return False
        token = lease.token
        try:
            base, words = self.words.read(token)
            time.sleep(SECTION)
            seq = self.words.write(token, [*words, word])
        except StaleToken:  # this machine is so busy that the lease ran out: no word, no ack
            self.history.write(self.client, "list", token=token, accepted=False)
            return False
        self.history.write(self.client, "list", token=token, base=base, value=word, seq=seq)
        return True


if __name__ == "__main__":
    appender = Appender(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
    say(ready=True)
    appender.work()
    say(done=True)
