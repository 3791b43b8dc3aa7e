"""Workers: as many as there are jobs, used again, and gone when they are closed or have nothing to do."""

from __future__ import annotations

import sys
import threading
import warnings

import pytest

from fencelock.net import workers
from fencelock.net.workers import Workers
from fencelock.runtime.base import Runtime
from fencelock.runtime.blocking import BlockingRuntime, run
from fencelock.testing.conformance.scripts import Interrupter
from unit.support import until, until_async

from .peer import FLAVOURS, drive

NAME = "fencelock-test-worker"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_worker_is_used_again(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        some = Workers(runtime, NAME)
        done: list[int] = []
        for number in range(5):

            async def job(number: int = number) -> None:
                done.append(number)

            some.start(job)
            assert await happens(runtime, lambda number=number: len(some._resting) == 1 and number in done)
            assert len(some._all) == 1
        await some.close()
        assert not some._all
        some.start(job)
        assert not some._all

    drive(flavour, main)
    assert until(lambda: not threads())


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_each_job_has_its_own(flavour: str) -> None:
    async def main(runtime: Runtime) -> None:
        some = Workers(runtime, NAME)
        goes_on, under_way = runtime.event(), []

        async def job() -> None:
            under_way.append(1)
            while not goes_on.is_set():
                await runtime.sleep(0.002)

        for _ in range(4):
            some.start(job)
        assert await happens(runtime, lambda: len(under_way) == 4)
        goes_on.set()
        await some.close()
        assert not some._all

    drive(flavour, main)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_one_that_has_nothing_to_do_ends(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LINGER", 0.01)

    async def main(runtime: Runtime) -> None:
        some = Workers(runtime, NAME)

        async def job() -> None:
            """Nothing."""

        some.start(job)
        assert await happens(runtime, lambda: not some._all)
        assert not some._resting

    drive(flavour, main)


async def happens(runtime: Runtime, what: object) -> bool:
    if runtime.flavour == "blocking":
        return until(what)  # type: ignore[arg-type]
    return await until_async(what)  # type: ignore[arg-type]


def test_an_interrupt_at_any_point_loses_the_job_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "LINGER", 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a job that was not begun
        some = Workers(BlockingRuntime(), NAME)
        done: list[int] = []

        async def job() -> None:
            done.append(1)

        place = 0
        while True:
            place += 1
            some.start(job)
            assert until(lambda: done), "the next job is done"
            done.clear()
            interrupter = Interrupter(place)
            try:
                with interrupter:
                    some.start(job)
            except KeyboardInterrupt:
                pass
            if not interrupter.where:
                break
        run(some.close())
        assert until(lambda: not some._all and not threads())
    assert sys.getprofile() is None
