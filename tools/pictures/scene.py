"""One host of a small company at work, until its standard input ends: scene.py HOST REDIS DATABASE JOBS.

A shop takes orders, its workers render and send, a nightly import blocks a queue. The host's name is given,
since all of them are processes of one machine. The same host does the same kinds of things at random times.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
import time
from collections.abc import Callable

import sqlalchemy

import fencelock
from fencelock import jobs
from fencelock.schedule import Schedule

__all__ = ["HOSTS", "STUCK", "main"]

HOSTS = ("web-1", "web-2", "web-3", "worker-1", "worker-2", "etl-1")
STUCK = "import:customers"
"""Held by one for as long as the scene lasts, while others queue."""
HOT = ("stock:sku-1881", "stock:sku-2044", "stock:sku-7", "cart:merge")
KINDS = ("render_invoice", "send_email", "sync_crm")


class Host:
    """What runs on one machine."""

    def __init__(self, name: str, redis: str, database: str, table: str) -> None:
        self.name = name
        self.number = HOSTS.index(name)
        self.random = random.Random(name)
        self.redis, self.database, self.table = redis, database, table

    def client(self, program: str, url: str = "") -> fencelock.Client:
        return fencelock.Client(url or self.redis, client_name=program)

    def start(self, work: Callable[[], None], threads: int = 1) -> None:
        for _ in range(threads):
            threading.Thread(target=work, daemon=True).start()

    def nap(self, least: float, most: float) -> None:
        time.sleep(self.random.uniform(least, most))

    # The shop.

    def reserve(self) -> None:
        """Many want the same few things."""
        locks = self.client("checkout")
        while True:
            with locks.lock(self.random.choice(HOT), ttl=20):
                self.nap(0.2, 1.6)
            self.nap(0.3, 1.5)

    def invoice(self) -> None:
        """Nobody wants the same thing."""
        locks = self.client("billing")
        while True:
            number = self.random.randrange(10_400, 10_800)
            facts = {"order": number, "step": self.random.choice(["capture", "print", "mail"])}
            with locks.lock(f"invoice:{number}", ttl=self.random.choice([10, 30, 60]), metadata=facts):
                self.nap(4, 25)

    def read(self) -> None:
        locks = self.client("search")
        while True:
            with locks.rwlock("catalogue:index", ttl=15).read():
                self.nap(2, 9)
            self.nap(0.1, 2)

    # The workers.

    def render(self) -> None:
        locks = self.client("render")
        while True:
            with locks.semaphore("gpu:render", 6, ttl=30):
                self.nap(2, 12)
            self.nap(0.5, 5)

    def licence(self) -> None:
        locks = self.client("matlab")
        while True:
            with locks.semaphore("licence:matlab", 2, ttl=60, metadata={"feature": "signal"}):
                self.nap(4, 15)

    def lead(self) -> None:
        locks = self.client("outbox", self.database)
        locks.election("leader:outbox", ttl=15).run(lambda lease: lease.lost.wait(None))

    def watch(self) -> None:
        locks = self.client("scheduler")
        locks.election("leader:scheduler", ttl=30).run(lambda lease: lease.lost.wait(None))

    def work(self) -> None:
        table = jobs.Table(sqlalchemy.create_engine(self.table))
        handlers = dict.fromkeys(KINDS, self.handle)
        jobs.Worker(self.client("worker", self.database), table, handlers, poll=1.0, concurrency=3).run()

    def handle(self, job: jobs.Job) -> None:
        self.nap(1, 9)
        if self.random.random() < 0.02:
            raise jobs.Reject("the address is not one")

    def order(self) -> None:
        table = jobs.Table(sqlalchemy.create_engine(self.table))
        while True:
            table.enqueue(self.random.choice(KINDS), {"order": self.random.randrange(10_400, 10_800)})
            self.nap(1.5, 4.5)

    def tick(self) -> None:
        schedule = Schedule(self.client("cron", self.database))
        schedule.every(20, name="rates")(lambda: self.nap(1, 3))
        schedule.every(45, name="sitemap")(lambda: self.nap(2, 6))
        schedule.run()

    # The night.

    def load(self) -> None:
        with self.client("import").lock(
            STUCK, ttl=120, metadata={"file": "customers-11.csv", "rows": 412_000}
        ):
            time.sleep(3600)

    def queue(self) -> None:
        """Wait for it, give up, come back."""
        locks = self.client("crm-sync")
        while True:
            self.nap(1, 8)
            wait = self.random.uniform(30, 90)
            with contextlib.suppress(fencelock.AcquireTimeout), locks.lock(STUCK, ttl=30, timeout=wait):
                self.nap(2, 5)

    def day(self) -> None:
        """Start everything that this host does."""
        kind = self.name.partition("-")[0]
        if kind == "web":
            self.start(self.reserve, 2)
            self.start(self.invoice, 5)
            self.start(self.read, 2)
            self.start(self.queue, 2)
            self.start(self.order)
            self.start(self.lead)
        if kind == "worker":
            self.start(self.render, 3)
            self.start(self.licence, 2)
            self.start(self.work)
            self.start(self.tick)
        if kind == "etl":
            self.start(self.load)
        if kind != "web":
            self.start(self.watch)


def main(words: list[str]) -> None:
    """Be the host until nobody is there who wants it."""
    host = Host(*words)
    socket.gethostname = lambda: host.name  # what a lease says of its holder
    host.day()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
