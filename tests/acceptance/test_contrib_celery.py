"""Celery with a real broker and real workers: a prefork pool and a threads pool share the work.

`FENCELOCK_ROUNDS=5` kills so many workers in the middle of a task.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import TaskRevokedError
from crew import Crew, wait_until
from tools.servers import start
from workers.contrib_celery import go, make, notes

from fencelock import AcquireTimeout, Client

ROUNDS = int(os.environ.get("FENCELOCK_ROUNDS", "1"))


class Floor(SimpleNamespace):
    """Tasks of an application, and what its workers noted."""

    url: str

    def noted(self, key: str, what: str) -> list[Any]:
        return [note for note in notes(self.url, key) if note[0] == what]

    def begun(self, key: str, times: int = 1) -> Any:
        def enough() -> Any:
            found = self.noted(key, "begun")
            return found if len(found) >= times else None

        return wait_until(enough, f"{key} has begun {times} times")[times - 1]

    def result(self, sent: Any) -> Any:
        wait_until(sent.ready, f"{sent} has ended")
        return sent.get()


@pytest.fixture(scope="module")
def floor() -> Iterator[Floor]:
    with start("redis") as group, Crew() as crew:
        url = str(group.url)
        made = make(url)
        # Results are asked for. A subscription would outlive the server: each result ends its own when it
        # is collected as garbage.
        made.app.backend.on_task_call = lambda *_: None
        workers = [
            crew.start("contrib_celery", url, "prefork", "celery,forked"),
            crew.start("contrib_celery", url, "threads", "celery,threaded"),
        ]
        try:
            yield Floor(url=url, **vars(made))
        finally:
            made.app.close()
            for worker in workers:
                worker.signal(signal.SIGTERM)  # a pool that is killed would leave its children to themselves
            for worker in workers:
                assert worker.end() == 0, worker.errors


def test_the_same_sent_six_times_is_run_once(floor: Floor) -> None:
    sent = [floor.pay.delay("a", number) for number in range(6)]
    floor.begun("a")
    wait_until(lambda: sum(one.state == "REVOKED" for one in sent) == 5, "five are skipped")
    go(floor.url, "a")
    states: Counter[Any] = Counter()
    for one in sent:
        try:
            states[floor.result(one)] += 1
        except TaskRevokedError as error:
            assert "lock 'invoice:a' not acquired" in str(error)
            states["skipped"] += 1
    assert states == {"done a": 1, "skipped": 5}
    assert len(floor.noted("a", "begun")) == len(floor.noted("a", "done")) == 1
    assert floor.result(floor.pay.delay("a")) == "done a", "what is over may be asked for again"


def test_those_who_try_again_all_get_their_turn_one_at_a_time(floor: Floor) -> None:
    sent = [floor.count.apply_async(["n"], queue=("forked", "threaded")[n % 2]) for n in range(10)]
    assert sorted(floor.result(one) for one in sent) == list(range(1, 11))
    tokens = [token for _, token, _ in floor.noted("n", "done")]
    assert tokens == sorted(set(tokens))
    assert len({pid for _, _, pid in floor.noted("n", "done")}) > 1, "all were done by one process"


def test_a_child_killed_in_the_middle_is_followed_by_one_that_does_it(floor: Floor) -> None:
    for number in range(ROUNDS):
        key = f"killed-{number}"
        sent = floor.pay.apply_async([key], queue="forked")
        _, first, pid = floor.begun(key)
        os.kill(pid, signal.SIGKILL)
        _, second, other = floor.begun(key, 2)
        assert other != pid and second > first
        twin = floor.pay.delay(key, 7)
        wait_until(lambda twin=twin: twin.state == "REVOKED", "another one is still skipped")
        go(floor.url, key)
        assert floor.result(sent) == f"done {key}"
        assert len(floor.noted(key, "begun")) == 2
        assert len(floor.noted(key, "done")) == 1


def test_a_task_delivered_again_while_it_runs_is_neither_skipped_nor_run_twice(floor: Floor) -> None:
    """It comes back later, and finds the result that was kept."""
    first = floor.kept.delay("twice")
    floor.begun("twice")
    floor.kept.apply_async(["twice"], task_id=first.id)
    wait_until(lambda: first.state == "RETRY", "the second delivery was sent on")
    go(floor.url, "twice")
    wait_until(lambda: len(floor.noted("twice", "done")) == 1, "it was done")
    with Client(floor.url, namespace="tasks") as locks:
        wait_until(lambda: locks.list() == [], "nobody is at it")
    third = floor.kept.apply_async(["twice"], task_id=first.id)
    wait_until(lambda: first.state == "SUCCESS", "it has ended")
    assert floor.result(first) == floor.result(third) == "done twice"
    assert len(floor.noted("twice", "begun")) == 1


def test_a_key_whose_result_is_kept_is_never_run_again(floor: Floor) -> None:
    sent = [floor.forever.delay("f") for _ in range(3)]
    floor.begun("f")
    go(floor.url, "f")
    assert [floor.result(one) for one in sent] == ["done f"] * 3
    assert floor.result(floor.forever.delay("f")) == "done f"
    assert len(floor.noted("f", "begun")) == 1


def test_tasks_that_have_lost_their_leases_have_no_results(floor: Floor) -> None:
    """In either pool, whether they look or return as if nothing had happened."""
    for queue in ("threaded", "forked"):
        looking, blind = f"{queue}-looking", f"{queue}-blind"
        sent = {key: floor.pay.apply_async([key, 0, key == looking], queue=queue) for key in (looking, blind)}
        with Client(floor.url, namespace="tasks") as locks:
            for key in sent:
                floor.begun(key)
                locks.force_release(f"invoice:{key}")
        for key, one in sent.items():
            with pytest.raises(Exception, match=rf"LeaseLost.*invoice:{key}"):  # JSON has brought it here
                floor.result(one)
        assert (len(floor.noted(looking, "done")), len(floor.noted(blind, "done"))) == (0, 1)


def test_a_task_that_is_called_as_a_function_has_its_turn_too(floor: Floor) -> None:
    go(floor.url, "direct")
    assert floor.pay("direct") == "done direct"
    taken = Client(floor.url, namespace="tasks")
    with taken, taken.lock("invoice:direct"), pytest.raises(AcquireTimeout):
        floor.pay("direct")
