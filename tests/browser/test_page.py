"""The dashboard in a real Chromium: what is taken elsewhere appears, runs down, can be found and broken.

`FENCELOCK_BROWSER=all` repeats what is measured and holds it to the second that is promised; here the limit
is a generous one, since a busy machine is late with everything.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

import pytest
from crew import Crew, wait_until
from tools.browser import Browser
from view import ROUTES, View

import fencelock

FULL = os.environ.get("FENCELOCK_BROWSER") == "all"
ROUNDS = 20 if FULL else 2
SOON = 1.0 if FULL else 20.0
VISITS = 8 if FULL else 2
"""The other tests of the short form make up the number."""
HOLDER = """
import json, sys, time, fencelock

def say(**facts):
    print(json.dumps(facts), flush=True)

url, name, ttl = sys.argv[1], sys.argv[2], float(sys.argv[3])
with fencelock.Client(url, client_name="payments") as locks:
    for line in sys.stdin:
        lease = locks.lock(name, ttl=ttl, metadata={"step": "capture"}).acquire()
        say(at=time.time(), owner=lease.owner)
        if sys.stdin.readline().strip() == "release":
            lease.release()
            say(at=time.time())
        else:
            say(lost=lease.lost.wait(60), held=lease.is_held())
"""


@pytest.fixture
def holder(crew: Crew, server: Any) -> Any:
    """A process that takes `invoice:42` when it is told to."""
    return crew.python(HOLDER, server.url, "invoice:42", 3, name="holder")


def test_every_view_loads_without_a_complaint_and_asks_nobody_else(view: View) -> None:
    for route in ROUTES:
        view.go(route)
        assert view.text("main").strip(), f"nothing is shown at #/{route}"
    view.open("plots")
    asked = [url for url in view.browser.requests() if url.startswith("http")]
    assert f"{view.address}/" in asked and f"{view.address}/api/stream" in asked
    assert [url for url in asked if not url.startswith(f"{view.address}/")] == []
    assert view.browser.errors() == []


def test_a_page_that_is_left_gives_its_connection_back(view: View) -> None:
    """A browser has six for a host, and keeps pages for the way back: a seventh visit would wait for ever."""
    for _ in range(VISITS):
        view.open()


def test_a_lock_taken_elsewhere_appears_runs_down_and_disappears(view: View, holder: Any) -> None:
    late: dict[str, list[float]] = {"appears": [], "disappears": []}
    for _ in range(ROUNDS):
        holder.tell()
        taken = holder.hear()["at"]
        late["appears"].append(view.seen("invoice:42") - taken)
        first = view.bar("invoice:42")
        assert 0 < first <= 100
        view.falls("invoice:42", first - 5)
        holder.tell("release")
        released = holder.hear()["at"]
        late["disappears"].append(view.gone("invoice:42") - released)
    for what, seconds in late.items():
        print(
            f"{what}: median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s of {len(seconds)}"
        )
        assert max(seconds) < SOON
    assert view.browser.errors() == []


def test_breaking_it_makes_the_holders_lease_lost(view: View, holder: Any) -> None:
    holder.tell()
    owner = holder.hear()["owner"]
    view.seen("invoice:42")
    view.go_to_lock("invoice:42")
    assert "capture" in view.text(), "its metadata"
    view.break_it("the card was charged by hand")
    holder.tell("wait")
    assert holder.hear() == {"lost": True, "held": False}
    line = wait_until(view.audit, "a line in the audit log")[0]
    assert line["name"] == "invoice:42" and line["reason"] == "the card was charged by hand"
    assert owner in str(line)
    view.go("audit")
    view.reads("the card was charged by hand")
    view.go("")
    view.gone("invoice:42")
    assert view.browser.errors() == []


def test_a_break_needs_a_reason(view: View, locks: fencelock.Client) -> None:
    with locks.lock("invoice:43") as lease:
        view.seen("invoice:43")
        view.go_to_lock("invoice:43")
        view.browser.one("[data-break]").click()
        confirm = wait_until(lambda: view.browser.all("#break-dialog[open] #break-confirm"), "the dialog")[0]
        if confirm.is_enabled():
            confirm.click()
        assert view.browser.all("#break-dialog[open]"), "it stays until there is a reason"
        assert lease.verify()


def test_a_waiter_is_seen_in_the_queue(view: View, locks: fencelock.Client, crew: Crew, server: Any) -> None:
    with locks.lock("invoice:44"):
        crew.python(HOLDER, server.url, "invoice:44", 30, name="waiter").tell()
        wait_until(lambda: locks.inspect("invoice:44").waiters, "a waiter")
        view.seen("invoice:44")
        view.go_to_lock("invoice:44")
        view.reads("payments")
        view.reads("billing")


def test_two_backends_have_locks_of_the_same_name(view: View, locks: fencelock.Client, file: str) -> None:
    with fencelock.Client(file, client_name="reports") as others:
        with locks.lock("shared:name"), others.lock("shared:name"):
            wait_until(lambda: view.rows().count("shared:name") == 2, "a row for each backend")
        wait_until(lambda: "shared:name" not in view.rows(), "both are gone")


def test_search_filters_and_sorts(view: View, locks: fencelock.Client) -> None:
    with locks.multi(["apple:1", "apple:2", "pear:1"]):
        for name in ("apple:1", "apple:2", "pear:1"):
            view.seen(name)
        view.type_search("apple")
        wait_until(lambda: sorted(view.rows()) == ["apple:1", "apple:2"], "the apples alone")
        assert "2" in view.text("#count")
        for order in ("ascending", "descending"):
            while not view.browser.all(f"[aria-sort={order}] [data-sort=name]"):
                view.browser.one("[data-sort=name]").click()
            assert view.rows() == sorted(["apple:1", "apple:2"], reverse=order == "descending")
        assert "apple" in view.browser.driver.current_url, "a link keeps the search"
        view.type_search("nobody has this")
        wait_until(lambda: view.rows() == [], "nothing found")
    assert view.browser.errors() == []


def test_the_tests_have_eyes(browser: Browser, address: str) -> None:
    """What these tests look for would be found, if it were there."""
    browser.open(f"{address}/healthz")
    browser.errors(), browser.requests()
    browser.run("new Image().src = 'http://elsewhere.example/pixel.png'; console.error('planted')")
    wait_until(
        lambda: "http://elsewhere.example/pixel.png" in browser.foreign_requests(), "a foreign request"
    )
    browser.run("setTimeout(() => { throw new Error('thrown') }, 0)")
    wait_until(lambda: any("thrown" in line for line in browser.errors()), "an exception")
