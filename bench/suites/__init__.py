"""The suites, in the order in which they are shown."""

from __future__ import annotations

from bench.measure import Suite
from bench.suites import (
    consensus,
    contended,
    crdt,
    dashboard,
    events,
    fencing,
    flight,
    instructions,
    jobs,
    leases,
    mysql,
    optimistic,
    pair,
    postgres,
    redis,
    redlock,
    scale,
    sizing,
    start,
)

__all__ = ["SUITES"]

ALL = (
    pair.MEMORY,
    pair.SQLITE,
    contended.SQLITE,
    leases.SUITE,
    start.SUITE,
    instructions.SUITE,
    crdt.SUITE,
    dashboard.SUITE,
    events.SUITE,
    fencing.SUITE,
    *redis.SUITES,
    redlock.SUITE,
    *postgres.SUITES,
    *mysql.SUITES,
    *consensus.SUITES,
    optimistic.SUITE,
    flight.SUITE,
    jobs.SUITE,
    sizing.SUITE,
    scale.SUITE,
)
SUITES: dict[str, Suite] = {suite.name: suite for suite in ALL}
