"""Schedules: cron lines and intervals that run once in the whole fleet for each tick.

    schedule = Schedule(locks)

    @schedule.cron("*/5 * * * *", name="report", at_most_for=240)
    def report(tick): ...

    schedule.run()          # on every host

A tick is its scheduled instant, the same on every host. The host whose clock is first takes the schedule's
lock and writes into a record that it has begun that tick; a host whose clock is behind finds that and does
nothing. `turns.py` has the argument, `plan.py` says what wrong clocks can do, `ticks.py` what happens when
clocks change in spring and autumn, and `shelves/` where the record is kept.
"""

from fencelock.schedule.aio import AsyncSchedule
from fencelock.schedule.jobs import Tick
from fencelock.schedule.records import Run
from fencelock.schedule.schedule import Schedule
from fencelock.schedule.shelves.sql import create_table, create_table_async

__all__ = ["AsyncSchedule", "Run", "Schedule", "Tick", "create_table", "create_table_async"]
