"""The live view: which run it is, and what has happened so far."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.text import Text

from chaos.run import Plan
from chaos.screen import Screen
from chaos.stage import Stage
from chaos.table import STYLES, cell, table
from chaos.tally import Tally
from chaos.verdict import Outcome

__all__ = ["View"]


class View(Screen):
    """On a terminal a table that grows; elsewhere a line for each run."""

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(console)
        self.total = total
        self.outcomes: list[Outcome] = []

    def begin(self, plan: Plan) -> None:
        """The next run."""
        self.plan, self._began = plan, time.monotonic()

    def __call__(self, phase: str, stage: Stage, tally: Tally) -> None:
        """Something has happened."""
        struck = max(stage.struck, stage.done[self.plan.fault])
        seconds = time.monotonic() - self._began
        words = (
            f"{len(self.outcomes) + 1}/{self.total} {self.plan.backend} × {self.plan.fault}: {phase}, "
            f"{seconds:.0f}s, {struck} injections, {tally.kinds['granted']} grants, "
            f"{tally.kinds['lost']} lost, {tally.kinds['failed']} failed"
        )
        if self.console.is_terminal:
            self._live.update(Group(table(self.outcomes), Text(words)) if self.outcomes else Text(words))

    def end(self, outcome: Outcome) -> None:
        """The run is over."""
        self.outcomes.append(outcome)
        if not self.console.is_terminal and outcome.status != "does not apply":
            words = cell(outcome).replace("\n", ", ")
            line = f"{outcome.backend} × {outcome.fault}: {outcome.status}: {words} ({outcome.seconds:.0f}s)"
            self.console.print(Text(line, STYLES[outcome.status]), soft_wrap=True)
