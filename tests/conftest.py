"""What all tests need: a heap that can be searched for garbage, and workers that need not wait."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("fencelock", deadline=None)  # how long an example takes says nothing here
settings.load_profile("fencelock")

CONFORMS = "tests/conformance/test_conformance.py::test_conforms"
BROWSER = "tests/browser/"
LIGHT = ("tests/sim/", "tests/unit/")
SLOWEST = 8


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let nothing that a test runs write to the state folder of the user who runs the tests."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder / "fencelock"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the ten thousand tests themselves off the collector's hands.

    Many tests ask for a collection, to see what becomes of a lease that nobody has any more. With the
    tests themselves to look through, each took most of a second, and every thread stood still meanwhile.
    """
    gc.collect()
    gc.freeze()


def share(nodeid: str) -> str:
    """Return which share a test belongs to: one worker runs all of it.

    A file has its servers, and a row of conformance is run as a whole: a second worker with a part of it
    would start the servers once more, or wait for the first one. Short rows have one start for both flavours,
    and all files with a browser have one browser.
    """
    if nodeid.startswith(BROWSER):
        return BROWSER
    if not nodeid.startswith(CONFORMS):
        return nodeid.partition("::")[0]
    test, _, case = nodeid.partition("[")
    scheme, flavour, _ = case.rsplit("-", 2)
    return f"{CONFORMS}[{scheme}" if "test_conforms_too" in test else f"{CONFORMS}[{scheme}-{flavour}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal out shares, in the order in which they were collected, with `--dist loadscope`."""
    if config.option.dist != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share(nodeid)

    config.option.loadscopereorder = False
    return Shares(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long, rows and files with servers in turn; what is light fills the end."""
    if not hasattr(config, "workerinput"):
        return
    shares: dict[str, list[pytest.Item]] = {}
    for item in items:
        shares.setdefault(share(item.nodeid), []).append(item)
    rows = [name for name in shares if name.startswith(CONFORMS)]
    light = [name for name in shares if name.startswith(LIGHT)]
    others = [name for name in shares if name not in {*rows, *light}]
    turns = {name: (number + 1) / (len(rows) + 1) for number, name in enumerate(reversed(rows))}
    turns |= {name: (number + 1) / (len(others) + 1) for number, name in enumerate(others)}
    order = [*sorted(turns, key=lambda name: turns[name]), *light]
    items[:] = [item for name in order for item in shares[name]]


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: Any, sched: Any) -> None:
    """Note that a worker process has crashed: that is final, whatever the test says when it runs again."""
    crashed = sched.config.cache.get("fencelock/crashed", [])
    sched.config.cache.set("fencelock/crashed", [*crashed, crashitem])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the workers' time went; all of it is in the cache, as `fencelock/shares`."""
    if not getattr(config.option, "numprocesses", None):
        return
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                spent[share(report.nodeid)] += report.duration
    whole = spent.total()
    config.cache.set("fencelock/shares", {name: round(seconds, 1) for name, seconds in spent.most_common()})
    terminalreporter.section(f"{whole:.0f} seconds of all workers: the {SLOWEST} slowest")
    for name, seconds in spent.most_common(SLOWEST):
        terminalreporter.write_line(f"{seconds:7.1f}  {name}")
