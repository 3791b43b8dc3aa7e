"""The laws, for every type, its deltas and its encodings."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencelock import ConfigurationError
from fencelock.crdt import Crdt, GSet, ORSet
from fencelock.crdt.codec import TYPES

from .makers import KINDS, REPLICAS, clock_of, history, step, three

EXAMPLES = settings(max_examples=60)
every_type = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def test_no_type_is_left_out() -> None:
    assert set(TYPES.values()) == set(KINDS)
    assert {kind.__name__ for kind in KINDS} == {
        *("GCounter", "PNCounter", "GSet", "TwoPhaseSet", "ORSet", "LWWRegister", "LWWElementSet"),
        *("MVRegister", "ORMap", "VectorClock"),
    }


@every_type
@EXAMPLES
@given(data=st.data())
def test_merge_obeys_the_laws(kind: type[Crdt], data: st.DataObject) -> None:
    one, two, other = data.draw(three(kind))
    assert one | two == two | one
    assert (one | two) | other == one | (two | other)
    assert one | one == one
    assert one | kind() == one == kind() | one
    assert (one | two).includes(one)
    assert (one | two).includes(two)


@every_type
@EXAMPLES
@given(data=st.data())
def test_what_python_finds_equal_is_encoded_alike(kind: type[Crdt], data: st.DataObject) -> None:
    one, two, _ = data.draw(three(kind))
    left, right = one | two, two | one
    assert left.to_bytes() == right.to_bytes()
    assert left.to_json() == right.to_json()
    assert hash(left) == hash(right)
    assert (one == two) == (one.to_bytes() == two.to_bytes())


@every_type
@EXAMPLES
@given(data=st.data())
def test_encodings_give_back_the_value(kind: type[Crdt], data: st.DataObject) -> None:
    for one in data.draw(three(kind)):
        for back in (
            kind.from_bytes(one.to_bytes()),
            Crdt.from_bytes(one.to_bytes()),
            kind.from_json(one.to_json()),
            Crdt.from_json(one.to_json().encode()),
            pickle.loads(pickle.dumps(one)),
        ):
            assert type(back) is kind
            assert back == one
            assert back.to_bytes() == one.to_bytes()


@every_type
@EXAMPLES
@given(data=st.data())
def test_merging_decoded_values_is_merging_the_values(kind: type[Crdt], data: st.DataObject) -> None:
    one, two, _ = data.draw(three(kind))
    assert kind.from_bytes(one.to_bytes()) | kind.from_json(two.to_json()) == one | two


@every_type
@EXAMPLES
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 20))
def test_a_delta_carries_its_change_and_only_grows_the_value(kind: type[Crdt], seed: int, steps: int) -> None:
    states, _ = history(kind, seed, 3, steps)
    rng = random.Random(seed)
    before: Any = states[0]
    kept = before.to_bytes()
    after, delta = step(rng, before, REPLICAS[0], clock_of(rng, REPLICAS[0]))
    assert before.merge(delta) == after
    assert after.includes(before)
    assert after.includes(delta)
    assert before.to_bytes() == kept, "the old value was changed"


@every_type
@EXAMPLES
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25), order=st.randoms(use_true_random=False))
def test_deltas_in_any_order_give_the_state(kind: type[Crdt], seed: int, steps: int, order: Any) -> None:
    states, deltas = history(kind, seed, 3, steps)
    order.shuffle(deltas)
    whole = kind()
    for delta in deltas + deltas[:3]:
        whole = whole.merge(delta)
    merged = kind()
    for state in states:
        merged = merged.merge(state)
    assert whole == merged


@every_type
def test_only_values_of_one_type_merge(kind: type[Crdt]) -> None:
    other = GSet() if kind is not GSet else ORSet()
    with pytest.raises(ConfigurationError, match="only values of one type merge"):
        kind().merge(other)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^other=None is not"):
        kind() | None  # type: ignore[operator]
    assert kind() != other
    assert kind() != "text"
