"""What is declared for a fault is allowed there, for a cause and up to a limit, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from chaos.faults import FAULTS
from chaos.faults.clocks import Clock
from chaos.stage import Cause
from chaos.verdict import FIELDS, RULES, Outcome, declared, judge, total

from fencelock import Guarantees
from fencelock.backends.etcd import EtcdBackend
from fencelock.backends.etcd.doctor import judge_version
from fencelock.backends.redis import RedisBackend
from fencelock.backends.redis.sentinel import SentinelBackend
from fencelock.findings import FORGETS_AT_RESTART, LASTING, Finding, refined
from fencelock.guarantees import VALUES
from fencelock.testing import History, Rule

ETCD = EtcdBackend.from_url("etcd://a:2379").guarantees
REDIS = RedisBackend.from_url("redis://a").guarantees
SENTINEL = SentinelBackend.from_url("redis+sentinel://a/s").guarantees
LANES = 4
JUMP = [Cause(10.0, 10.1)]
STRICTEST: dict[str, Any] = dict.fromkeys(("clock", "failover", "restart"), "nothing")


# What is declared -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("field", STRICTEST)
def test_one_field_decides_and_no_other(fault: str, field: str) -> None:
    for value in VALUES[field]:
        changed: dict[str, Any] = {**STRICTEST, field: value}
        decides = FIELDS.get(fault) == field
        assert set(declared(fault, replace(REDIS, **changed))) == (set(RULES[value]) if decides else set())


def test_every_value_has_a_meaning_and_only_tokens_lost_excuse_tokens() -> None:
    assert {value for field in FIELDS.values() for value in VALUES[field]} == set(RULES)
    assert set(FIELDS) <= set(FAULTS)
    for value, rules in RULES.items():
        assert set(rules) <= set(get_args(Rule))
        assert bool({"unique-token", "token-order", "guard"} & {*rules}) == value.endswith("tokens")


@pytest.mark.parametrize("fault", FAULTS)
def test_words_declare_nothing(fault: str) -> None:
    for promised in (REDIS, SENTINEL, ETCD):
        for caveats in (
            (),
            ("nothing", "loses its data", "a leader that stood still and comes back may end leases"),
        ):
            assert declared(fault, replace(promised, caveats=caveats)) == declared(fault, promised)


def test_a_leader_that_comes_back_may_break_exclusion_where_its_version_does() -> None:
    assert declared("leader", ETCD) == {}
    for version, rules in (
        ("3.4.23", {"exclusion"}),
        ("3.4.31", set()),
        ("3.5.12", {"exclusion"}),
        ("3.5.13", set()),
    ):
        here = refined(ETCD, judge_version("a:2379", version))
        assert set(declared("leader", here)) == rules, version
        assert declared("partition", here) == {}


def test_a_server_that_forgets_nothing_is_held_to_it() -> None:
    def restarted(*refines: tuple[str, str]) -> set[str]:
        finding = Finding("ok", "persistence", "", refines=refines)
        return {
            word for fault in ("restart", "powerloss") for word in declared(fault, refined(REDIS, [finding]))
        }

    assert restarted() == {"exclusion"}
    assert restarted(*FORGETS_AT_RESTART) == {"exclusion"}
    assert restarted(*LASTING) == set()


# The verdict ----------------------------------------------------------------------------------


class Two:
    """A history in which an older lease of each name is held while a newer one is granted."""

    def __init__(self) -> None:
        self.history = History()
        self.serial = iter(range(1, 1000))

    def hold(self, name: str, token: int, asked: float, granted: float, released: float) -> None:
        attempt = self.history.acquire(f"c{next(self.serial)}.1", name, at=asked)
        attempt.granted(token=token, deadline=released + 1, at=granted)
        attempt.release(at=released)

    def pair(
        self, name: str = "job", *, first: float, second: float, tokens: tuple[int, int] = (1, 2)
    ) -> None:
        """Each is asked for a little earlier, and the first is held until after the second was granted."""
        self.hold(name, tokens[0], first - 0.1, first, second + 1)
        self.hold(name, tokens[1], second - 0.1, second, second + 0.5)

    def judged(self, fault: str, promised: Guarantees, causes: list[Cause]) -> Outcome:
        outcome = Outcome("redis", fault, "failed", injections=1)
        judge(
            outcome,
            self.history,
            traits={"tokens"},
            allowed=declared(fault, promised),
            causes=causes,
            lanes=LANES,
            line=False,
            ttl=1.0,
            healed=0.0,
            until=0.0,
            bound=3.0,
            names=[],
            teeth=False,
        )
        return outcome


def rules(outcome: Outcome) -> Iterator[str]:
    return (violation.partition(":")[0] for violation in outcome.violations)


def two(**times: Any) -> Two:
    made = Two()
    made.pair(**times)
    return made


def test_a_break_that_is_declared_and_has_a_cause_is_counted_apart() -> None:
    outcome = two(first=9.5, second=10.5).judged("clock", REDIS, JUMP)
    assert (outcome.status, outcome.violations) == ("passed", [])
    assert (outcome.declared, outcome.declaration) == ({"exclusion": 1}, "clock: exclusion")
    assert (outcome.broken, outcome.most, outcome.lanes) == (1, 1, LANES)


@pytest.mark.parametrize("fault", ["pause", "cut", "kill", "delete", "clientclock"])
def test_a_fault_for_which_nothing_is_declared_excuses_nothing(fault: str) -> None:
    outcome = two(first=9.5, second=10.5).judged(fault, REDIS, JUMP)
    assert (outcome.status, [*rules(outcome)], outcome.declared) == ("failed", ["exclusion"], {})


def test_what_the_value_does_not_declare_fails() -> None:
    assert (
        two(first=9.5, second=10.5).judged("clock", replace(REDIS, clock="nothing"), JUMP).status == "failed"
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [(8.0, 9.0), (10.5, 11.0)],
    ids=["over before the cause", "both asked for after it"],
)
def test_a_break_without_a_cause_fails(first: float, second: float) -> None:
    outcome = two(first=first, second=second).judged("clock", REDIS, JUMP)
    assert (outcome.status, [*rules(outcome)], outcome.declared) == ("failed", ["exclusion"], {})


def test_no_cause_at_all_excuses_nothing() -> None:
    assert two(first=9.5, second=10.5).judged("failover", SENTINEL, []).status == "failed"


def test_the_order_of_grants_is_that_of_their_tokens() -> None:
    """The client of the older lease may hear of its grant after that of the newer one."""
    made = Two()
    made.hold("job", 2, 10.2, 10.3, 10.6)
    made.hold("job", 1, 9.9, 10.4, 10.6)  # granted before the jump, and heard of later
    assert made.judged("clock", REDIS, JUMP).status == "passed"
    made.hold("task", 1, 10.2, 10.3, 10.6)
    made.hold("task", 2, 9.9, 10.4, 10.6)  # granted after a lease that was asked for after the jump
    outcome = made.judged("clock", REDIS, JUMP)
    assert (outcome.status, [*rules(outcome)], outcome.broken) == ("failed", ["exclusion"], 1)


@pytest.mark.parametrize("tokens", [(2, 1), (1, 1)], ids=["falls", "repeats"])
@pytest.mark.parametrize(
    ("fault", "promised"), [("failover", SENTINEL), ("failover", REDIS), ("clock", REDIS)]
)
def test_a_token_that_falls_or_repeats_fails_where_only_exclusion_is_declared(
    tokens: tuple[int, int], fault: str, promised: Guarantees
) -> None:
    made = Two()
    made.hold("job", tokens[0], 9.0, 9.5, 9.9)
    made.hold("job", tokens[1], 10.2, 10.5, 10.9)
    outcome = made.judged(fault, promised, JUMP)
    assert outcome.status == "failed"
    assert [*rules(outcome)] == ["token-order" if tokens == (2, 1) else "unique-token"]


def test_a_guard_that_lets_an_old_token_in_fails_in_a_failover() -> None:
    made = two(first=9.5, second=10.5)
    made.history.write("c1.1", "job", token=2, base=0, seq=1, accepted=True, at=10.6)
    made.history.write("c2.1", "job", token=1, base=1, seq=2, accepted=True, at=10.7)
    outcome = made.judged("failover", SENTINEL, JUMP)
    assert (outcome.status, [*rules(outcome)], outcome.declared) == ("failed", ["guard"], {"exclusion": 1})


def test_where_tokens_may_be_lost_they_need_a_cause_too() -> None:
    weak = replace(SENTINEL, failover="exclusion-and-tokens")
    made = Two()
    made.hold("job", 2, 9.0, 9.5, 9.9)
    made.hold("job", 1, 10.2, 10.5, 10.9)
    assert made.judged("failover", weak, JUMP).declared == {"token-order": 1}
    assert made.judged("failover", weak, [Cause(20.0, 21.0)]).status == "failed"


def test_one_lease_for_each_lane_and_cause_and_no_more() -> None:
    made = Two()
    for number in range(LANES):
        made.pair(f"job-{number}", first=9.5, second=10.5)
    outcome = made.judged("clock", REDIS, JUMP)
    assert (outcome.status, outcome.broken, outcome.most) == ("passed", LANES, LANES)
    made.pair("one-more", first=9.5, second=10.5)
    outcome = made.judged("clock", REDIS, JUMP)
    assert outcome.status == "failed"
    assert outcome.violations == ["exclusion: 5 leases were broken by one cause, which can break 4 at most"]


def test_what_one_cause_has_not_broken_is_not_free_for_another() -> None:
    made = Two()
    causes = [*JUMP, Cause(20.0, 20.1), Cause(30.0, 30.1)]
    for number in range(LANES):
        made.pair(f"early-{number}", first=9.5, second=10.5)
        made.pair(f"late-{number}", first=19.5, second=20.5)
    outcome = made.judged("clock", REDIS, causes)
    assert (outcome.status, outcome.broken, outcome.most) == ("passed", 2 * LANES, LANES)
    made.pair("one-more", first=19.5, second=20.5)
    assert made.judged("clock", REDIS, causes).status == "failed"


def test_a_cause_that_lasts_may_take_what_is_asked_for_meanwhile() -> None:
    made = Two()
    for number in range(LANES + 1):
        made.pair(f"job-{number}", first=9.5, second=10.5)
    made.hold("other", 1, 10.05, 10.06, 10.07)
    assert made.judged("clock", REDIS, JUMP).status == "passed"
    made.pair("one-more", first=9.5, second=10.5)
    assert made.judged("clock", REDIS, JUMP).status == "failed"


def test_one_lease_that_many_are_granted_beside_is_one() -> None:
    made = Two()
    made.hold("job", 1, 9.0, 9.5, 20.0)
    for number in range(8):
        made.hold("job", 2 + number, 10.2 + number, 10.5 + number, 10.9 + number)
    outcome = made.judged("clock", REDIS, JUMP)
    assert (outcome.status, outcome.declared, outcome.broken) == ("passed", {"exclusion": 8}, 1)


def test_runs_of_one_cell_add_up() -> None:
    one, other = (two(first=9.5, second=10.5).judged("clock", REDIS, JUMP) for _ in range(2))
    whole = total([one, other])
    assert (whole.broken, whole.most, whole.lanes) == (2, 1, LANES)


# The causes -----------------------------------------------------------------------------------


def test_a_clock_that_is_set_to_what_it_shows_is_no_cause() -> None:
    class Shim:
        def set(self, offset: int) -> None:
            shown.append(offset)

    class Stage:
        def __init__(self) -> None:
            self.causes: list[Cause] = []

        from chaos.stage import Stage as Real

        cause = Real.cause

    shown: list[int] = []
    stage: Any = Stage()
    clock = Clock()
    clock.shim, clock.offset = Shim(), 0  # type: ignore[assignment]
    for offset in (60, 60, 0, 0, -60):
        clock.jump(stage, offset)
    clock.heal(stage)
    assert shown == [60, 0, -60, 0]
    assert len(stage.causes) == 4
