"""A counter in two regions that cannot reach each other: both count on, and no visit is lost.

A lock would make one region wait for the other. A CRDT need not: each replica keeps what it knows in a file,
changes it whenever it wants, and merges what the other one has left at the exchange when that is in reach.
"""

from __future__ import annotations

import tempfile

from fencelock.crdt import PNCounter, Replica


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        exchange = f"file://{folder}"
        with (
            Replica("visits", PNCounter, path=f"{folder}/berlin", exchange=exchange) as berlin,
            Replica("visits", PNCounter, path=f"{folder}/lima", exchange=exchange) as lima,
        ):
            for _ in range(30):  # the line is down, and nobody waits
                berlin.update(lambda visits: visits.increment(berlin.id))
            lima.update(lambda visits: visits.increment(lima.id, 12))
            print(f"apart: berlin {berlin.value.value}, lima {lima.value.value}")

            for replica in (berlin, lima, berlin):  # it is back
                replica.sync()
            print(f"together: berlin {berlin.value.value}, lima {lima.value.value}")
            assert berlin.value == lima.value
            assert berlin.value.value == 42


if __name__ == "__main__":
    main()
