"""Whether the promise held: read from the ledger, whatever the story meant to show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fencelock.cli.story.ledger import Ledger
from fencelock.cli.story.troubles import Hit
from fencelock.cli.story.worker import WITH, WITHOUT

__all__ = ["Verdict", "judge"]


class Verdict(NamedTuple):
    """`table` compares the two acts; `faults` is empty if the promise held."""

    counts: dict[int, Counter[int]]
    table: Sequence[tuple[str, str, str]]
    faults: Sequence[str]


def judge(ledger: Ledger, jobs: int, killed: Hit | None, stopped: Hit | None) -> Verdict:
    """Compare the two acts and say what is wrong with them, if anything."""
    counts = {act: Counter(effect.job for effect in ledger.effects(act)) for act in (WITHOUT, WITH)}
    refused = len(ledger.refusals(WITH))

    def both(
        text: str, count: Counter[int], other: Counter[int], low: int, high: float
    ) -> tuple[str, str, str]:
        found = [sum(low <= c[job] <= high for job in range(1, jobs + 1)) for c in (count, other)]
        return text, str(found[0]), str(found[1])

    a, b = counts[WITHOUT], counts[WITH]
    table = [
        ("jobs", str(jobs), str(jobs)),
        ("effects in the ledger", str(a.total()), str(b.total())),
        both("jobs done exactly once", a, b, 1, 1),
        both("jobs done more than once", a, b, 2, float("inf")),
        both("jobs never done", a, b, 0, 0),
        ("workers killed at work", "0", str(int(killed is not None))),
        ("workers that slept too long", "0", str(int(stopped is not None))),
        ("stale writes refused", "-", str(refused)),
    ]
    return Verdict(counts, table, [*_faults(ledger, jobs, counts, killed, stopped)])


def _faults(
    ledger: Ledger, jobs: int, counts: dict[int, Counter[int]], killed: Hit | None, stopped: Hit | None
) -> list[str]:
    faults = []
    if max(counts[WITHOUT].values(), default=0) < 2:
        faults.append("the run without locks shows no duplicate: nothing was proved, try another --seed")
    wrong = [job for job in range(1, jobs + 1) if counts[WITH][job] != 1]
    if wrong:
        faults.append(f"with locks, jobs were not done exactly once: {wrong}")
    for hit, what in ((killed, "killed"), (stopped, "stopped")):
        if hit is None:
            faults.append(f"no worker was {what} in the middle of a job")
        elif not _taken_over(ledger, hit):
            faults.append(
                f"job {hit.job:02d} of {hit.worker}, which was {what}, was not done under a newer token"
            )
    if stopped is not None and not _refused(ledger, stopped):
        faults.append(f"the stale write of {stopped.worker} was not refused")
    return faults


def _taken_over(ledger: Ledger, hit: Hit) -> bool:
    return any(
        effect.job == hit.job and effect.worker != hit.worker and (effect.token or 0) > hit.token
        for effect in ledger.effects(WITH)
    )


def _refused(ledger: Ledger, hit: Hit) -> bool:
    return any(
        (refusal.job, refusal.worker, refusal.token) == hit[1:2] + hit[:1] + hit[2:]
        and refusal.newest > hit.token
        for refusal in ledger.refusals(WITH)
    )
