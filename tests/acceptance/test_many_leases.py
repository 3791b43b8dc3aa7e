"""Ten thousand leases of one client are kept by one renewal thread (or task), ttl after ttl.

After three ttls all of them are still held, by their own word and by the backend's, and none was
lost on the way. The memory they take is printed, and bounded generously.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from crew import Crew, sqlite_url

COUNT = 10_000
MOST = 40 * 1024
"""KiB: 4 KiB for each lease."""
TTL = 5.0


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_ten_thousand(tmp_path: Path, backend: str, flavour: str, record_property) -> None:
    url = "memory://" if backend == "memory" else sqlite_url(tmp_path)
    with Crew() as crew:
        worker = crew.start("many_leases", url, flavour, COUNT, TTL)
        found = worker.hear(seconds=120)
        assert worker.end() == 0, worker.errors
    record_property("rss increase in KiB", found["rss"])
    print(f"{backend}, {flavour}: {COUNT:,} leases take {found['rss']} KiB more, {found}")

    services = {"fencelock-renewer": 1, "fencelock-timekeeper": 1}
    if flavour == "asyncio":
        assert {name: found["tasks"].get(name) for name in services} == services
        assert sum(found["tasks"].values()) == len(services) + 1, "and the worker's own task"
        assert not services.keys() & found["threads"].keys()
    else:
        assert {name: found["threads"].get(name) for name in services} == services
        assert sum(found["threads"].values()) == len(services) + 1, "and the worker's own thread"
    assert found["held"] == found["tokens"] == found["listed"] == COUNT
    assert found["lost"] == 0
    assert found["shortest"] > 0
    assert found["verified"] == COUNT // 100
    assert found["rss"] <= MOST
