"""What each type means, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fencelock import ConfigurationError
from fencelock.crdt import (
    Change,
    ClockAhead,
    Crdt,
    GCounter,
    GSet,
    HybridLogicalClock,
    LWWElementSet,
    LWWRegister,
    MVRegister,
    ORMap,
    ORSet,
    PNCounter,
    TwoPhaseSet,
)


def at(replica: str, seconds: float) -> HybridLogicalClock:
    return HybridLogicalClock(replica, time=lambda: seconds)


# Counters and plain sets --------------------------------------------------------------------


def test_counters_count_each_increment_once() -> None:
    base, _ = PNCounter().increment("a", 10)
    left, _ = base.decrement("a", 3)
    right, _ = base.decrement("b", 4)
    assert (left | right | left).value == 3
    assert GCounter().increment("a", 0).value == GCounter()


def test_a_two_phase_set_forgets_for_good() -> None:
    one, _ = TwoPhaseSet().add("x", "y")
    two, gone = one.remove("x", "unknown")
    assert two.elements == {"y"}
    assert (one | gone).elements == {"y"}
    assert list(two) == ["y"]
    assert "x" not in two
    assert len(two) == 1
    with pytest.raises(
        ConfigurationError, match="element='x' was removed, and a TwoPhaseSet takes nothing back"
    ):
        two.add("z", "x")


# ORSet --------------------------------------------------------------------------------------


def test_an_add_wins_over_a_remove_that_has_not_seen_it() -> None:
    base, _ = ORSet().add("a", "x")
    removed, _ = base.remove("x")
    renewed, _ = base.add("b", "x")
    assert "x" in removed | renewed
    seen, _ = (base | renewed).remove("x")
    assert "x" not in seen | renewed | base


def test_an_element_comes_back_after_its_removal() -> None:
    value, _ = ORSet().add("a", "x")
    value, _ = value.remove("x")
    assert len(value) == 0
    value, _ = value.add("a", "x")
    assert sorted(value) == ["x"]


def test_state_is_proportional_to_what_is_live() -> None:
    """100,000 come and 100,000 go; what is left is as large as if they had never been."""
    rng = random.Random(1)
    value, live = ORSet(), []
    for number in range(100_000):
        value, _ = value.add(rng.choice(("anna", "ben")), number)
        live.append(number)
        if len(live) > 50:
            value, _ = value.remove(live.pop(rng.randrange(len(live))))
    assert value.elements == set(live)
    assert len(value.to_bytes()) < 12 * len(live) + 60
    value, _ = value.remove(*live)
    assert len(value.to_bytes()) < 60


def test_an_element_that_is_renewed_again_and_again_takes_no_more_room() -> None:
    value = ORSet()
    for number in range(500):
        value, _ = value.add(("anna", "ben")[number % 2], "x")
    assert len(value.to_bytes()) < 60
    gone, _ = value.remove("x")
    assert not gone.elements, "an older add of it came to light again"


def test_a_removal_reaches_who_heard_of_its_add_before_an_earlier_one() -> None:
    """What was removed lies above a gap in what its remover has seen."""
    first, _ = ORSet().add("a", "one")
    second, delta = first.add("a", "two")
    third, last = second.add("a", "three")
    remover = (first | last).remove("three").value
    assert remover._context.cloud, "there is no gap: no test"
    assert (third | remover).elements == (remover | third).elements == {"one", "two"}
    assert (remover | delta).elements == {"one", "two"}


def test_many_at_once_leave_nothing_either() -> None:
    value, _ = ORSet().add("anna", *range(100_000))
    assert len(value) == 100_000
    value, _ = value.remove(*range(100_000))
    assert len(value.to_bytes()) < 60


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_delta_is_proportional_to_the_change(size: int) -> None:
    value, _ = ORSet().add("anna", *range(size))
    for change in (value.add("ben", "new"), value.add("anna", 1), value.remove(2, 3)):
        assert len(change.delta.to_bytes()) < 60
    clock = HybridLogicalClock("anna")
    known, _ = LWWElementSet().add(clock, *range(size))
    assert len(known.remove(clock, 5).delta.to_bytes()) < 60
    entries = ORMap()
    for number in range(size // 10):
        entries, _ = entries.update("anna", number, GCounter, lambda c: c.increment("anna"))
    changed = entries.update("ben", 0, GCounter, lambda c: c.increment("ben"))
    assert len(changed.delta.to_bytes()) < 80
    assert len(entries.remove(0).delta.to_bytes()) < 60
    assert len(GSet().add(*range(size)).value.add("new").delta.to_bytes()) < 60


def test_a_dot_that_was_used_twice_is_settled_alike_everywhere() -> None:
    """A replica restored from a copy: wrong, but all must agree on what comes of it."""
    one, _ = ORSet().add("a", "x")
    two, _ = ORSet().add("a", "y")
    assert one | two == two | one
    assert (one | two) | one == one | (two | one)


# Registers ----------------------------------------------------------------------------------


def test_mv_keeps_what_was_set_apart_and_a_set_replaces_what_it_saw() -> None:
    base, _ = MVRegister().set("a", 0)
    left, _ = base.set("a", True)
    right, _ = base.set("b", 1)
    both = left | right
    assert sorted(map(repr, both.values)) == ["1", "True"]
    assert MVRegister().values == ()
    assert both.set("b", "done").value.values == ("done",)
    same, _ = base.set("b", True)
    assert (left | same).values == (True,)


def test_lww_drops_a_later_write_of_a_slow_clock_in_silence_where_mv_keeps_it() -> None:
    fast, slow = at("fast", 1030.0), at("slow", 1000.0)
    first, _ = LWWRegister().set(fast, "old")
    second, _ = LWWRegister().set(slow, "new")  # later in fact
    assert (first | second).value == "old"
    kept = MVRegister().set("fast", "old")[0] | MVRegister().set("slow", "new")[0]
    assert set(kept.values) == {"old", "new"}


def test_lww_never_loses_against_what_it_has_seen() -> None:
    seen, _ = LWWRegister().set(at("fast", 1030.0), "old")
    after, _ = seen.set(at("slow", 1000.0), "new")
    assert (seen | after).value == "new"
    assert after.stamp is not None
    assert after.latest() == after.stamp


def test_lww_with_one_timestamp_twice_is_settled_alike_everywhere() -> None:
    """A replica restored from a copy: wrong, but all must agree on what comes of it."""
    one, _ = LWWRegister().set(at("a", 1000.0), "red")
    two, _ = LWWRegister().set(at("a", 1000.0), "blue")
    assert one.stamp == two.stamp
    assert one | two == two | one


def test_lww_refuses_to_write_after_a_clock_that_is_far_ahead() -> None:
    seen, _ = LWWRegister().set(at("wrong", 9999.0), "old")
    with pytest.raises(ClockAhead, match=r"a timestamp of 'wrong' is 9e\+03s ahead"):
        seen.set(at("right", 1000.0), "new")
    known, _ = LWWElementSet().add(at("wrong", 9999.0), "x")
    with pytest.raises(ClockAhead):
        known.remove(at("right", 1000.0), "x")


def test_lww_set_takes_the_latest_change_of_each_element() -> None:
    early, late = at("a", 10.0), at("b", 11.0)
    added, _ = LWWElementSet().add(early, "x", "y")
    removed, _ = LWWElementSet().remove(late, "x")
    merged = added | removed
    assert merged.elements == {"y"}
    assert "x" not in merged
    assert len(merged) == 1
    assert merged.add(early, "x").value.elements == {"x", "y"}


# ORMap --------------------------------------------------------------------------------------


def up(replica: str, by: int = 1) -> Callable[[GCounter], Any]:
    return lambda counter: counter.increment(replica, by)


def test_a_removed_counter_starts_anew_and_what_others_did_meanwhile_survives() -> None:
    base, _ = ORMap().update("a", "n", GCounter, up("a", 5))
    base, _ = base.update("b", "n", GCounter, up("b", 1))
    gone, _ = base.remove("n")
    assert "n" not in gone
    assert gone.get("n", GCounter).value == 0
    meanwhile, _ = base.update("b", "n", GCounter, up("b", 2))
    assert (gone | meanwhile).get("n", GCounter).value == 3  # all that b contributed, nothing of a
    anew, _ = gone.update("a", "n", GCounter, up("a", 1))
    assert (anew | base).get("n", GCounter).value == 1
    assert (anew | meanwhile).get("n", GCounter).value == 4


def test_a_second_change_of_an_entry_keeps_the_first_and_takes_no_more_room() -> None:
    value, _ = ORMap().update("a", "s", GSet, lambda s: s.add("x"))
    value, delta = value.update("a", "s", GSet, lambda s: s.add("y"))
    assert value.get("s", GSet).elements == ORMap().merge(delta).get("s", GSet).elements == {"x", "y"}
    counted = ORMap()
    for _ in range(500):
        counted, _ = counted.update("a", "n", GCounter, up("a"))
    assert counted.get("n", GCounter).value == 500
    assert len(counted.to_bytes()) < 60


def test_a_removed_set_starts_anew() -> None:
    base, _ = ORMap().update("a", "s", ORSet, lambda s: s.add("a", "old"))
    gone, _ = base.remove("s", ORSet)
    anew, _ = gone.update("a", "s", ORSet, lambda s: s.add("a", "new"))
    assert (anew | base).get("s", ORSet).elements == {"new"}
    meanwhile, _ = base.update("b", "s", ORSet, lambda s: s.add("b", "mine"))
    assert (anew | meanwhile).get("s", ORSet).elements == {"new", "mine"}


def test_a_key_of_two_types_is_two_entries() -> None:
    left, _ = ORMap().update("a", "k", GCounter, up("a"))
    right, _ = ORMap().update("b", "k", ORSet, lambda s: s.add("b", "x"))
    both = left | right
    assert both.keys() == {("k", GCounter), ("k", ORSet)}
    assert list(both) == ["k"]
    assert len(both) == 2
    assert both.remove("k", GCounter).value.keys() == {("k", ORSet)}
    assert len(both.remove("k").value) == 0


def test_a_part_of_another_map_takes_nothing_else_along() -> None:
    """It has seen all of that map: taken over as it is, other entries would count as removed."""
    theirs, _ = ORMap().update("b", "other", GCounter, up("b", 7))
    theirs, _ = theirs.update("b", "tags", ORSet, lambda s: s.add("b", "x"))
    part = theirs.get("tags", ORSet)
    mine, _ = ORMap().update("a", "tags", ORSet, lambda s: s.add("a", "y"))
    mine, _ = mine.update("a", "tags", ORSet, lambda s: Change(s.merge(part), part))
    assert mine.get("tags", ORSet).elements == {"x", "y"}
    assert (mine | theirs).get("other", GCounter).value == 7


def test_maps_nest_and_only_so_deep() -> None:
    def inner(replica: str, depth: int) -> Callable[[Any], Any]:
        if not depth:
            return up(replica)
        kind: Any = ORMap if depth > 1 else GCounter
        return lambda value: value.update(replica, "k", kind, inner(replica, depth - 1))

    left, right = inner("a", 8)(ORMap())[0], inner("b", 8)(ORMap())[0]
    value: Any = left | right
    assert ORMap.from_json(value.to_json()) == value
    for _ in range(7):
        value = value.get("k", ORMap)
    assert value.get("k", GCounter).value == 2
    with pytest.raises(ConfigurationError, match="nested too deeply: 8 levels"):
        inner("a", 9)(ORMap())


def test_the_latest_timestamp_of_a_map_is_that_of_its_parts() -> None:
    clock = at("a", 50.0)
    value, _ = ORMap().update("a", "n", GCounter, up("a"))
    assert value.latest() is None
    value, _ = value.update("a", "r", LWWRegister, lambda r: r.set(clock, 1))
    stamp = value.latest()
    assert stamp is not None
    assert stamp.wall == 50_000_000


# Bad input ----------------------------------------------------------------------------------

BAD_ELEMENTS = [None, True, 1.0, ["x"], {"x"}, 2**63, "\ud800", ("x", None), b"x" * (2**20), object()]


@pytest.mark.parametrize("element", BAD_ELEMENTS, ids=lambda value: repr(value)[:20])
def test_what_no_set_holds(element: Any) -> None:
    clock = HybridLogicalClock("a")
    for call in (
        lambda: GSet().add("x", element),
        lambda: TwoPhaseSet().add(element),
        lambda: TwoPhaseSet().remove(element),
        lambda: ORSet().add("a", element),
        lambda: ORSet().remove(element),
        lambda: LWWElementSet().add(clock, element),
        lambda: ORMap().update("a", element, GCounter, up("a")),
        lambda: ORMap().get(element, GCounter),
        lambda: ORMap().remove(element),
    ):
        with pytest.raises(ConfigurationError):
            call()


@pytest.mark.parametrize("value", [[1], {"a": 1}, float("nan"), float("inf"), 2**63, "\ud800", b"x" * 2**20])
def test_what_no_register_holds(value: Any) -> None:
    with pytest.raises(ConfigurationError):
        MVRegister().set("a", value)
    with pytest.raises(ConfigurationError):
        LWWRegister().set(HybridLogicalClock("a"), value)


@pytest.mark.parametrize("replica", ["", None, 7, "a\0b", "x" * 513])
def test_bad_replicas(replica: Any) -> None:
    for call in (
        lambda: GCounter().increment(replica),
        lambda: PNCounter().decrement(replica),
        lambda: ORSet().add(replica, "x"),
        lambda: MVRegister().set(replica, 1),
        lambda: ORMap().update(replica, "k", GCounter, up("a")),
        lambda: HybridLogicalClock(replica),
    ):
        with pytest.raises(ConfigurationError, match="replica="):
            call()


@pytest.mark.parametrize("by", [-1, 1.5, "1", True, 2**63, None])
def test_bad_increments(by: Any) -> None:
    with pytest.raises(ConfigurationError, match="by="):
        GCounter().increment("a", by)
    with pytest.raises(ConfigurationError, match="by="):
        PNCounter().decrement("a", by)


def test_a_count_has_an_end() -> None:
    full, _ = GCounter().increment("a", 2**63 - 1)
    with pytest.raises(ConfigurationError, match="out of range"):
        full.increment("a")
    assert full.increment("b").value.value == 2**63


def test_bad_kinds_changes_and_clocks() -> None:
    for kind in (Crdt, int, "GCounter", None):
        with pytest.raises(ConfigurationError, match="is not a type of CRDT"):
            ORMap().get("k", kind)  # type: ignore[type-var]
    for made in (None, 7, GCounter(), ORSet().add("a", "x")):
        with pytest.raises(ConfigurationError, match="return what a mutator of GCounter returns"):
            ORMap().update("a", "k", GCounter, lambda _, made=made: made)  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match="is not a HybridLogicalClock"):
        LWWRegister().set("a", 1)  # type: ignore[arg-type]
