"""A candidate that writes down each of its leaderships: url name client history ttl flavour [deaf].

A line `resign` on its input makes it step down. What fencelock warns of is said, a JSON object a line.
`deaf` is broken on purpose: it does not care that it has lost, and goes on claiming to lead.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable

from fencelock import AsyncClient, AsyncLease, Client, Lease
from fencelock.testing import HistoryFile, boottime

LOOK = 0.02


class Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print(json.dumps({"level": record.levelname, "message": record.getMessage()}), flush=True)


class Diary:
    """The leaderships of one candidate. A campaign begins, at the latest, when the work before it ends."""

    def __init__(self, history: HistoryFile, client: str, name: str) -> None:
        self._history, self._client, self._name = history, client, name
        self.stand()

    def stand(self) -> None:
        self.now = self._history.acquire(self._client, self._name)

    def over(self) -> None:
        self.now.lost()
        self.stand()


def listen(resign: Callable[[], None]) -> None:
    def obey() -> None:
        for line in sys.stdin:
            if line.strip() == "resign":
                resign()

    threading.Thread(target=obey, daemon=True).start()


def blocking(url: str, name: str, client: str, ttl: float, diary: Diary, deaf: bool) -> None:
    def lead(lease: Lease) -> None:
        diary.now.leased(lease)
        while not lease.lost.wait(LOOK):
            diary.now.observe(lease)
        while deaf:
            at = boottime()
            diary.now.held(at + 1.0, at=at)
            time.sleep(LOOK)
        diary.over()

    with Client(url, client_name=client) as locks:
        election = locks.election(name, ttl=ttl, metadata={"candidate": client})
        listen(election.resign)
        election.run(lead)


async def nonblocking(url: str, name: str, client: str, ttl: float, diary: Diary) -> None:
    async def lead(lease: AsyncLease) -> None:
        diary.now.leased(lease)
        try:
            while True:
                diary.now.observe(lease)
                await asyncio.sleep(LOOK)
        finally:
            diary.over()

    async with AsyncClient(url, client_name=client) as locks:
        election = locks.election(name, ttl=ttl, metadata={"candidate": client})
        loop = asyncio.get_running_loop()
        listen(lambda: asyncio.run_coroutine_threadsafe(election.resign(), loop).result())
        await election.run(lead)


def main() -> None:
    url, name, client, path, ttl, flavour, *rest = sys.argv[1:]
    logging.getLogger("fencelock").addHandler(Said(logging.WARNING))
    diary = Diary(HistoryFile(path), client, name)
    if flavour == "blocking":
        blocking(url, name, client, float(ttl), diary, "deaf" in rest)
    else:
        asyncio.run(nonblocking(url, name, client, float(ttl), diary))


if __name__ == "__main__":
    main()
