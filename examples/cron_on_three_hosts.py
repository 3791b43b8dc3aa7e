"""A cron job on three hosts: each of them has the schedule, and each tick is run by one.

Every host does the same: it waits for the tick, takes the schedule's lock, and looks into the record whether
somebody has run this tick. The record is kept beside the locks. So no host is special, and any of them may
be down. Each host here has a client of its own, as it would on a machine of its own.

The line has six fields, seconds first, so that you need not wait. With five it is that of any crontab.
"""

from __future__ import annotations

import os
import tempfile
import threading

from fencelock import Client, Lease
from fencelock.schedule import Schedule, Tick

HOSTS = ("north", "south", "west")
TICKS = 3


def host(name: str, url: str, reports: list[int], everybody: list[Schedule]) -> None:
    with Client(url, client_name=name) as locks, Schedule(locks, timezone="Europe/Berlin") as schedule:

        @schedule.cron("* * * * * *", name="example-report", at_most_for=30)
        def report(tick: Tick[Lease]) -> None:
            if len(reports) < TICKS:
                print(f"{name} writes the report of {tick.at:%H:%M:%S}, token {tick.token}")
                reports.append(tick.instant)
            if len(reports) == TICKS:
                for each in everybody:
                    each.stop()  # a service would wait for SIGTERM

        everybody.append(schedule)
        schedule.run()


def main() -> None:
    reports: list[int] = []
    everybody: list[Schedule] = []
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("FENCELOCK_URL") or f"sqlite://{folder}/locks.db"
        hosts = [threading.Thread(target=host, args=(name, url, reports, everybody)) for name in HOSTS]
        for thread in hosts:
            thread.start()
        for thread in hosts:
            thread.join()
        with Client(url) as locks:
            for run in Schedule(locks).history("example-report")[:TICKS]:
                print(f"{run.at:%H:%M:%S}Z {run.state} on {run.host}, attempt {run.attempt}")
    print(f"{len(set(reports))} ticks, {len(hosts)} hosts, {len(reports)} runs")


if __name__ == "__main__":
    main()
