"""What is seen of a soak: while it runs, and the table at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.screen import Screen
from chaos.soak.page import worst
from chaos.soak.run import Outcome

__all__ = ["View", "table"]


class View(Screen):
    """On a terminal a table that changes; elsewhere a line for each lull."""

    def __init__(self, console: Console, seconds: float) -> None:
        super().__init__(console)
        self.seconds = seconds
        self._began = time.monotonic()
        self._rows: dict[str, tuple[str, Outcome]] = {}
        self._lock = threading.Lock()

    def __call__(self, backend: str, phase: str, outcome: Outcome) -> None:
        """Something has happened to one of them."""
        with self._lock:
            self._rows[backend] = phase, outcome
            if self.console.is_terminal:
                self._live.update(self._table())
            elif phase in {"lull", "over"}:
                self.console.print(f"{backend}: {self._words(outcome)}", soft_wrap=True)

    def _words(self, outcome: Outcome) -> str:
        seconds = time.monotonic() - self._began
        faults = sum(outcome.struck.values())
        done = f"{outcome.counts.get('grants', 0)} grants, {faults} faults"
        return f"{seconds:.0f}s of {self.seconds:.0f}s, {outcome.rounds} rounds, {done}"

    def _table(self) -> Table:
        shown = Table("backend", "phase", "so far")
        for backend, (phase, outcome) in self._rows.items():
            shown.add_row(backend, phase, self._words(outcome))
        return shown


def table(outcomes: Sequence[Outcome]) -> Table:
    """Every measure of every backend, by the process that did worst."""
    shown = Table("backend", "measure", "who", "start", "middle", "end", "growth", "allowed", "verdict")
    for outcome in outcomes:
        for one in worst(outcome.findings):
            word = one.why or ("flat" if one.is_judged else "shown")
            style = "bold red" if one.why else "green" if one.is_judged else "dim"
            figures = (one.start, one.middle, one.end, one.growth, one.allowed)
            numbers = [f"{figure:,.6g}" for figure in figures]
            shown.add_row(outcome.backend, one.measure, one.who, *numbers, Text(word, style))
    return shown
