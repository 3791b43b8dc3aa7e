"""The picture on a terminal, and the end of the story.

Every frame has the same number of lines and no line is longer than the terminal is wide, so nothing
jumps or wraps. Colour never stands alone: what it says is also said by a word or a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fencelock.cli.story.picture import Cell, Line, Picture, Row, short
from fencelock.cli.story.verdict import Verdict
from fencelock.cli.story.worker import WITH, WITHOUT

__all__ = ["LOWEST", "NARROWEST", "curtain", "frame"]

NARROWEST, LOWEST = 72, 18
WIDEST = 110
CELL = 6
TITLES = {WITHOUT: "act 1 of 2: without locks", WITH: "act 2 of 2: with fencelock"}
MOODS = {"plain": "dim", "bad": "bold red", "good": "bold green", "note": "cyan"}
STATES = {
    "starts": ("starts", "dim"),
    "looks": ("looks for a job", "dim"),
    "works": ("job {job:02d}", "default"),
    "waits": ("waits for job {job:02d}", "yellow"),
    "killed": ("killed in job {job:02d}", "bold red"),
    "stopped": ("asleep in job {job:02d}", "bold magenta"),
    "ended": ("done", "dim"),
}
LEGEND = (
    ("green", "done once"),
    ("bold red", "done again"),
    ("yellow", "at work"),
    ("dim", "open"),
)


def frame(picture: Picture, width: int, height: int) -> Panel:
    """Return the picture as a frame of this size or smaller."""
    width = min(width, WIDEST)
    inside = width - 4
    grid = _jobs(picture.jobs.items(), inside)
    fixed = 2 + 1 + len(picture.rows) + 1 + len(grid) + 1 + 1
    room = max(3, min(10, height - fixed - 1))
    parts: list[RenderableType] = [
        _workers(picture, inside),
        Text(),
        *grid,
        _legend(),
        Text(),
        *_log(picture.lines, room, inside),
    ]
    return Panel(
        Group(*parts),
        title=Text.assemble(("fencelock demo", "bold"), "  ", TITLES[picture.act]),
        title_align="left",
        subtitle=Text(f"{picture.elapsed:.0f}s", style="dim"),
        subtitle_align="right",
        border_style="blue",
        width=width,
    )


def _workers(picture: Picture, inside: int) -> Table:
    bars = (inside - 6 - 19 - 8 - 5 - 5 * 2) // 2
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", width=inside)
    for heading, size in (("worker", 6), ("doing", 19), ("", bars), ("token", 8), ("", bars), ("", 5)):
        table.add_column(heading, width=size, no_wrap=True, overflow="ellipsis")
    table.columns[4].header = "lease" if picture.act == WITH else ""
    table.columns[3].header = "token" if picture.act == WITH else ""
    for row in picture.rows:
        table.add_row(*_worker(row, picture, bars))
    return table


def _worker(row: Row, picture: Picture, bars: int) -> list[Text]:
    phrase, style = STATES[row.state]
    doing = Text(phrase.format(job=row.job or 0), style=style)
    work = _bar(row.progress, bars, "cyan") if row.progress is not None else Text()
    token = Text(short(row.token) if row.token else "", style="cyan")
    name = Text(row.name, style="bold")
    if row.left is None:
        over = row.state in {"killed", "stopped"} and picture.act == WITH
        return [name, doing, work, token, Text("run out" if over else "", style="red"), Text()]
    part = min(1.0, row.left / picture.ttl)
    colour = "green" if part > 0.5 else "yellow" if part > 0.25 else "red"
    return [name, doing, work, token, _bar(part, bars, colour), Text(f"{row.left:.1f}s", style=colour)]


def _bar(part: float, size: int, style: str) -> Text:
    full = round(part * size)
    return Text.assemble(("━" * full, style), ("─" * (size - full), "bright_black"))


def _jobs(jobs: Iterable[tuple[int, Cell]], inside: int) -> list[Text]:
    cells = [_cell(job, cell) for job, cell in jobs]
    columns = inside // CELL
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    return [Text.assemble(*row) for row in rows]


def _cell(job: int, cell: Cell) -> Text:
    if cell.effects > 1:
        label, style = f"{job:02d}×{cell.effects}", "bold white on red"
    elif cell.effects == 1:
        label, style = f"{job:02d} ✓", "black on green"
    elif cell.busy:
        label, style = f"{job:02d} …", "black on yellow"
    else:
        label, style = f"{job:02d}", "white on bright_black"
    return Text.assemble((f" {label:<4}", style), " ")


def _legend() -> Text:
    return Text("   ").join(Text.assemble(("■ ", style), (text, "dim")) for style, text in LEGEND)


def _log(lines: Sequence[Line], room: int, inside: int) -> list[Text]:
    shown = [_log_line(line, inside) for line in lines[-room:]]
    return [*shown, *(Text() for _ in range(room - len(shown)))]


def _log_line(line: Line, inside: int) -> Text:
    text = Text.assemble((f"{line.at:5.1f}s  ", "dim"), (line.text, MOODS[line.mood]))
    text.truncate(inside, overflow="ellipsis")
    return text


def curtain(console: Console, verdict: Verdict) -> None:
    """Show the two acts side by side."""
    inside = min(console.width, WIDEST) - 4
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("the ledger says", no_wrap=True)
    table.add_column("without locks", justify="right", no_wrap=True)
    table.add_column("with fencelock", justify="right", no_wrap=True)
    for text, without, with_locks in verdict.table:
        good = verdict.faults == [] and text.startswith(("effects", "jobs done exactly"))
        bad = text.startswith("jobs done more") and without != "0"
        table.add_row(
            text,
            Text(without, style="bold red" if bad else ""),
            Text(with_locks, style="bold green" if good else ""),
        )
    console.print()
    console.print(table)
    console.print()
    for act, title in ((WITHOUT, "without locks"), (WITH, "with fencelock")):
        console.print(Text(title, style="dim"))
        cells = {job: Cell(count, False) for job, count in sorted(verdict.counts[act].items())}
        for row in _jobs(cells.items(), inside):
            console.print(row)
    console.print()
