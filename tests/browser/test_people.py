"""For everybody: without a mouse, with a screen reader, in the dark, on a phone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from crew import wait_until
from looks import Reader, faint, too_wide
from selenium.webdriver.common.keys import Keys
from tools.browser import DESKTOP, PHONE, Browser, Size, Theme
from view import ROUTES, View

import fencelock

PRESS = """
    const event = new KeyboardEvent("keydown", { key: arguments[0], bubbles: true });
    Object.defineProperty(event, "timeStamp", { value: arguments[1] });
    document.body.dispatchEvent(event);
"""
FULL = os.environ.get("FENCELOCK_BROWSER") == "all"
THEMES = get_args(Theme)
LONG = "report:" + "a-name-without-a-break" * 6
SMALL: Size = (360, 740)
PHONES = [PHONE, SMALL] if FULL else [SMALL]
FOCUS = """
    const focused = document.activeElement, style = getComputedStyle(focused);
    const ring = focused === document.body || style.outlineStyle !== 'none' || style.boxShadow !== 'none';
    return [focused.outerHTML.slice(0, 200), ring];
"""
GROUND = "return getComputedStyle(document.body).backgroundColor"
FOCUSED = "return document.activeElement.id === arguments[0]"


@pytest.fixture(scope="module", autouse=True)
def scene(server: Any, file: str) -> Iterator[None]:
    """A little of everything."""
    with (
        fencelock.Client(server.url) as locks,
        fencelock.Client(file) as others,
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(locks.lock("invoice:42", ttl=300, metadata={"order": 42}))
        stack.enter_context(locks.semaphore("licences", 4, ttl=300))
        stack.enter_context(locks.election("chief", ttl=300).lead())
        stack.enter_context(others.lock(LONG, ttl=300, metadata={"path": LONG}))
        stack.enter_context(others.rwlock("catalogue", ttl=300).read())
        yield


@pytest.fixture(params=PHONES, ids=lambda size: f"{size[0]}px")
def phone(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Browser]:
    browser.resize(request.param)
    yield browser
    browser.resize(DESKTOP)


def every_view(view: View) -> Iterator[str]:
    """Each view in turn, the page of a lock and its dialog at last."""
    view.seen("invoice:42")
    for route in ROUTES:
        view.go(route)
        if route == "backends":
            view.reads("With this set-up fencelock promises")
        yield f"#/{route}"
    view.go_to_lock(LONG, "b1")
    yield "a lock"
    view.browser.one("[data-break]").click()
    view.shows("#break-dialog[open]")
    yield "the dialog"
    view.browser.press(Keys.ESCAPE)


def test_names_for_a_screen_reader_and_contrast_in_both_themes(view: View) -> None:
    for where in every_view(view):
        reader = Reader(view.browser)
        assert reader.unnamed() == [], where
        if where != "the dialog":  # behind it, all else is out of reach
            assert reader.headings().count(1) == 1, f"one title: {where}"
            assert {"main", "navigation"} <= reader.roles, where
        for theme in THEMES:
            view.browser.show_as(theme)
            assert faint(view.browser) == [], f"{where}, {theme}"
    live = view.browser.one("#live")
    assert live.get_attribute("aria-live") == "polite" or live.get_attribute("role") == "status"
    assert view.browser.errors() == []


def test_the_list_says_how_it_is_sorted_and_how_long_it_is(view: View) -> None:
    view.seen("invoice:42")
    assert view.browser.all("[aria-sort=ascending], [aria-sort=descending]")
    assert int(view.browser.one("[aria-rowcount]").get_attribute("aria-rowcount") or 0) >= 4
    roles = Reader(view.browser).roles
    assert roles & {"table", "grid"}
    assert {"row", "columnheader", "meter"} <= roles


def test_the_theme_can_be_chosen_and_is_kept(view: View) -> None:
    view.browser.show_as("light")
    before = view.browser.run(GROUND)
    for _ in range(3):  # there may be a third choice: as the system says
        if view.browser.run(GROUND) == before:
            view.browser.one("[data-theme-toggle]").click()
    chosen = view.browser.run(GROUND)
    assert chosen != before
    view.open()
    assert view.browser.run(GROUND) == chosen
    view.browser.run("localStorage.clear()")
    view.open()


def test_a_phone_does_not_scroll_sideways(view: View, phone: Browser) -> None:
    for where in every_view(view):
        assert too_wide(phone) == [], where
    assert phone.errors() == []


def test_a_lock_is_found_opened_and_broken_by_keyboard_alone(view: View, locks: fencelock.Client) -> None:
    lease = locks.lock("stuck:7").acquire()
    view.seen("stuck:7")
    press = view.browser.press
    press("/", "stuck")
    view.until(FOCUSED, "the search has the focus", "search")
    wait_until(lambda: view.rows() == ["stuck:7"], "found")
    press(Keys.ENTER)
    view.until("return location.hash.startsWith('#/lock/b0/stuck')", "opened")
    view.shows("[data-break]")
    press("b")
    view.shows("#break-dialog[open]")
    view.until(FOCUSED, "a reason is asked for", "break-reason")
    press("its host is gone")
    for _ in range(6):
        if view.browser.run(FOCUSED, "break-confirm"):
            break
        press(Keys.TAB)
    press(Keys.ENTER)
    wait_until(lambda: not lease.verify(), "broken")
    assert view.browser.errors() == []


def test_a_letter_in_the_first_second_of_a_page_is_no_way_to_a_view(view: View) -> None:
    """Only after "g"; key events tell their time since the page was opened."""
    view.browser.run(PRESS, "b", 500)
    assert view.browser.run("return location.hash") == "#/"
    view.browser.run(PRESS, "g", 700)
    view.browser.run(PRESS, "b", 900)
    assert view.browser.run("return location.hash") == "#/backends"


def test_tab_reaches_every_control_with_a_visible_focus(view: View) -> None:
    view.seen("invoice:42")
    wanted = {'id="search"', "data-sort", "data-filter", "data-theme-toggle", "data-lock", 'href="#/plots"'}
    missing = set(wanted)
    for _ in range(40):
        view.browser.press(Keys.TAB)
        focused, ring = view.browser.run(FOCUS)
        assert ring, f"no ring: {focused}"
        missing -= {each for each in wanted if each in focused}
    assert missing == set()


def test_the_looks_have_eyes(browser: Browser, address: str) -> None:
    """A page with these faults would not pass."""
    browser.open(f"{address}/healthz")
    browser.run(
        "document.body.innerHTML = '<button></button><p>grey</p><input><div>wide</div>';"
        "document.querySelector('p').style.color = '#999';"
        "document.querySelector('div').style.width = '5000px';"
    )
    assert [each.partition(":")[0] for each in Reader(browser).unnamed()] == ["button", "textbox"]
    assert [each[:4] for each in faint(browser)] == ["2.85"]
    assert len(too_wide(browser)) == 1
