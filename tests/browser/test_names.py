"""Whoever takes a lock chooses its name, its metadata and a client's name: on the page they are text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from selenium.webdriver.support.expected_conditions import alert_is_present
from view import ROUTES, View

import holdfast

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
CONTROL = "evil\x1b]0;title\x07\x1b[2J\r\n\x85"
BIDI = "gnp.\u202eexe\u2066\u200f"
NAMES = (
    SCRIPT,
    IMAGE,
    CONTROL,
    BIDI,
    "javascript:alert(1)",
    "a/b c?d#e%2F&f",
    "{{csrf}} ${name}",
    "\U0001f512" * 30,
)
SHOWN = {CONTROL: r"evil\x1b]0;title\x07\x1b[2J\r\n\x85", BIDI: r"gnp.\u202eexe\u2066\u200f"}
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
ELEMENTS = """
    const own = [...document.querySelectorAll('script')].filter(each => !each.src);
    const made = [...document.querySelectorAll('img[src=x], [onerror], [onclick], [href^="javascript:"]')];
    return [...own, ...made].map(each => each.outerHTML);
"""
ATTRIBUTES = """
    const all = [...document.querySelectorAll('body *')];
    return all.flatMap(each => [each.title, each.ariaLabel]).filter(each => typeof each === 'string');
"""


@pytest.fixture(scope="module")
def taken(server: Any) -> Iterator[None]:
    """All these locks, taken by a client with such a name and such metadata, and a slot of a semaphore."""
    with (
        holdfast.Client(server.url, client_name=f"{SCRIPT}\x1b[31m") as locks,
        contextlib.ExitStack() as stack,
    ):
        for name in NAMES:
            stack.enter_context(locks.lock(name, ttl=300, metadata={SCRIPT: [IMAGE, BIDI]}))
        stack.enter_context(locks.semaphore(f"slots {SCRIPT}", 3, ttl=300))
        stack.enter_context(locks.lock(f"text {SCRIPT}", ttl=300, metadata=f"{IMAGE}\x1b{BIDI}"))
        stack.enter_context(waiting(server.url, SCRIPT))
        yield


@contextlib.contextmanager
def waiting(url: str, name: str) -> Iterator[None]:
    """Somebody who waits, so that the plots name the lock."""
    with Crew() as crew, holdfast.Client(url) as locks:
        crew.python(
            "import sys, holdfast; holdfast.Client(sys.argv[1]).lock(sys.argv[2]).acquire()", url, name
        )
        wait_until(lambda: locks.inspect(name).waiters, "a waiter")
        yield


def is_harmless(view: View) -> None:
    """Nothing ran, nothing was made of it, nothing is hidden."""
    assert not alert_is_present()(view.browser.driver)
    assert view.browser.run(ELEMENTS) == []
    texts = [view.text(), view.browser.driver.title, *view.browser.run(ATTRIBUTES)]
    assert [text for text in texts if HIDDEN.search(text)] == []
    assert view.browser.errors() == []


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("route", ROUTES)
def test_names_are_text_in_every_view(view: View, route: str) -> None:
    if not route:
        view.seen(SCRIPT)
        for name in NAMES:
            assert SHOWN.get(name, name) in view.text("main")
    view.go(route)
    if route == "plots":
        view.reads(SCRIPT)
    view.browser.wait_for("setTimeout(arguments[0], 700)")  # a poll later: what comes by a change is text too
    is_harmless(view)


@pytest.mark.usefixtures("taken")
@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_on_the_page_of_the_lock_and_in_its_dialog(view: View, name: str) -> None:
    view.seen(name)
    view.go_to_lock(name)
    shown = SHOWN.get(name, name)
    view.reads(shown)
    view.reads(IMAGE)
    wait_until(lambda: shown[:8] in view.browser.driver.title, "the title names the lock")
    view.browser.one("[data-break]").click()
    view.reads(shown, "#break-dialog")
    is_harmless(view)


@pytest.mark.parametrize("name", [SCRIPT, CONTROL, BIDI])
def test_a_reason_is_text_in_the_audit(view: View, server: Any, name: str) -> None:
    with holdfast.Client(server.url) as locks:
        lease = locks.lock(f"broken {name}", ttl=300).acquire()
        view.seen(f"broken {name}")
        view.go_to_lock(f"broken {name}")
        view.break_it(f"because {IMAGE} {BIDI}")
        wait_until(lambda: not lease.verify(), "it is broken")
    view.go("audit")
    view.reads(f"broken {SHOWN.get(name, name)}")
    assert f"because {IMAGE} {SHOWN[BIDI]}" in view.text("main")
    is_harmless(view)
