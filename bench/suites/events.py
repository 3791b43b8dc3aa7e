"""What events cost: nothing where nobody listens, little where Prometheus does.

Four copies of the whole package stand in one process, each with modules of its own. From one of them the
hooks were taken out before it was compiled: that is the limit. The second is the package as it is, with
nobody listening; the third has Prometheus installed. The fourth is the second once more: how far it is from
the second is how far two equal things are apart here, and no ratio means more than that.

They take turns within each round, and a ratio is that of one round: whatever else the machine does meets all.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from tools.servers import start

from bench.measure import Contestant, Figure, Result, Run, Suite, interleave, timed
from bench.suites.targets import at_most, named

__all__ = ["SUITE"]

WITHOUT, SILENT, AGAIN, PROMETHEUS = "without hooks", "nobody listens", "nobody listens, again", "Prometheus"
OFF, ON = 1.03, 1.15
ROUNDS = {"memory": (80, 1000), "sqlite": (50, 150), "redis": (50, 150)}
HOOKED = {f"fencelock.core.{name}" for name in ("acquire", "hold", "renew", "session")}


class Unhook(ast.NodeTransformer):
    """Takes out whatever is there for events only."""

    def __init__(self) -> None:
        self.removed = 0

    def visit_If(self, node: ast.If) -> Any:
        """`if events.to_…:` and what stands in it."""
        self.generic_visit(node)
        if "events.to_" not in ast.unparse(node.test):
            return node
        self.removed += 1
        return node.orelse or ast.Pass()

    def visit_Assign(self, node: ast.Assign) -> Any:
        """`self.since = now` of a hold."""
        if ast.unparse(node.targets[0]) != "self.since":
            return node
        self.removed += 1
        return None


class Copies(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports fencelock anew; `is_unhooked` without its hooks."""

    def __init__(self, *, is_unhooked: bool) -> None:
        self.is_unhooked = is_unhooked
        self.unhook = Unhook()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not (self.is_unhooked and name in HOOKED):
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None and found.origin is not None
        return importlib.util.spec_from_file_location(name, found.origin, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        with open(module.__file__, encoding="utf-8") as source:  # noqa: PTH123
            tree = self.unhook.visit(ast.parse(source.read()))
        exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), module.__dict__)


@contextlib.contextmanager
def copy(*, is_unhooked: bool = False) -> Iterator[ModuleType]:
    """Give a copy of the package that shares no module with any other, as long as the block lasts."""
    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "fencelock"}
    for name in ours:
        del sys.modules[name]
    finder = Copies(is_unhooked=is_unhooked)
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module("fencelock")
        if is_unhooked and finder.unhook.removed < 4:
            raise AssertionError(f"only {finder.unhook.removed} hooks were found: do they look different?")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "fencelock"]:
            del sys.modules[name]
        sys.modules.update(ours)


def contestant(name: str, url: str, role: str) -> Contestant:
    @contextlib.contextmanager
    def prepare() -> Iterator[Run]:
        with copy(is_unhooked=name == WITHOUT) as fencelock:
            locks = fencelock.Client(url, namespace=name)
            lock = locks.lock("bench")
            with lock:
                pass  # whatever is imported late is imported now, from this copy
            if name == PROMETHEUS:
                from prometheus_client import CollectorRegistry

                importlib.import_module("fencelock.contrib.prometheus").install(CollectorRegistry())

        def pair() -> None:
            with lock:
                pass

        with locks:
            yield timed(pair)

    return Contestant(name, prepare, role)


def measured(kind: str, url: str, progress: Callable[[str], None]) -> Result:
    contestants = [
        contestant(WITHOUT, url, "limit"),
        contestant(SILENT, url, "fencelock"),
        contestant(AGAIN, url, "beside"),
        contestant(PROMETHEUS, url, "fencelock"),
    ]
    rounds, count = ROUNDS[kind]
    figures = interleave(contestants, rounds=rounds, count=count, progress=progress)
    verdicts = [
        at_most("nobody listens, to without hooks", both(figures, SILENT, WITHOUT), OFF, key="silent"),
        at_most("Prometheus, to without hooks", both(figures, PROMETHEUS, WITHOUT), ON, key="prometheus"),
    ]
    notes = [
        f"the same twice: {both(figures, AGAIN, SILENT):.3f}",
        "by the fastest rounds, which noise touches least: "
        f"{fastest(figures, SILENT):.3f} with nobody, {fastest(figures, PROMETHEUS):.3f} with Prometheus, "
        f"{fastest(figures, AGAIN):.3f} the same again",
    ]
    title = f"A pair of acquire and release on {kind}, with events"
    return Result(title, figures, notes, verdicts=verdicts, key=f"events.{kind}")


def both(figures: Sequence[Figure], one: str, other: str) -> float:
    """Return the median of the ratios of each round: what happened in it happened to both."""
    first, second = named(figures, one), named(figures, other)
    assert first is not None and second is not None
    return statistics.median(a / b for a, b in zip(first.rounds, second.rounds, strict=True))


def fastest(figures: Sequence[Figure], one: str) -> float:
    """Return the ratio of the fastest rounds, to the one without hooks."""
    first, second = named(figures, one), named(figures, WITHOUT)
    assert first is not None and second is not None
    return min(first.rounds) / min(second.rounds)


def measure(progress: Callable[[str], None]) -> Sequence[Result]:
    with tempfile.TemporaryDirectory() as folder, start("redis") as server:
        urls = {"memory": "memory://", "sqlite": f"sqlite://{folder}/locks.db", "redis": str(server.url)}
        return [measured(kind, url, progress) for kind, url in urls.items()]


SUITE = Suite("events", "what events cost, with nobody listening and with Prometheus", measure)
