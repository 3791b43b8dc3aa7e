"""What the frames say is what the backend said: with hypothesis, a page that follows them sees the same."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fencelock import Entry, LockState
from fencelock.dashboard.picture import HISTORY, Picture
from fencelock.names import marked

Queue = tuple[str, str]


def entry(owner: str, *, mode: str = "exclusive", age: float = 1.0, rest: float = 9.0, **more: Any) -> Entry:
    fields = {"token": 7, "client": "app", "host": "h", "pid": 1, "since": 100.0, **more}
    return Entry(owner=owner, mode=mode, age=age, expires_in=rest, **fields)


def state(name: str, holders: str = "", waiters: str = "", **more: Any) -> LockState:
    return LockState(
        name=name,
        holders=tuple(entry(name + each, **more) for each in holders),
        waiters=tuple(entry(name + each, **more) for each in waiters),
    )


class Page:
    """A browser, as small as it can be: it keeps what frames say."""

    def __init__(self) -> None:
        self.locks: dict[int, dict[str, Any]] = {}

    def picture(self, text: str) -> None:
        self.locks = {lock["id"]: lock for lock in json.loads(text)["locks"]}

    def change(self, fields: dict[str, Any]) -> None:
        fields = json.loads(json.dumps(fields))
        for id_ in fields["gone"]:
            del self.locks[id_]
        for lock in fields["put"]:
            self.locks[lock["id"]] = lock
        for id_, expires, full in fields["renewed"]:
            self.locks[id_] |= {"expires": expires, "full": full}

    def sees(self) -> dict[str, tuple[Any, ...]]:
        keys = ("held", "waiting", "who", "token", "expires", "full")
        return {lock["name"]: tuple(lock[key] for key in keys) for lock in self.locks.values()}


looks = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.sampled_from(["", "1", "2"]), st.sampled_from(["", "3", "34"]))
)


@settings(max_examples=60)
@given(st.lists(looks, max_size=6), st.integers(0, 5), st.data())
def test_a_page_that_follows_changes_sees_what_a_new_one_sees(
    seen: list[dict[str, Queue]], joined: int, data: st.DataObject
) -> None:
    picture, page, used = Picture("b0", itertools.count(1)), Page(), set[int]()
    for number, look in enumerate(seen):
        rest = data.draw(st.sampled_from([9.0, 3.0]))
        states = [state(name, *queue, rest=rest) for name, queue in sorted(look.items()) if any(queue)]
        change = picture.take(states, 10.0 * number, 0.01)
        if number <= joined:
            page.picture(picture.whole(0.0, None))
        else:
            known = set(page.locks)
            page.change(change)
            assert not (set(page.locks) - known) & used, "an id is never used again"
        used |= set(page.locks)
        new = Page()
        new.picture(picture.whole(0.0, None))
        assert page.locks == new.locks
        assert set(page.sees()) == {each.name for each in states}
        assert picture.totals["waiting"] == sum(len(each.waiters) for each in states)


def test_nothing_is_sent_of_what_stays_the_same() -> None:
    picture = Picture("b0", itertools.count(1))
    assert len(picture.take([state("a", "1", rest=9.0)], 0.0, 0.0)["put"]) == 1
    change = picture.take([state("a", "1", rest=8.01, age=2.0)], 1.0, 0.0)
    assert (change["put"], change["gone"], change["renewed"], change["events"]) == ([], [], [], [])
    change = picture.take([state("a", "1", rest=10.0)], 2.0, 0.0)
    assert change["renewed"] == [[1, 12.0, 10.0]], "the lease was renewed: it ends later"


def test_events_waits_and_history() -> None:
    picture = Picture("b0", itertools.count(1))
    assert picture.take([state("a", "1", "2")], 0.0, 0.0)["events"] == [], "how it stood is no event"
    after = LockState(name="a", holders=(entry("a2", since=104.0, age=0.5),), waiters=(entry("a3"),))
    change = picture.take([after], 5.0, 0.0)
    assert [(event[0], event[4]) for event in change["events"]] == [
        ("released", 5.0),
        ("taken", 4.5),
        ("queued", 4.0),
    ]
    assert change["point"] == [5.0, 1, 1, 1, 1, 4.0, 4.0], "one grant, after 4 seconds by the backend's clock"
    picture.breaking("a2")
    change = picture.take([], 6.0, 0.0)
    assert [event[0] for event in change["events"]] == ["broken", "left"]
    detail = picture.detail("a")
    assert detail is not None and detail["id"] is None and detail["holders"] == []
    assert [event[0] for event in detail["history"]] == ["released", "taken", "queued", "broken", "left"]
    assert picture.detail("never") is None
    leader = json.loads(marked("leader", None))
    picture.take([state("boss", "1", "23", metadata=leader), state("busy", "1", "2")], 7.0, 0.0)
    assert (picture.totals["waiting"], picture.totals["contended"]) == (3, 1), "standing by is no contention"


def test_what_is_kept_is_bounded() -> None:
    picture = Picture("b0", itertools.count(1))
    picture.take([], 0.0, 0.0)
    many = [state(f"n{number}", "1", "23") for number in range(100)]
    change = picture.take(many, 1.0, 0.0)
    assert (len(change["events"]), change["missed"]) == (200, 100)
    for number in range(HISTORY):
        picture.take([state("a", str(number % 2))], 2.0 + number, 0.0)
    detail = picture.detail("a")
    assert detail is not None and len(detail["history"]) == HISTORY
    assert len(json.loads(picture.whole(0.0, None))["series"]) == HISTORY + 2


def test_kinds_of_locks() -> None:
    leader = json.loads(marked("leader", '{"address":"10.0.0.1"}'))
    seen = [
        state("leads", "1", metadata=leader),
        state("pool", "12", mode="permit", limit=4),
        state("docs", "12", mode="shared", limit=0),
        state("plain", "1", metadata={"fencelock": "leader"}),
        LockState(name="written", holders=(entry("w"),), waiters=(entry("r", mode="shared"),)),
        state("forged", "1", metadata=json.loads(marked("<script>", None))),
    ]
    picture = Picture("b0", itertools.count(1))
    picture.take(seen, 0.0, 0.0)
    kinds = {lock["name"]: lock["kind"] for lock in json.loads(picture.whole(0.0, None))["locks"]}
    assert kinds == {
        "leads": "leader",
        "pool": "semaphore",
        "docs": "readers",
        "plain": "lock",
        "written": "readers",
        "forged": "lock",
    }
    detail = picture.detail("leads")
    assert detail is not None and detail["holders"][0]["metadata"] == {"address": "10.0.0.1"}


def test_a_name_cannot_leave_its_frame() -> None:
    evil = "x\n\nevent: hello\ndata: {}\r\u2028</script>\x00"[:-1]
    picture = Picture("b0", itertools.count(1))
    picture.take([state(evil, "1")], 0.0, 0.0)
    text = picture.whole(0.0, None)
    assert text.isascii() and "\n" not in text and "\r" not in text
    assert json.loads(text)["locks"][0]["name"] == evil
