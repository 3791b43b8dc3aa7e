"""The uncontended pair on a consensus store, blocking and asyncio, beside raw calls and libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.children import Field
from bench.measure import Figure, Result, Suite
from bench.suites.consensus.stores import FENCELOCK, TAGS, Store
from bench.suites.targets import named, ratio, to_limit
from bench.verdict import Verdict

__all__ = ["suite"]

ROUNDS, COUNT = 9, 100


def suite(store: Store) -> Suite:
    def measure(progress: Callable[[str], None]) -> Sequence[Result]:
        with store.start() as group:
            field = Field(group.url, progress)
            blocking, asynchronous = store.targets
            entries = [store.pair, FENCELOCK, *store.drivers, *store.libraries]
            figures = field.take_turns(entries, "pairs", rounds=ROUNDS, count=COUNT)
            first = result(store, field, figures, "blocking", blocking)

            entries = [store.pair, FENCELOCK, *store.asynchronous]
            figures = field.take_turns(entries, "tasks", rounds=ROUNDS, count=COUNT, options={"tasks": 1})
            return [first, result(store, field, figures, "asyncio, one task", asynchronous)]

    about = f"acquire-release pair on {store.name}, beside the raw calls, drivers and libraries"
    return Suite(store.name, about, measure, TAGS)


def result(store: Store, field: Field, figures: Sequence[Figure], flavour: str, target: float) -> Result:
    return Result(
        f"Uncontended pair on {store.name}://, {flavour}",
        figures,
        field.notes(),
        verdicts=[*to_limit(figures, target), *to_others(figures)],
        key=f"{store.name}.{flavour.partition(',')[0]}",
    )


def to_others(figures: Sequence[Figure]) -> list[Verdict]:
    ours = named(figures, FENCELOCK.label)
    others = [figure for figure in figures if figure.role in {"peer", "beside"}]
    return [said for other in others for said in ratio(f"fencelock to {other.name}", ours, other, None)]
