"""For everybody: without a mouse, with a screen reader, in the dark, on a phone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from crew import wait_until
from looks import faint, headings, roles, too_wide, unnamed
from selenium.webdriver.common.keys import Keys
from tools.browser import DESKTOP, PHONE, Browser, Theme
from view import ROUTES, View

import holdfast

THEMES = get_args(Theme)
LONG = "report:" + "a-name-without-a-break" * 6
SMALL = (360, 740)
RING = """
    const focused = document.activeElement, style = getComputedStyle(focused);
    return focused === document.body || style.outlineStyle !== 'none' || style.boxShadow !== 'none';
"""


@pytest.fixture(scope="module", autouse=True)
def scene(server: Any, file: str) -> Iterator[None]:
    """A little of everything."""
    with (
        holdfast.Client(server.url) as locks,
        holdfast.Client(file) as others,
        contextlib.ExitStack() as stack,
    ):
        stack.enter_context(locks.lock("invoice:42", ttl=300, metadata={"order": 42}))
        stack.enter_context(locks.semaphore("licences", 4, ttl=300))
        stack.enter_context(others.lock(LONG, ttl=300, metadata={"path": LONG}))
        stack.enter_context(others.rwlock("catalogue", ttl=300).read())
        yield


@pytest.fixture
def phone(browser: Browser) -> Iterator[Browser]:
    browser.resize(PHONE)
    yield browser
    browser.resize(DESKTOP)


def every_view(view: View) -> Iterator[str]:
    """Each view in turn, the page of a lock and its dialog at last."""
    view.seen("invoice:42")
    for route in ROUTES:
        view.go(route)
        yield f"#/{route}"
    view.go("backends")
    view.reads("With this set-up holdfast promises")
    yield "#/backends, examined"
    view.go_to_lock(LONG, "b1")
    yield "a lock"
    view.browser.one("[data-break]").click()
    view.shows("#break-dialog[open]")
    yield "the dialog"
    view.browser.press(Keys.ESCAPE)


def test_a_screen_reader_finds_names_headings_and_landmarks(view: View) -> None:
    for where in every_view(view):
        assert unnamed(view.browser) == [], where
        if where != "the dialog":  # behind it, all else is out of reach
            assert headings(view.browser).count(1) == 1, f"one title: {where}"
            assert {"main", "navigation"} <= roles(view.browser), where
    live = view.browser.one("#live")
    assert live.get_attribute("aria-live") == "polite" or live.get_attribute("role") == "status"


def test_the_list_says_how_it_is_sorted_and_how_long_it_is(view: View) -> None:
    view.seen("invoice:42")
    assert view.browser.all("[aria-sort=ascending], [aria-sort=descending]")
    assert int(view.browser.one("[aria-rowcount]").get_attribute("aria-rowcount") or 0) >= 4
    assert roles(view.browser) & {"table", "grid"}
    assert {"row", "columnheader", "meter"} <= roles(view.browser)


@pytest.mark.parametrize("theme", THEMES)
def test_contrast(view: View, theme: Theme) -> None:
    view.browser.show_as(theme)
    for where in every_view(view):
        assert faint(view.browser) == [], f"{where}, {theme}"


def test_the_theme_can_be_chosen_and_is_kept(view: View) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    view.browser.show_as("light")
    before = view.browser.run(ground)
    toggle = view.browser.one("[data-theme-toggle]")
    for _ in range(3):  # there may be a third choice: as the system says
        if view.browser.run(ground) == before:
            toggle.click()
    chosen = view.browser.run(ground)
    assert chosen != before
    view.open()
    assert view.browser.run(ground) == chosen
    view.browser.run("localStorage.clear()")


@pytest.mark.parametrize("size", [PHONE, SMALL], ids=str)
def test_a_phone_does_not_scroll_sideways(view: View, phone: Browser, size: tuple[int, int]) -> None:
    phone.resize(size)
    view.open()
    for where in every_view(view):
        assert too_wide(phone) == [], where
    assert phone.errors() == []


def test_a_lock_is_found_opened_and_broken_by_keyboard_alone(view: View, server: Any) -> None:
    with holdfast.Client(server.url) as locks:
        lease = locks.lock("stuck:7").acquire()
        view.seen("stuck:7")
        press = view.browser.press
        press("/", "stuck")
        assert view.browser.run("return document.activeElement.id") == "search"
        wait_until(lambda: view.rows() == ["stuck:7"], "found")
        press(Keys.ENTER)
        if "#/lock/" not in view.browser.driver.current_url:
            press(Keys.ARROW_DOWN, Keys.ENTER)
        wait_until(lambda: "#/lock/b0/stuck" in view.browser.driver.current_url, "opened")
        wait_until(lambda: view.browser.all("[data-break]"), "its page")
        press("b")
        wait_until(lambda: view.browser.all("#break-dialog[open]"), "the dialog")
        wait_until(
            lambda: view.browser.run("return document.activeElement.id") == "break-reason",
            "asked for a reason",
        )
        press("its host is gone")
        for _ in range(6):
            if view.browser.run("return document.activeElement.id") == "break-confirm":
                break
            press(Keys.TAB)
        press(Keys.ENTER)
        wait_until(lambda: not lease.verify(), "broken")
    assert view.browser.errors() == []


def test_tab_reaches_every_control_with_a_visible_focus(view: View) -> None:
    view.seen("invoice:42")
    reached = set()
    for _ in range(40):
        view.browser.press(Keys.TAB)
        reached.add(view.browser.run("return document.activeElement.outerHTML.slice(0, 80)"))
        assert view.browser.run(RING), view.browser.run(
            "return document.activeElement.outerHTML.slice(0, 200)"
        )
    assert any("search" in each for each in reached)
    assert any("data-sort" in each for each in reached)
    assert any("data-theme-toggle" in each for each in reached)


def test_the_looks_have_eyes(browser: Browser, address: str) -> None:
    """A page with these faults would not pass."""
    browser.open(f"{address}/healthz")
    browser.run(
        "document.body.innerHTML = '<button></button><p>grey</p><input><div>wide</div>';"
        "document.querySelector('p').style.color = '#999';"
        "document.querySelector('div').style.width = '5000px';"
    )
    assert [each.partition(":")[0] for each in unnamed(browser)] == ["button", "textbox"]
    assert [each[:4] for each in faint(browser)] == ["2.85"]
    assert len(too_wide(browser)) == 1
