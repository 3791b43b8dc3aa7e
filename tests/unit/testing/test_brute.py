"""The fast and the brute-force checker against each other, on histories from a model of the lock.

``Model`` is a lock server and its clients in one: each step is a message sent, applied, answered,
lost or late, in an order that hypothesis chooses. What it records is legal by construction; then
the recording is tampered with, and the two checkers must agree about what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fencelock.testing import (
    BRUTE_LIMIT,
    Attempt,
    Event,
    History,
    HistoryError,
    Mode,
    SearchTooLarge,
    brute_check,
    check,
)

TTL = 8.0
KINDS_OF_LOCK: list[tuple[Mode, int | None]] = [
    ("exclusive", None),
    ("shared", None),
    ("permit", 1),
    ("permit", 2),
]


@dataclass(eq=False)
class Request:
    """One acquisition: what the client knows and has recorded, and what it asked of the server."""

    attempt: Attempt
    client: str
    name: str
    mode: Mode
    limit: int | None
    state: str = "waiting"  # held, lost, released, over: the client's view
    acked: bool = False
    dropped: bool = False  # lost its place, and has not been told
    deadline: float = 0.0


@dataclass(eq=False)
class Entry:
    """A request in the server's queue."""

    request: Request
    token: int
    expires: float
    admitted: bool = False


@dataclass
class Model:
    choose: Random
    fifo: bool
    token_on_admission: bool
    renewals_recorded: bool = True
    now: float = 0.0
    tokens: int = 0
    queue: list[Entry] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.history = History(clock=lambda: self.now)

    def run(self, operations: int, steps: int) -> History:
        for _ in range(steps):
            # Whole numbers, so that much happens at one instant.
            self.now += self.choose.choice([0, 0, 0, 1, 1, 2])
            if len(self.requests) < operations and self.choose.random() < 0.4:
                self.invoke()
            moves = [move for request in self.requests for move in self.moves(request)]
            moves += [partial(self.expire, entry) for entry in self.queue if self.overdue(entry)]
            if moves:
                self.choose.choice(moves)()
            elif len(self.requests) < operations:
                self.invoke()
            if self.choose.random() < 0.02:
                self.disturb()
        return self.history

    def overdue(self, entry: Entry) -> bool:
        return entry.admitted and entry.expires <= self.now

    def invoke(self) -> None:
        busy = {request.client for request in self.requests if request.state in {"waiting", "held"}}
        free = [client for client in ("a", "b", "c", "d") if client not in busy]
        if not free:
            return
        client, name = self.choose.choice(free), self.choose.choice(["x", "x", "x", "y"])
        mode: Mode = self.choose.choice(["exclusive", "exclusive", "shared", "permit"])
        limit = 2 if mode == "permit" else None
        attempt = self.history.acquire(client, name, mode=mode, limit=limit)
        self.requests.append(Request(attempt, client, name, mode, limit))

    def moves(self, request: Request) -> list[Callable[[], None]]:
        entry = next((entry for entry in self.queue if entry.request is request), None)
        if request.state == "waiting":
            return self.moves_of_waiter(request, entry)
        if request.state == "held":
            return self.moves_of_holder(request, entry)
        # Gone: whatever it left on the server goes at any later time.
        return [lambda: self.leave(entry)] if entry else []

    def moves_of_waiter(self, request: Request, entry: Entry | None) -> list[Callable[[], None]]:
        give_up = [lambda: self.give_up(request)] if self.choose.random() < 0.03 else []
        if entry is None:
            return [lambda: self.enqueue(request), *give_up]
        if request.dropped:  # enqueued anew, and has yet to say so
            return [lambda: self.requeued(request), *give_up]
        if entry.admitted:
            return [lambda: self.grant(request, entry), *give_up]
        moves = [lambda: self.drop(request, entry)] if self.choose.random() < 0.03 else []
        if not request.acked:
            moves.append(lambda: self.ack(request))
        return [*moves, *give_up]

    def moves_of_holder(self, request: Request, entry: Entry | None) -> list[Callable[[], None]]:
        if request.deadline <= self.now:
            return [lambda: self.lose(request)]
        moves = [lambda: self.release(request)] if self.choose.random() < 0.5 else []
        if entry:
            moves.append(lambda: self.renew(request, entry))
        moves.append(lambda: request.attempt.held(request.deadline))
        return moves

    def enqueue(self, request: Request) -> None:
        self.tokens += 1
        self.queue.append(Entry(request, self.tokens, self.now + TTL))
        self.admit()

    def ack(self, request: Request) -> None:
        request.acked = True
        request.attempt.queued()

    def requeued(self, request: Request) -> None:
        request.dropped = False
        request.attempt.requeued()

    def drop(self, request: Request, entry: Entry) -> None:
        request.dropped = True
        self.leave(entry)

    def grant(self, request: Request, entry: Entry) -> None:
        request.state, request.deadline = "held", entry.expires
        request.attempt.granted(token=entry.token, deadline=entry.expires, owner=request.client)

    def renew(self, request: Request, entry: Entry) -> None:
        entry.expires = request.deadline = self.now + TTL
        if self.renewals_recorded:
            request.attempt.renewed(request.deadline)

    def lose(self, request: Request) -> None:
        request.state = "lost"
        request.attempt.lost()

    def release(self, request: Request) -> None:
        request.state = "released"
        request.attempt.release()

    def give_up(self, request: Request) -> None:
        request.state = "over"
        self.choose.choice([request.attempt.timeout, request.attempt.cancelled, request.attempt.failed])()

    def expire(self, entry: Entry) -> None:
        if entry.request.state == "waiting" and self.choose.random() < 0.5:
            # Admitted, expired, and only then heard of: a grant whose time is over.
            self.grant(entry.request, entry)
        elif entry.request.state == "waiting":
            entry.request.dropped = True
        self.leave(entry)

    def leave(self, entry: Entry) -> None:
        if entry in self.queue:
            self.queue.remove(entry)
        self.admit()

    def admit(self) -> None:
        for name in ("x", "y"):
            inside = [entry for entry in self.queue if entry.admitted and entry.request.name == name]
            for entry in self.queue if self.fifo else self.choose.sample(self.queue, len(self.queue)):
                if entry.request.name != name or entry.admitted:
                    continue
                if self.fits(entry, inside):
                    self.let_in(entry)
                    inside.append(entry)
                elif self.fifo:
                    break

    def let_in(self, entry: Entry) -> None:
        entry.admitted = True
        entry.expires = self.now + TTL
        if self.token_on_admission:
            self.tokens += 1
            entry.token = self.tokens

    @staticmethod
    def fits(entry: Entry, inside: list[Entry]) -> bool:
        if not inside:
            return True
        mode = entry.request.mode
        if any(other.request.mode != mode for other in inside):
            return False
        return mode == "shared" or (mode == "permit" and len(inside) < 2)

    def disturb(self) -> None:
        self.choose.choice([self.crash, self.force_release, self.sleep])()

    def crash(self) -> None:
        client = self.choose.choice(["a", "b", "c", "d"])
        self.history.crashed(client)
        for request in self.requests:
            if request.client == client and request.state in {"waiting", "held"}:
                request.state = "over"

    def sleep(self) -> None:
        client = self.choose.choice(["a", "b", "c", "d"])
        self.history.paused(client)
        self.now += 1
        for entry in [*self.queue]:
            if entry.request.client == client and not entry.admitted:
                self.leave(entry)  # and the client, on waking, does not notice
        self.history.resumed(client)

    def force_release(self) -> None:
        name = self.choose.choice(["", "x"])
        self.history.breaking("op", name)
        for entry in [*self.queue]:
            if entry.request.name == name or not name:
                self.leave(entry)
        self.history.broke("op", name)


@st.composite
def legal(draw: st.DrawFn, *, fifo: bool | None = None) -> tuple[History, bool]:
    choose = draw(st.randoms(use_true_random=False))
    fifo = draw(st.booleans()) if fifo is None else fifo
    model = Model(choose, fifo, draw(st.booleans()), draw(st.booleans()))
    history = model.run(draw(st.integers(1, 12)), draw(st.integers(5, 90)))
    return (history if draw(st.booleans()) else History(history.events, ordered=False)), fifo


def tamper(history: History, choose: Random) -> History:
    """Change one to four events of a history."""
    events = [*history.events]
    for _ in range(choose.randint(1, 4)):
        index = choose.randrange(len(events))
        event = events[index]
        kind = choose.choice(["at", "at", "token", "deadline", "drop", "mode", "name", "swap"])
        if kind == "at":
            events[index] = event._replace(at=event.at + choose.choice([-4, -2, -1, 1, 2, 4]))
        elif kind == "token" and event.kind == "granted":
            events[index] = event._replace(token=(event.token or 0) + choose.choice([-3, -2, -1, 1, 2]))
        elif kind == "deadline" and event.deadline is not None:
            events[index] = event._replace(deadline=event.deadline + choose.choice([-4, -1, 1, 4, 40]))
        elif kind == "drop" and event.kind not in {"acquire", "granted"}:
            del events[index]
        elif kind == "mode" and event.kind == "acquire":
            mode, limit = choose.choice(KINDS_OF_LOCK)
            events[index] = event._replace(mode=mode, limit=limit)
        elif kind == "name" and event.kind == "acquire":
            events[index] = event._replace(name=choose.choice(["x", "y"]))
        elif kind == "swap":
            events = swap_leases(events, choose)
        if not events:
            break
    return History(events, ordered=history.ordered)


def swap_leases(events: list[Event], choose: Random) -> list[Event]:
    """Give the lease of one request to another: somebody then was served out of turn."""
    granted = [event.request for event in events if event.kind == "granted"]
    one, other = choose.choice(granted or [""]), choose.choice(granted or [""])
    exchange = {one: other, other: one}
    return [
        event
        if event.kind in {"acquire", "queued", "requeued"}
        else event._replace(request=exchange.get(event.request, event.request))
        for event in events
    ]


def fast_check(history: History, *, fifo: bool) -> set[tuple[str, str]]:
    """The checker's findings in the words of the brute-force one."""
    words = {"unique-token": "tokens", "token-order": "tokens", "exclusion": "exclusion", "fifo": "fifo"}
    violations = check(history, fifo=fifo).violations
    found = {(words[item.rule], item.name) for item in violations if item.rule in words}
    return {(rule, name) for rule, name in found if rule != "fifo" or ("exclusion", name) not in found}


def relaxed(examples: int) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(max_examples=examples, suppress_health_check=checks)


@relaxed(150)
@given(legal())
def test_legal_histories_pass_both(case: tuple[History, bool]) -> None:
    history, fifo = case
    report = check(history, fifo=fifo)
    assert report.ok, f"{report}\n{history}"
    assert brute_check(history, fifo=fifo) == set(), str(history)


@relaxed(250)
@given(legal(), st.randoms(use_true_random=False))
def test_both_agree_on_what_is_wrong(case: tuple[History, bool], choose: Random) -> None:
    history, _ = case
    assume(len(history) > 0)
    broken = tamper(history, choose)
    try:
        broken.operations()
    except HistoryError:
        assume(False)
    for fifo in (True, False):
        try:
            slow = brute_check(broken, fifo=fifo, budget=200_000)
        except SearchTooLarge:
            continue
        assert fast_check(broken, fifo=fifo) == slow, str(broken)


def test_the_model_and_the_tampering_are_worth_something() -> None:
    """The two tests above would prove little if nothing happened in their histories."""
    grants = queued = losses = 0
    found: set[str] = set()
    for seed in range(400):
        choose = Random(seed)
        history = Model(choose, fifo=True, token_on_admission=False).run(12, 90)
        report = check(history)
        assert report.ok, f"seed {seed}\n{report}\n{history}"
        grants, queued, losses = grants + report.grants, queued + report.queued, losses + report.losses
        try:
            found |= {rule for rule, _ in fast_check(tamper(history, choose), fifo=True)}
        except HistoryError:
            continue
    assert grants > 1500
    assert queued > 500
    assert losses > 150
    assert found == {"tokens", "exclusion", "fifo"}


def test_a_queue_that_is_not_fifo_is_noticed_by_both() -> None:
    caught = 0
    for seed in range(150):
        history = Model(Random(seed), fifo=False, token_on_admission=True).run(10, 80)
        slow = brute_check(history)
        assert fast_check(history, fifo=True) == slow
        assert fast_check(history, fifo=False) == set()
        caught += ("fifo", "x") in slow
    assert caught > 10


def test_large_histories_and_searches_are_refused() -> None:
    history = History()
    for number in range(BRUTE_LIMIT + 1):
        history.acquire("p", "x", mode="shared", at=0).granted(token=number, deadline=9, at=1)
    with pytest.raises(ValueError, match="31 operations"):
        brute_check(history)
    with pytest.raises(SearchTooLarge):
        brute_check(History(history.events[:-2]), budget=5)


def test_thirty_operations_in_a_row_are_searched() -> None:
    history = History()
    for number in range(BRUTE_LIMIT):
        attempt = history.acquire(f"p{number % 3}", "x", at=number - 2)
        attempt.queued(at=number - 1.5)
        attempt.granted(token=number, deadline=99, at=number)
        attempt.release(at=number + 0.5)
    assert brute_check(history) == set()
    events = [event._replace(token=3) if event.token == 20 else event for event in history]
    assert brute_check(History(events)) == {("tokens", "x")}


def test_events_that_no_request_owns_are_no_concern() -> None:
    assert brute_check(History([Event("crashed", 1, "p"), Event("paused", 1, "p")])) == set()
