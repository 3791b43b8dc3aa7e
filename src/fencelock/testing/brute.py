"""The same questions as ``checker``, answered by search: slow, plain, and written apart from it.

For each name two little machines try to explain the history. Each has hidden steps that may happen
at any time the history allows; the history is legal if some order of the steps satisfies it.

*Tokens.* Each grant draws its token in one step, between its invocation and its return, and a
token drawn later is greater.

*Queue.* The state is the queue itself, each entry waiting or admitted.

- ``enqueue``: once invoked; before its place was acknowledged, and before its grant returned;
- ``admit``: before its grant returned; only if it is compatible with all that are admitted and,
  if the queue is FIFO, nobody waits ahead of it;
- ``expire``: the entry goes. Only once its holder cannot be sure of it any more: at or after its
  release was invoked, its deadline, its loss, its client's crash, or the start of a break.

Requests that were not granted, or not validly (their time was over when they returned), need no
explanation. A place that a pause may have cost is taken as not acknowledged.

Steps are tried only when the history demands one, since waiting longer never disables a step.

Not promised: speed. States are counted, and ``SearchTooLarge`` says when there are too many; at
most 30 operations are taken. It knows nothing of losses, writes and availability.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from fencelock.testing.events import Event, Kind
from fencelock.testing.history import History, Instant, Operation

BRUTE_LIMIT = 30

_Timeline = tuple[tuple[Instant, Event], ...]
_S = TypeVar("_S")

BruteRule = Literal["tokens", "exclusion", "fifo"]


class SearchTooLarge(RuntimeError):
    """The search was given up; nothing is known."""


def brute_check(
    history: History, *, fifo: bool = True, budget: int = 1_000_000
) -> set[tuple[BruteRule, str]]:
    """Return which rules no explanation satisfies, each with the lock's name.

    "tokens" stands for the checker's ``unique-token`` and ``token-order``. "fifo" is reported only
    where "exclusion" is not, since the FIFO queue excludes as well.
    """
    operations = history.operations()
    if len(operations) > BRUTE_LIMIT:
        raise ValueError(f"{len(operations)} operations, at most {BRUTE_LIMIT} can be searched")
    broken: set[tuple[BruteRule, str]] = set()
    for name in sorted({operation.name for operation in operations}):
        grants = [op for op in operations if op.name == name and op.outcome == "granted"]
        if not _explain_tokens(grants, budget):
            broken.add(("tokens", name))
        requests = [*_requests(history, grants)]
        if not _explain_queue(requests, fifo=False, budget=budget):
            broken.add(("exclusion", name))
        elif fifo and not _explain_queue(requests, fifo=True, budget=budget):
            broken.add(("fifo", name))
    return broken


# Order of what happens at one instant: first whatever gives freedom, then whatever demands.
_MAY, _MUST = 0, 1


class _Point(NamedTuple):
    when: Instant
    demand: int
    what: Literal["enqueue", "admit", "expire"]
    who: int


def _explain_tokens(grants: list[Operation], budget: int) -> bool:
    """Search for an order of drawing; the state is the set of those that have drawn."""
    points = sorted(
        point
        for who, grant in enumerate(grants)
        for point in (
            _Point(grant.invoked, _MAY, "enqueue", who),
            _Point(grant.returned or grant.invoked, _MUST, "enqueue", who),
        )
    )
    todo: list[tuple[int, frozenset[int]]] = [(0, frozenset())]
    seen = set(todo)
    while todo:
        index, drawn = todo.pop()
        while index < len(points) and (points[index].demand == _MAY or points[index].who in drawn):
            index += 1
        if index == len(points):
            return True
        highest = max((_token(grants[who]) for who in drawn), default=float("-inf"))
        for point in points[:index]:
            who = point.who
            if point.demand == _MAY and who not in drawn and _token(grants[who]) > highest:
                _push(todo, seen, (index, drawn | {who}), budget)
    return False


@dataclass(frozen=True, slots=True)
class _Request:
    operation: Operation
    placed: Instant  # enqueued by then
    granted: Instant  # admitted by then
    over: Instant  # may expire from then on


class _State(NamedTuple):
    queue: tuple[int, ...] = ()
    admitted: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()


def _explain_queue(requests: list[_Request], *, fifo: bool, budget: int) -> bool:
    points = sorted(_points(requests))
    todo: list[tuple[int, _State]] = [(0, _State())]
    seen = set(todo)
    while todo:
        index, state = todo.pop()
        while index < len(points) and _met(points[index], state):
            index += 1
        if index == len(points):
            return True
        for following in _steps(state, points[:index], requests, fifo=fifo):
            _push(todo, seen, (index, following), budget)
    return False


def _points(requests: list[_Request]) -> Iterator[_Point]:
    for who, request in enumerate(requests):
        yield _Point(request.operation.invoked, _MAY, "enqueue", who)
        yield _Point(request.over, _MAY, "expire", who)
        yield _Point(request.placed, _MUST, "enqueue", who)
        yield _Point(request.granted, _MUST, "admit", who)


def _met(point: _Point, state: _State) -> bool:
    if point.demand == _MAY or point.who in state.gone:
        return True
    return point.who in (state.admitted if point.what == "admit" else state.queue)


def _steps(state: _State, past: list[_Point], requests: list[_Request], *, fifo: bool) -> Iterator[_State]:
    queue, admitted, gone = state
    for point in past:
        who = point.who
        if point.demand == _MUST or who in gone:
            continue
        if point.what == "enqueue" and who not in queue:
            longer = (*queue, who)
            yield _State(longer if fifo else tuple(sorted(longer)), admitted, gone)
        elif point.what == "expire" and who in admitted:
            rest = tuple(other for other in queue if other != who)
            yield _State(rest, admitted - {who}, gone | {who})
    for who in (other for other in queue if other not in admitted):
        if _fit([requests[other].operation for other in (*admitted, who)]):
            yield _State(queue, admitted | {who}, gone)
        if fifo:
            return  # everybody else waits behind this one


def _push(todo: list[_S], seen: set[_S], state: _S, budget: int) -> None:
    if state not in seen:
        if len(seen) >= budget:
            raise SearchTooLarge(f"no explanation among the first {budget} states")
        seen.add(state)
        todo.append(state)


def _fit(together: list[Operation]) -> bool:
    """Whether these may be admitted together."""
    for one in together:
        others = [other for other in together if other is not one]
        if one.mode == "exclusive" and others:
            return False
        if any(other.mode != one.mode for other in others):
            return False
        if one.limit is not None and len(together) > one.limit:
            return False
    return True


def _requests(history: History, grants: Iterable[Operation]) -> Iterator[_Request]:
    timeline = history.timeline()
    for grant in grants:
        granted = grant.returned or grant.invoked
        over = min(_ends(grant, timeline))
        if over > granted:
            placed = granted if grant.place is None or _slept(grant, timeline) else grant.place
            yield _Request(grant, placed, granted, over)


def _ends(grant: Operation, timeline: _Timeline) -> Iterator[Instant]:
    """Everything from which on the holder could not be sure of its lock."""
    yield Instant.deadline(_last_word(grant))
    yield from (when for when in (grant.release, grant.crashed, *grant.losses) if when is not None)
    for begun, over in _spans(timeline, "break", "broke", grant):
        if over is None or not over < grant.invoked:
            yield begun


def _last_word(grant: Operation) -> float:
    """The deadline by the last thing that was said about it; a late renewal says nothing."""
    word = latest = grant.deadline or 0.0
    for kind, when, deadline, ttl in grant.moves:
        if kind == "extend" and ttl is not None:
            word = min(word, when.at + ttl)
        elif kind == "held" and deadline is not None:
            word, latest = max(word, deadline), max(latest, deadline)
        elif deadline is not None:
            if kind == "renewed" and when.at >= latest:
                break
            word = latest = deadline
    return word


def _slept(grant: Operation, timeline: _Timeline) -> bool:
    """Whether the client was paused at some time between its place and its grant."""
    return any(
        (over is None or not over < (grant.place or grant.invoked)) and not (grant.returned or begun) < begun
        for begun, over in _spans(timeline, "paused", "resumed", grant)
    )


def _spans(
    timeline: _Timeline, opening: Kind, closing: Kind, grant: Operation
) -> Iterator[tuple[Instant, Instant | None]]:
    concerned = [(when, event) for when, event in timeline if _concerns(event, grant)]
    for key in {(event.name, event.owner) for _, event in concerned}:
        mine = [(when, event.kind) for when, event in concerned if (event.name, event.owner) == key]
        while mine:
            when, kind = mine.pop(0)
            if kind == opening:
                end = next((item for item in mine if item[1] == closing), None)
                if end is not None:
                    mine.remove(end)
                yield when, end and end[0]


def _concerns(event: Event, grant: Operation) -> bool:
    if event.kind in {"break", "broke"}:
        mine = grant.owner is None or event.owner in {None, grant.owner}
        return mine and event.name in {"", grant.name}
    return event.kind in {"paused", "resumed"} and event.client == grant.client


def _token(grant: Operation) -> int:
    return -1 if grant.token is None else grant.token
