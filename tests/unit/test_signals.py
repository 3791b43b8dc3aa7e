"""`release_on_exit`: what it refuses, what it leaves alone, and what the handler raises.

tests/acceptance/test_signals.py shows how whole programs end.
"""

from __future__ import annotations

import asyncio
import collections
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fencelock import ConfigurationError, release_on_exit

STATUS = 128 + signal.SIGUSR1


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[signal.Signals, Any]]:
    """Restore every handler afterwards."""
    before = {each: signal.getsignal(each) for each in signal.Signals}
    yield before
    for each, handler in before.items():
        if signal.getsignal(each) is not handler:
            signal.signal(each, handler)


def test_it_is_documented_and_typed() -> None:
    assert (release_on_exit.__doc__ or "").strip()
    assert inspect.signature(release_on_exit).return_annotation is not inspect.Signature.empty


def test_importing_fencelock_installs_nothing() -> None:
    code = (
        "import signal; before = [signal.getsignal(each) for each in signal.Signals]; import fencelock; "
        "assert before == [signal.getsignal(each) for each in signal.Signals]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (("SIGTREM",), "signal 'SIGTREM' is unknown here: give a name such as 'SIGTERM'"),
        (("sigterm",), "signal 'sigterm' is unknown here: give a name such as 'SIGTERM'"),
        (("",), "signal '' is unknown here: give a name such as 'SIGTERM'"),
        (("SIG",), "signal 'SIG' is unknown here: give a name such as 'SIGTERM'"),
        ((15,), "signal 15 is unknown here: give a name such as 'SIGTERM'"),
        ((None,), "signal None is unknown here: give a name such as 'SIGTERM'"),
        (
            ("SIGKILL",),
            "signal SIGKILL cannot be caught: leave it out, the ttl frees the locks of a killed process",
        ),
        (
            (signal.SIGSTOP,),
            "signal SIGSTOP cannot be caught: leave it out, the ttl frees the locks of a killed process",
        ),
        ((), "signals is empty: name at least one signal, such as 'SIGTERM'"),
        ("SIGTERM", "signals='SIGTERM' is not a tuple of signals: give one, such as ('SIGTERM',)"),
        (b"SIGTERM", "signals=b'SIGTERM' is not a tuple of signals: give one, such as ('SIGTERM',)"),
        (15, "signals=15 is not a tuple of signals: give one, such as ('SIGTERM',)"),
        (None, "signals=None is not a tuple of signals: give one, such as ('SIGTERM',)"),
    ],
)
def test_bad_input_is_one_clear_error(signals: Any, words: str, handlers: dict[signal.Signals, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        release_on_exit(signals)
    assert str(caught.value) == words
    assert {each: signal.getsignal(each) for each in signal.Signals} == handlers


def test_one_bad_name_among_good_ones_changes_nothing(handlers: dict[signal.Signals, Any]) -> None:
    with pytest.raises(ConfigurationError, match="SIGNONE"):
        release_on_exit(("SIGUSR1", "SIGNONE"))
    assert signal.getsignal(signal.SIGUSR1) is handlers[signal.SIGUSR1]


def test_another_thread_is_refused() -> None:
    caught: list[ConfigurationError] = []

    def call() -> None:
        try:
            release_on_exit(("SIGUSR1",))
        except ConfigurationError as error:
            caught.append(error)

    thread = threading.Thread(target=call, name="worker-1")
    thread.start()
    thread.join()
    assert [str(error) for error in caught] == [
        "release_on_exit() was called on thread 'worker-1': call it on the main thread"
    ]


@pytest.mark.parametrize("given", ["SIGUSR1", "USR1", signal.SIGUSR1])
def test_a_signal_becomes_an_exception(given: str | signal.Signals) -> None:
    release_on_exit(iter([given]))
    with pytest.raises(SystemExit) as caught:
        signal.raise_signal(signal.SIGUSR1)
    assert caught.value.code == STATUS


def test_a_second_call_changes_nothing() -> None:
    release_on_exit(("SIGUSR1",))
    handler = signal.getsignal(signal.SIGUSR1)
    release_on_exit(("SIGUSR1", "SIGUSR2"))
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_call_after_another_handler_chains_to_that_one_too() -> None:
    """And does not call itself for ever when that one chains to the first."""
    calls: list[str] = []
    release_on_exit(("SIGUSR1",))
    first: Any = signal.getsignal(signal.SIGUSR1)

    def between(signum: int, frame: Any) -> None:
        calls.append("between")
        first(signum, frame)

    signal.signal(signal.SIGUSR1, between)
    release_on_exit(("SIGUSR1",))
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGUSR1)
    assert calls == ["between"]


def test_what_the_handler_before_raises_travels_on() -> None:
    def before(signum: int, frame: Any) -> None:
        raise LookupError(signum)

    signal.signal(signal.SIGUSR1, before)
    release_on_exit(("SIGUSR1",))
    with pytest.raises(LookupError):
        signal.raise_signal(signal.SIGUSR1)


def test_what_is_ignored_and_what_unwinds_already_is_left_alone() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    release_on_exit(("SIGUSR1", "SIGINT"))
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_does_not_cut_short_what_the_first_began() -> None:
    release_on_exit(("SIGUSR1",))
    steps = []
    with pytest.raises(SystemExit) as caught:
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.raise_signal(signal.SIGUSR1)
            steps.append("released")
            try:
                raise OSError("while it unwinds")
            except OSError:
                signal.raise_signal(signal.SIGUSR1)
                steps.append("handled")
    assert steps == ["released", "handled"]
    assert caught.value.code == STATUS


@pytest.mark.timeout(30)
def test_a_signal_in_the_middle_of_the_event_loop_loses_no_step_of_a_task() -> None:
    """An exception right there would lose the step: `asyncio.run` would wait for that task for ever."""
    ended = []

    class Ready(collections.deque[Any]):
        def popleft(self) -> Any:
            step = super().popleft()
            if armed:
                armed.clear()
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGUSR1)
            return step

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        loop._ready = Ready(loop._ready)
        try:
            armed.append(True)
            await asyncio.sleep(0)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("orderly")

    armed: list[bool] = []
    release_on_exit(("SIGUSR1",))
    with pytest.raises(SystemExit) as caught:
        asyncio.run(main())
    assert caught.value.code == STATUS
    assert ended == ["orderly"]


def test_a_signal_after_one_that_was_caught_raises_again() -> None:
    release_on_exit(("SIGUSR1",))
    for _ in range(3):
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGUSR1)
