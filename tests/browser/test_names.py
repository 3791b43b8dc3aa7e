"""Whoever takes a lock chooses its name, its metadata and a client's name: on the page they are text."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from crew import Crew, wait_until
from view import ROUTES, View

import fencelock

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
CONTROL = "evil\x1b]0;title\x07\x1b[2J\r\n\x85"
BIDI = "gnp.\u202eexe\u2066\u200f"
NAMES = (
    *(SCRIPT, IMAGE, CONTROL, BIDI),
    *("javascript:alert(1)", "a/b c?d#e%2F&f", "{{csrf}} ${name}", "\U0001f512" * 30),
)
SHOWN = {CONTROL: r"evil\x1b]0;title\x07\x1b[2J\r\n\x85", BIDI: r"gnp.\u202eexe\u2066\u200f"}
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
MADE = """
    const own = [...document.querySelectorAll('script')].filter(each => !each.src);
    const made = [...document.querySelectorAll('img[src=x], [onerror], [onclick], [href^="javascript:"]')];
    return [...own, ...made].map(each => each.outerHTML);
"""
TEXTS = """
    const told = [...document.querySelectorAll('body *')].flatMap(each => [each.title, each.ariaLabel]);
    return [document.body.innerText, document.title, ...told].filter(each => typeof each === 'string');
"""


@pytest.fixture(scope="module", autouse=True)
def taken(server: Any) -> Iterator[None]:
    """All these locks, taken by a client with such a name and such metadata, and a slot of a semaphore."""
    with (
        fencelock.Client(server.url, client_name=f"{SCRIPT}\x1b[31m") as locks,
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
    with Crew() as crew, fencelock.Client(url) as locks:
        crew.python(
            "import sys, fencelock; fencelock.Client(sys.argv[1]).lock(sys.argv[2]).acquire()", url, name
        )
        wait_until(lambda: locks.inspect(name).waiters, "a waiter")
        yield


def is_harmless(view: View) -> None:
    """Nothing ran, nothing was made of it, nothing is hidden. With an open alert no script would run."""
    assert view.browser.run(MADE) == []
    assert [text for text in view.browser.run(TEXTS) if HIDDEN.search(text)] == []
    assert view.browser.errors() == []


def test_names_are_text_in_every_view(view: View) -> None:
    view.seen(SCRIPT)
    for name in NAMES:
        assert SHOWN.get(name, name) in view.text("main")
    for route in ROUTES:
        view.go(route)
        if route in ("plots", "semaphores"):
            view.reads(SCRIPT)
        is_harmless(view)


def test_names_are_text_in_what_comes_later(view: View, locks: fencelock.Client) -> None:
    with locks.lock(f"later {SCRIPT}{BIDI}"):
        view.seen(f"later {SCRIPT}{BIDI}")
        is_harmless(view)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_on_the_page_of_the_lock_and_in_its_dialog(view: View, name: str) -> None:
    view.go_to_lock(name)
    shown = SHOWN.get(name, name)
    view.reads(shown)
    view.reads(IMAGE)
    view.until("return document.title.includes(arguments[0])", "the title names the lock", shown[:8])
    view.browser.one("[data-break]").click()
    view.reads(shown, "#break-dialog")
    is_harmless(view)


def test_a_reason_is_text_in_the_audit(view: View, locks: fencelock.Client) -> None:
    name, shown = f"broken {SCRIPT}{CONTROL}{BIDI}", f"broken {SCRIPT}{SHOWN[CONTROL]}{SHOWN[BIDI]}"
    lease = locks.lock(name, ttl=300).acquire()
    view.seen(name)
    view.go_to_lock(name)
    view.break_it(f"because {IMAGE} {BIDI}")
    wait_until(lambda: not lease.verify(), "it is broken")
    view.go("audit")
    view.reads(shown)
    view.reads(f"because {IMAGE} {SHOWN[BIDI]}")
    is_harmless(view)
