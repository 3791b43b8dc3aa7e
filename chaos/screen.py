"""What is shown while something long goes on: on a terminal a picture that changes, elsewhere lines."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live

__all__ = ["Screen"]


class Screen:
    """A view of something that goes on; use it in a `with` block."""

    rate = 4
    """How often in a second the picture may change."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live = Live(console=console, refresh_per_second=self.rate, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._live.stop()
