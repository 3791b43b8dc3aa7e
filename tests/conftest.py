"""What all tests need: a heap that can be searched for garbage, and workers that need not wait."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("fencelock", deadline=None)  # how long an example takes says nothing here
settings.load_profile("fencelock")

CONFORMANCE = "tests/conformance/test_conformance.py::"
CONFORMS = f"{CONFORMANCE}test_conforms"
BROWSER = "tests/browser/"
LIGHT = ("tests/sim/", "tests/unit/")
SLOWEST = 8
REPEATS = "FENCELOCK_REPEATS"


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let nothing that a test runs write to the state folder of the user who runs the tests."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder / "fencelock"


def pytest_configure(config: pytest.Config) -> None:
    """Heed the signals that `nohup` or a shell's `&` makes a process ignore, and what tests start with it."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            heed = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, heed)


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
    and all files with a browser have one browser. A broken backend needs no server, so it goes to any worker.
    """
    if nodeid.startswith(BROWSER):
        return BROWSER
    if not nodeid.startswith(CONFORMS):
        return nodeid if nodeid.startswith(CONFORMANCE) else nodeid.partition("::")[0]
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

        def remove_node(self, node: Any) -> str | None:
            """Fail what a crashed worker had begun, for good; let the others do the rest of its shares."""
            shares = self.assigned_work.pop(node)
            left = [(tests, name) for tests in shares.values() for name, done in tests.items() if not done]
            if not left:
                return None
            tests, crashed = left[0]
            tests[crashed] = True
            self.workqueue.update({name: tests for name, tests in shares.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

        def _reschedule(self, node: Any) -> None:
            """Give a worker its next share: it begins its last test once it knows what follows."""
            pending = self.assigned_work[node]
            if node not in self.registered_collections and self.workqueue:
                return  # it takes the place of a crashed worker, and will ask when it has collected
            while self.workqueue and not node.shutting_down and self._pending_of(pending) < 2:
                with contextlib.suppress(OSError):  # it has crashed as well, and `remove_node` will follow
                    self._assign_work_unit(node)
            if not self.workqueue and not node.shutting_down:
                node.shutdown()

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


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a test that runs once more."""
    if report.outcome == "rerun":
        note(report.nodeid)


def pytest_warning_recorded(warning_message: Any, nodeid: str) -> None:
    """Name a check that ran once more."""
    if warning_message.category.__name__ == "RepeatedWarning":
        note(nodeid)


def note(nodeid: str) -> None:
    """Write down what ran once more, for the last lines of `tools.tests`."""
    if REPEATS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ[REPEATS]).open("a") as file:
            file.write(f"{nodeid}\n")


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
