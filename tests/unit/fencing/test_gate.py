"""`Gate` and `AsyncGate`: the rule in this process, and turns."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from fencelock import ConfigurationError, StaleToken
from fencelock.fencing import AsyncGate, Gate


def test_the_rule() -> None:
    gate = Gate()
    assert gate.newest("r") == 0
    gate.admit("r", 34)
    gate.admit("r", 34)
    gate.admit("other", 1)
    with pytest.raises(StaleToken, match="token 33 for 'r' is stale: 34 was seen already"):
        gate.admit("r", 33)
    assert gate.newest("r") == 34
    gate.forget("r")
    gate.forget("unknown")
    gate.admit("r", 1)


def test_bad_input_changes_nothing() -> None:
    gate = Gate()
    for resource, token in [("", 1), ("r", 0), ("r", True), ("r", 2**63)]:
        with pytest.raises(ConfigurationError):
            gate.admit(resource, token)
    assert gate.newest("r") == 0


def test_a_turn_that_fails_ends() -> None:
    gate = Gate()
    with pytest.raises(KeyError), gate.turn("r", 2):
        raise KeyError
    with pytest.raises(StaleToken), gate.turn("r", 1):
        raise AssertionError
    gate.admit("r", 2)


def test_nobody_gets_in_during_a_turn() -> None:
    gate = Gate()
    seen: list[str] = []

    def newer() -> None:
        gate.admit("r", 2)
        seen.append("newer")

    with gate.turn("r", 1):
        thread = threading.Thread(target=newer)
        thread.start()
        gate.admit("other", 1)
        time.sleep(0.05)
        seen.append("turn")
    thread.join(10)
    assert seen == ["turn", "newer"]


def test_32_writers() -> None:
    gate = Gate()
    written: list[int] = []
    accepted: list[int] = []

    def write(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(50):
            token = dice.randrange(1, 100_000)
            try:
                with gate.turn("r", token):
                    written.append(token)
                    time.sleep(0)
                    assert written[-1] == token, "somebody else has written in this turn"
            except StaleToken as error:
                assert error.newest > token
            else:
                accepted.append(token)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert written == sorted(written), "the token fell"
    assert written[-1] == max(accepted) == gate.newest("r")
    assert sorted(written) == sorted(accepted)


def test_asyncio() -> None:
    async def main() -> None:
        gate = AsyncGate()
        written: list[int] = []

        async def write(token: int) -> bool:
            try:
                async with gate.turn("r", token):
                    written.append(token)
                    await asyncio.sleep(0)
                    assert written[-1] == token
            except StaleToken:
                return False
            return True

        tokens = [random.Random(token).randrange(1, 1000) for token in range(32 * 20)]
        accepted = await asyncio.gather(*map(write, tokens))
        assert written == sorted(written)
        assert written[-1] == max(tokens) == gate.newest("r")
        assert sum(accepted) == len(written) < len(tokens)
        with pytest.raises(StaleToken):
            await gate.admit("r", 1)
        with pytest.raises(ConfigurationError):
            await gate.admit("r", -1)
        gate.forget("r")
        await gate.admit("r", 1)

    asyncio.run(main())
