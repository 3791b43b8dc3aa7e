"""A Celery worker whose tasks run once: `contrib_celery.py URL POOL QUEUES`.

Broker, results, locks and what tasks note are all on the Redis of URL. A task notes `[what, token, pid]` in
the list `notes:KEY`, and waits in its middle until there is a key `go:KEY`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import redis
from celery import Celery

from fencelock.contrib.celery import Once, Policy
from fencelock.idempotency import Store

PATIENCE = 60.0


def notes(url: str, key: str) -> list[Any]:
    """Return what was noted for a key."""
    with redis.Redis.from_url(url) as client:
        found: Any = client.lrange(f"notes:{key}", 0, -1)
        return [json.loads(one) for one in found]


def go(url: str, key: str) -> None:
    """Let whoever waits for a key go on."""
    with redis.Redis.from_url(url) as client:
        client.set(f"go:{key}", 1)


def make(url: str) -> SimpleNamespace:
    """Return an application and its tasks."""
    app = Celery("contrib", broker=url, backend=url)
    app.conf.update(
        fencelock_url=url,
        fencelock_namespace="tasks",
        broker_connection_retry_on_startup=True,
        worker_prefetch_multiplier=1,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
    )
    client = redis.Redis.from_url(url)

    def note(what: str, task: Any, key: str) -> None:
        client.rpush(f"notes:{key}", json.dumps([what, task.lease.token, os.getpid()]))

    def work(task: Any, key: str, *, looks: bool = True) -> str:
        note("begun", task, key)
        deadline = time.monotonic() + PATIENCE
        while not client.exists(f"go:{key}") and (looks or not task.lease.lost.wait(0)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
            if looks:
                task.lease.check()
        note("done", task, key)
        return f"done {key}"

    @app.task(
        shared=False,
        base=Once,
        bind=True,
        name="pay",
        once={"key": "invoice:{key}", "ttl": 2, "countdown": 0.2},
    )
    def pay(self: Any, key: str, number: int = 0, looks: bool = True) -> str:
        return work(self, key, looks=looks)

    @app.task(
        shared=False,
        base=Once,
        bind=True,
        name="count",
        once=Policy(busy="retry", key="counter", ttl=5, countdown=0.1),
    )
    def count(self: Any, key: str) -> int:
        seen: Any = client.get(f"counter:{key}")
        time.sleep(0.02)
        client.set(f"counter:{key}", int(seen or 0) + 1)
        note("done", self, key)
        return int(seen or 0) + 1

    @app.task(
        shared=False,
        base=Once,
        bind=True,
        name="kept",
        once=Policy(ttl=5, countdown=0.2, store=Store(client, ttl=5)),
    )
    def kept(self: Any, key: str) -> str:
        return work(self, key)

    @app.task(
        shared=False,
        base=Once,
        bind=True,
        name="forever",
        once=Policy("k:{key}", store=Store(client, namespace="keys"), per="key", busy="wait", timeout=60),
    )
    def forever(self: Any, key: str) -> str:
        return work(self, key)

    return SimpleNamespace(app=app, pay=pay, count=count, kept=kept, forever=forever)


if __name__ == "__main__":
    url, pool, queues = sys.argv[1:]
    options = ["--pool", pool, "--concurrency", "2", "-Q", queues, "-n", f"{pool}@%h", "--loglevel", "info"]
    less = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    make(url).app.worker_main(["worker", *options, *less])
