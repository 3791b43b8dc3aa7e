"""One lock on a consensus store, an empty section, 2, 8 and 32 processes: handoffs, and fairness.

What a handoff and a share are is told in `bench.races`. Entries of the server's log are counted by the
server, connecting included, for each handoff.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.peers import Entry
from bench.races import SIZES, Race, figures_of, races, series
from bench.suites.consensus.stores import FENCELOCK, TAGS, Store
from bench.suites.targets import named, parts_of_limit, times_faster
from bench.verdict import Verdict

__all__ = ["suite"]

SECONDS, HEAT = 1.0, 0.3
ROUNDS = 9


def suite(store: Store) -> Suite:
    def measure(progress: Callable[[str], None]) -> Sequence[Result]:
        with store.start() as group:
            field = Field(group.url, progress)
            raced = races(
                field,
                [*store.racing, FENCELOCK],
                "processes",
                SIZES,
                rounds=ROUNDS,
                seconds=SECONDS,
                heat=HEAT,
                count=lambda: {"entries": store.logged(group)},
            )
            return [_result(store, field, size, seen) for size, seen in raced]

    about = f"one lock on {store.name}, 2, 8 and 32 processes, beside the raw calls and libraries"
    return Suite(f"{store.name}-contended", about, measure, TAGS)


def _result(store: Store, field: Field, size: int, seen: Mapping[Entry, Sequence[Race]]) -> Result:
    figures = figures_of(seen)
    notes = [
        f"{one.name}: smallest share {one.extra['share']:.2f}, {one.extra['entries']:.1f} entries of the log "
        f"a handoff, {one.extra['acquisitions']:,.0f} acquisitions/s"
        for one in figures
    ]
    return Result(
        f"Handoffs among {size} processes on {store.name}://",
        figures,
        [*notes, *field.missing()],
        rate=True,
        verdicts=[*parts_of_limit(figures), *to_rival(store, figures, size)],
        key=f"{store.name}.processes-{size}",
        series=series(f"{store.name}://", "processes", size),
    )


def to_rival(store: Store, figures: Sequence[Figure], size: int) -> list[Verdict]:
    """Say how many times the rival's handoffs there are; the target is for the most contenders."""
    if store.rival is None or size != SIZES[-1]:
        return []
    name, target = store.rival
    ours, theirs = named(figures, FENCELOCK.label), named(figures, name)
    return times_faster(f"times the handoffs of {name}", ours, theirs, target, "rival")
