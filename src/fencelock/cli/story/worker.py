"""One worker process: `python -m fencelock.cli.story.worker FOLDER ACT NAME SEED SPEED`.

It looks for an open job, does it (sleeps), and writes it down, until no job is open. In the first
act it does so without a lock, as one does: the job was open when it looked. In the second it
takes the job's lock first, looks again under the lock, and writes with the lease's token.

It tells what it does in lines of JSON on stdout. Ctrl-C is its parent's business.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from fencelock.cli.story.ledger import Ledger
from fencelock.client import Client
from fencelock.errors import AcquireTimeout, StaleToken
from fencelock.lease import Lease

__all__ = ["LEDGER", "LOCKS", "TTL", "WITH", "WITHOUT", "lock_name"]

WITHOUT, WITH = 1, 2
TTL = 3.0
LOCKS, LEDGER = "locks.db", "ledger.db"
WORK = {WITHOUT: (0.8, 1.4), WITH: (1.6, 2.6)}
SLICE = 0.05


def lock_name(job: int) -> str:
    """Return the name of a job's lock."""
    return f"job:{job:02d}"


class Worker:
    """What a worker knows and does."""

    def __init__(self, folder: Path, act: int, name: str, seed: str, speed: float) -> None:
        self.act = act
        self.name = name
        self.speed = speed
        self.url = f"sqlite://{folder / LOCKS}"
        self.ledger = Ledger(folder / LEDGER)
        self.random = random.Random(f"{seed}/{act}/{name}")
        self.parent = os.getppid()

    def without_locks(self) -> None:
        """Check, then act: two workers that look at the same moment both find the job open."""
        while jobs := self.ledger.open_jobs(self.act):
            job = self.random.choice(jobs)
            self.work(job, None)
            self.ledger.write(self.act, job, self.name)
            self.say("done", job=job)

    def with_locks(self) -> None:
        """Take the job's lock, look again, act, and let the ledger check the token."""
        with Client(self.url, client_name=self.name) as locks:
            while jobs := self.ledger.open_jobs(self.act):
                self.random.shuffle(jobs)
                lease = self.take(locks, jobs)
                if lease is not None:
                    self.do(lease[0], lease[1])
                    lease[1].release()

    def take(self, locks: Client, jobs: list[int]) -> tuple[int, Lease] | None:
        """Return a lease on any of the jobs; if all are taken, wait for one of them for a while."""
        ttl = TTL / self.speed
        for job in jobs:
            lease = locks.lock(lock_name(job), ttl=ttl).try_acquire()
            if lease is not None:
                return job, lease
        self.say("waits", job=jobs[0])
        try:
            return jobs[0], locks.lock(lock_name(jobs[0]), ttl=ttl).acquire(timeout=1.0 / self.speed)
        except AcquireTimeout:
            return None

    def do(self, job: int, lease: Lease) -> None:
        if not self.ledger.begin(self.act, job, lease.token):
            return
        self.work(job, lease.token)
        # A careful worker calls lease.check() here. It is no proof: the process may be stopped
        # between the check and the write. The ledger's own check of the token is one.
        held = lease.is_held()
        try:
            while not self.ledger.write_fenced(self.act, job, self.name, lease.token):
                self.sleep(SLICE)
                held = lease.is_held()
        except StaleToken as error:
            self.say("refused", job=job, token=lease.token, newest=error.newest, held=held)
        else:
            self.say("done", job=job, token=lease.token)

    def work(self, job: int, token: int | None) -> None:
        seconds = self.random.uniform(*WORK[self.act]) / self.speed
        self.say("works", job=job, token=token, seconds=seconds)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.sleep(min(left, SLICE))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        if os.getppid() != self.parent:
            os._exit(1)  # nobody watches any more

    def say(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}) + "\n"
        os.write(sys.stdout.fileno(), line.encode())


def main(folder: str, act: str, name: str, seed: str, speed: str) -> None:
    """Work until no job is open."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker = Worker(Path(folder), int(act), name, seed, float(speed))
    if worker.act == WITHOUT:
        worker.without_locks()
    else:
        worker.with_locks()


if __name__ == "__main__":
    main(*sys.argv[1:])
