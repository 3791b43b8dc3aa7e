"""The event loop of the conformance checks."""

from __future__ import annotations

import asyncio
import sys

import pytest

from fencelock.cli import main
from fencelock.errors import ConfigurationError
from fencelock.testing.conformance.loops import VARIABLE, factory, run_async


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.parametrize("wanted", ["asyncio", "uvloop"])
def test_the_loop_is_the_one_that_is_wanted(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, wanted)
    assert run_async(kind()) == wanted


def test_an_unknown_loop_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "curio")
    with pytest.raises(ConfigurationError, match="'curio' is unknown: give one of asyncio, uvloop"):
        factory()


def test_without_uvloop_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert main(["conform", "--loop", "uvloop", "memory://"]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "fencelock: uvloop is not installed: pip install uvloop, or choose asyncio"
