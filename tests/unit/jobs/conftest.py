"""A table of jobs in a file, locks in memory, and a way to run both flavours alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

from fencelock import AsyncClient, Client, jobs
from fencelock.jobs.outcomes import Tally
from fencelock.runtime.blocking import run

FORMS = ["locked", "unlocked", "locked/asyncio", "unlocked/asyncio"]


class Desk:
    """One file of jobs, with what it takes to work on it in one form."""

    def __init__(self, file: Path, form: str = "locked") -> None:
        self.file = file
        self.form, _, flavour = form.partition("/")
        self.is_async = bool(flavour)
        self.engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 30})
        self.table = jobs.Table(self.engine)
        self.table.create()
        self.statements: list[str] = []
        self.worker: Any = None

    def work(
        self,
        handlers: dict[str, Callable[[Any], Any]],
        *,
        table: dict[str, Any] | None = None,
        once: bool = True,
        **terms: Any,
    ) -> Tally:
        """Let a worker with blocking handlers do what is to be done."""
        terms = {"poll": 0.05, "backoff": 0.0, "ttl": 5.0} | terms
        if self.is_async:
            return asyncio.run(self._work_async(handlers, table or {}, once, terms))
        with Client("memory://") as locks:
            source = jobs.Table(self.engine, **table) if table else self.table
            self.worker = jobs.Worker(locks if self.form == "locked" else None, source, handlers, **terms)
            return self.worker.run(once=once)  # type: ignore[no-any-return]

    async def _work_async(self, handlers: Any, table: Any, once: bool, terms: Any) -> Tally:
        engine = create_async_engine(f"sqlite+aiosqlite:///{self.file}", connect_args={"timeout": 30})
        source = jobs.AsyncTable(engine, **table)
        try:
            async with AsyncClient("memory://") as locks:
                self.worker = jobs.AsyncWorker(
                    locks if self.form == "locked" else None,
                    source,
                    {kind: _awaited(handler) for kind, handler in handlers.items()},
                    **terms,
                )
                return await self.worker.run(once=once)  # type: ignore[no-any-return]
        finally:
            await engine.dispose()

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.begin() as conn:
            found = conn.execute(text(statement), values)
            return [*found] if found.returns_rows else []

    def listen(self, seen: Callable[[str], None]) -> list[str]:
        """Return a list that every statement from now on is written to; `seen` is told too."""

        def note(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
            self.statements.append(statement)
            seen(statement)

        event.listen(self.engine, "before_cursor_execute", note)
        return self.statements


def nothing(job: Any) -> None:
    """A handler for what is not to be looked at."""


def either(desk: Desk, handler: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], Any]:
    """Return a handler of the desk's flavour: one that is blocking never suspends."""
    return handler if desk.is_async else lambda job: run(handler(job))


def _awaited(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def called(job: Any) -> None:
        found = handler(job)
        if asyncio.iscoroutine(found):
            await found

    return called


@pytest.fixture(params=FORMS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk of each form."""
    desk = Desk(tmp_path / "jobs.db", request.param)
    yield desk
    desk.engine.dispose()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Desk]:
    """A desk of one form, where the form does not matter."""
    desk = Desk(tmp_path / "jobs.db")
    yield desk
    desk.engine.dispose()
