"""A register of either flavour, behind one face."""

from __future__ import annotations

import asyncio
from typing import Any

from fencelock.optimistic import AsyncRegister, Register


class Held:
    """A register of either flavour, used in the same way."""

    def __init__(self, flavour: str, url: str, name: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop() if flavour == "asyncio" else None
        self._register: Any = (AsyncRegister if self._loop else Register)(url, name, **options)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            found = getattr(self._register, name)(*args)
            return self._loop.run_until_complete(found) if self._loop else found

        return call

    def close(self) -> None:
        self.__getattr__("close")()
        if self._loop:
            self._loop.close()
