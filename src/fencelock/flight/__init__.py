"""Single flight: a value that many ask for at once is computed once, in all processes, and kept.

    with fencelock.Client("redis://localhost") as locks, flight.Flight(locks) as cache:
        report = cache.get("report:7", build_report, ttl=60, stale=300)

A hit is one round trip. On a miss one caller, of all in the fleet, computes under the lock of the key; the
others wait for the value. `course.py` tells the steps, why nothing old is kept over something newer, and what
is not promised.
"""

from fencelock.flight.aio import AsyncFlight
from fencelock.flight.blocking import Flight
from fencelock.flight.codecs import Codec
from fencelock.flight.records import ComputeFailed, Errors

__all__ = ["AsyncFlight", "Codec", "ComputeFailed", "Errors", "Flight"]
