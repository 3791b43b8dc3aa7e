"""The uncontended pair on a consensus store, blocking and asyncio, beside raw calls and libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.suites.consensus.stores import HOLDFAST, TAGS, Store
from bench.suites.targets import named, ratio, to_limit

__all__ = ["suite"]

ROUNDS, COUNT = 9, 100


def suite(store: Store) -> Suite:
    def measure(progress: Callable[[str], None]) -> Sequence[Result]:
        with store.start() as group:
            field = Field(group.url, progress)
            blocking, asynchronous = store.targets
            entries = [store.pair, HOLDFAST, *store.drivers, *store.libraries]
            figures = field.take_turns(entries, "pairs", rounds=ROUNDS, count=COUNT)
            notes = [*to_limit(figures, blocking), *to_others(figures), *field.notes()]
            first = Result(f"Uncontended pair on {store.name}://, blocking", figures, notes)

            entries = [store.pair, HOLDFAST, *store.asynchronous]
            figures = field.take_turns(entries, "tasks", rounds=ROUNDS, count=COUNT, options={"tasks": 1})
            notes = [*to_limit(figures, asynchronous), *to_others(figures), *field.notes()]
            second = Result(f"Uncontended pair on {store.name}://, asyncio, one task", figures, notes)
            return [first, second]

    about = f"acquire-release pair on {store.name}, beside the raw calls, drivers and libraries"
    return Suite(store.name, about, measure, TAGS)


def to_others(figures: Sequence[Figure]) -> list[str]:
    ours = named(figures, HOLDFAST.label)
    peers = [figure for figure in figures if figure.role == "peer"]
    return [note for peer in peers for note in ratio(f"holdfast to {peer.name}", ours, peer, None)]
