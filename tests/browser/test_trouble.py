"""When something is away the page says so and comes back by itself; who may not come in stays out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crew import wait_until
from tools.browser import Browser
from tools.servers import ports
from view import View, dashboard

import fencelock

TOKEN = "correct horse battery staple"
REFUSED = """
    const alert = document.querySelector('[role=alert]');
    return document.readyState === 'complete' && alert && alert.checkVisibility() ? alert.innerText : '';
"""


def wait_for_banner(view: View, text: str) -> None:
    view.reads(text, "#trouble")


def wait_for_no_banner(view: View) -> None:
    view.until("return !document.querySelector('#trouble').checkVisibility()", "the banner is gone")


def test_a_backend_that_goes_away_and_comes_back(view: View, server: Any, file: str) -> None:
    with fencelock.Client(file) as others, others.lock("still:here", ttl=300):
        view.seen("still:here")
        wait_for_no_banner(view)
        server.members[0].kill()
        try:
            wait_for_banner(view, "redis")
            assert "still:here" in view.rows(), "the other backend goes on"
        finally:
            server.members[0].restart()
        wait_for_no_banner(view)
        with fencelock.Client(server.url) as locks, locks.lock("back:again"):
            view.seen("back:again")
    assert view.connected()


def test_the_dashboard_itself_is_restarted(browser: Browser, server: Any, folder: Path) -> None:
    port = ports.take()
    with fencelock.Client(server.url) as locks, locks.lock("kept:1", ttl=300):
        with dashboard(folder, server.url, port=port) as address:
            view = View(browser, address)
            view.open()
            view.seen("kept:1")
        view.shows("body[data-connected=false]")
        wait_for_banner(view, "dashboard")
        with dashboard(folder, server.url, port=port), locks.lock("new:1"):
            view.seen("new:1")
            assert view.connected()
            wait_for_no_banner(view)
            assert sorted(view.rows()) == ["kept:1", "new:1"], "no row twice"
            browser.open("about:blank")
        assert [line for line in browser.errors() if "ERR_CONNECTION_REFUSED" not in line] == []


def test_nobody_comes_in_without_the_token_and_read_only_breaks_nothing(
    browser: Browser, server: Any, folder: Path
) -> None:
    secret = folder / "token"
    secret.write_text(TOKEN + "\n")
    options = ("--token-file", str(secret), "--read-only")
    with (
        fencelock.Client(server.url) as locks,
        locks.lock("look:only", ttl=300),
        dashboard(folder, server.url, options=options) as address,
    ):
        browser.open(address)
        assert browser.driver.current_url == f"{address}/login"
        assert browser.errors() == []
        browser.one("[name=token]").send_keys("a guess\n")
        wait_until(lambda: browser.run(REFUSED), "refused")
        assert "data-connected" not in browser.driver.page_source
        browser.one("[name=token]").send_keys(f"{TOKEN}\n")
        wait_until(lambda: browser.all("body[data-connected=true]"), "let in")
        assert TOKEN not in browser.driver.page_source + browser.driver.current_url
        assert browser.driver.get_cookies() and all(each["httpOnly"] for each in browser.driver.get_cookies())
        assert [line for line in browser.errors() if "401" not in line] == []

        view = View(browser, address)
        view.seen("look:only")
        view.go("lock/b0/look%3Aonly")
        view.reads("look:only")
        view.shows(".holder")
        assert not [each for each in browser.all("[data-break]") if each.is_displayed()]
        browser.press("b")
        assert not browser.all("#break-dialog[open]")
        assert browser.errors() == []
        browser.open("about:blank")
