"""The token protocol of the quorum under a seeded scheduler: no token twice, none out of order.

FENCELOCK_SEEDS is how many seeds are run. A failing seed is replayed by `simulate(seed)` of
`fencelock.testing.simulation.quorum`.
"""

from __future__ import annotations

import os

import pytest

from fencelock.testing.simulation.quorum import MUTANTS, Mutant, simulate

SEEDS = int(os.environ.get("FENCELOCK_SEEDS", "8000"))
CHUNKS = 4
MOST_SEEDS_FOR_A_MUTANT = 10_000


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_token_is_given_twice_or_out_of_order(chunk: int) -> None:
    failed = []
    grants = wiped = readmitted = 0
    for seed in range(chunk, SEEDS, CHUNKS):
        outcome = simulate(seed)
        grants += len(outcome.grants)
        wiped += outcome.wiped
        readmitted += outcome.readmitted
        if outcome.duplicates or outcome.disorders:
            failed.append(outcome)
    assert not failed, "\n\n".join(map(str, failed[:5]))
    assert grants > SEEDS / CHUNKS, "a simulation in which nothing is granted shows nothing"
    assert wiped > readmitted > SEEDS / CHUNKS / 2, "no node came back after it had lost its memory"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(mutant: Mutant) -> None:
    for seed in range(MOST_SEEDS_FOR_A_MUTANT):
        outcome = simulate(seed, mutant)
        if outcome.duplicates or outcome.disorders:
            assert f"simulate({seed}, mutant {mutant.name!r})" in str(outcome)
            return
    pytest.fail(f"{mutant.name} survived {MOST_SEEDS_FOR_A_MUTANT} seeds")


def test_same_seed_same_grants() -> None:
    for seed in range(100):
        assert simulate(seed) == simulate(seed)
