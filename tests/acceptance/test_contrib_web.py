"""FastAPI and Starlette under uvicorn: two servers on one lock, and one of them killed in the middle.

`FENCELOCK_ROUNDS=5` sends so many times as many requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from crew import PATIENCE, Crew, Member, sqlite_url, wait_until

ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "1"))
REQUESTS = 40 * ROUNDS


class Site:
    """Two servers."""

    def __init__(self, folder: Path, crew: Crew) -> None:
        self.folder = folder
        self.servers: dict[int, Member] = {}
        for framework in ("fastapi", "starlette"):
            server = crew.start("contrib_web", sqlite_url(folder), folder, framework)
            self.servers[server.hear()["port"]] = server
        for port in self.servers:
            wait_until(lambda port=port: self._answers(port), f"port {port} answers")

    def _answers(self, port: int) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/count/0").status_code == 405
        return False


@pytest.fixture
def site(tmp_path: Path, crew: Crew) -> Iterator[Site]:
    yield Site(tmp_path, crew)


def test_two_servers_take_turns_and_a_killed_one_is_followed(site: Site) -> None:
    first, second = site.servers

    async def crowd() -> list[tuple[int, int]]:
        limits = httpx.Limits(max_connections=16)
        async with httpx.AsyncClient(timeout=2 * PATIENCE, limits=limits) as http:
            paths = ["count/7", "count/007"]
            asked = [
                http.post(f"http://127.0.0.1:{(first, second)[n % 2]}/{paths[n // 2 % 2]}")
                for n in range(REQUESTS)
            ]
            answers = await asyncio.gather(*asked)
        assert {answer.status_code for answer in answers} == {200}, [one.text for one in answers]
        return sorted((one.json()["count"], one.json()["token"]) for one in answers)

    found = asyncio.run(crowd())
    assert [count for count, _ in found] == list(range(1, REQUESTS + 1)), "none was lost"
    tokens = [token for _, token in found]
    assert tokens == sorted(set(tokens)), "each turn has a higher token"

    async def killed() -> dict[str, int]:
        async with httpx.AsyncClient(timeout=2 * PATIENCE) as http:
            hanging = asyncio.create_task(http.post(f"http://127.0.0.1:{first}/hang/7"))
            while not (site.folder / "hanging").exists() or not (site.folder / "hanging").read_text():
                await asyncio.sleep(0.01)
            refused = await http.post(f"http://127.0.0.1:{second}/hang/7", headers={"connection": "close"})
            assert refused.status_code == 423
            following = asyncio.create_task(http.post(f"http://127.0.0.1:{second}/count/7"))
            site.servers[first].signal(signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                await hanging
            answer: dict[str, int] = (await following).json()
            return answer

    answer = asyncio.run(killed())
    token, pid = json.loads((site.folder / "hanging").read_text())
    assert pid == site.servers[first].pid
    assert answer["count"] == REQUESTS + 1 and answer["token"] > token
