"""A browser that looks at a dashboard: what the tests ask of the page, in words.

The hooks are attributes and ids that the page keeps stable: rows are `[data-lock]`, their bars `.bar`.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli_helpers import running
from crew import PATIENCE
from tools.browser import Browser

__all__ = ["ROUTES", "View", "dashboard"]

ROUTES = ("", "plots", "leaders", "semaphores", "jobs", "backends", "audit")
ADDRESS = re.compile(r"http://[\w.:\[\]]+")
ROWS = "return [...document.querySelectorAll('[data-lock]')].map(row => row.dataset.lock)"
PERCENT = """
    const row = [...document.querySelectorAll('[data-lock]')].find(row => row.dataset.lock === arguments[0]);
    const bar = row && row.querySelector('.bar');
    const percent = bar ? Number(bar.getAttribute('aria-valuenow') ?? bar.value) : null;
"""
THERE = "return [...document.querySelectorAll('[data-lock]')].some(row => row.dataset.lock === arguments[0])"
READS = """
    const shown = document.querySelector(arguments[0]);
    return shown !== null && shown.checkVisibility() && shown.innerText.includes(arguments[1]);
"""
UNTIL = """
    const given = [...arguments], done = given.pop(), deadline = Date.now() + 1000 * SECONDS;
    const ask = function () { SCRIPT };
    const look = () => {
        const answer = ask(...given);
        if (answer || Date.now() > deadline) return done({ answer, at: Date.now() / 1000 });
        setTimeout(look, 10);
    };
    look();
"""


@contextlib.contextmanager
def dashboard(folder: Path, *urls: str, port: int = 0, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Run `fencelock dashboard` over these backends, and yield its address once it answers."""
    words = [word for url in urls for word in ("--url", url)]
    words += ["--port", str(port), "--audit-log", str(folder / "audit.log"), *options]
    with running("", "dashboard", *words) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = ADDRESS.search(line)
        assert found, f"no address: {line!r} {process.stderr.read() if process.stderr and not line else ''}"
        yield found[0].rstrip("/")
        process.terminate()
        assert process.wait(30) == 0


class View:
    """One page of the dashboard."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser = browser
        self.address = address

    def open(self, route: str = "") -> None:
        """Load the page anew; return when the first picture is there."""
        self.browser.open("about:blank")  # the same address with another hash would load nothing
        self.browser.open(f"{self.address}/#/{route}")
        self.wait_connected()

    def home(self) -> None:
        """The list of all locks, without a dialog before it; loaded anew only if another page is open."""
        if not self.browser.driver.current_url.startswith(f"{self.address}/#"):
            self.open()
        self.browser.run("for (const each of document.querySelectorAll('dialog[open]')) each.close()")
        self.go("")

    def wait_connected(self) -> None:
        self.shows("body[data-connected=true]")

    def connected(self) -> bool:
        return bool(self.browser.all("body[data-connected=true]"))

    def go(self, route: str) -> None:
        """Follow a link within the page."""
        self.browser.run("location.hash = arguments[0]", f"#/{route}")
        # The page draws when it hears of the new hash, which is a task later, and then in a frame.
        self.browser.wait_for(
            "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => done()), 0)"
        )

    def go_to_lock(self, name: str, backend: str = "b0") -> None:
        self.go(f"lock/{backend}/{quote(name, safe='')}")
        self.shows("[data-break]")

    def rows(self) -> list[str]:
        names: list[str] = self.browser.run(ROWS)
        return names

    def until(self, script: str, what: str, *arguments: object) -> float:
        """Wait in the page until a script returns something true, and say when: it costs less than asking."""
        source = UNTIL.replace("SCRIPT", script).replace("SECONDS", str(PATIENCE))
        found = self.browser.wait_for(source, *arguments)
        assert found["answer"], f"not within {PATIENCE:g}s: {what}"
        return float(found["at"])

    def seen(self, name: str) -> float:
        """Wait for a lock's row, and say when it was there."""
        return self.until(THERE, f"a row for {name!r}", name)

    def gone(self, name: str) -> float:
        """Wait until it is not there any more, and say when."""
        return self.until(THERE.replace("return ", "return !"), f"no row for {name!r}", name)

    def reads(self, text: str, selector: str = "main") -> None:
        """Wait until this is to be read there."""
        self.until(READS, f"{text!r} in {selector}", selector, text)

    def shows(self, selector: str) -> None:
        """Wait until something is there."""
        self.until("return document.querySelector(arguments[0]) !== null", selector, selector)

    def bar(self, name: str) -> float:
        """How much of its lease is left, in percent."""
        return float(self.browser.run(PERCENT + "return percent", name))

    def falls(self, name: str, percent: float) -> None:
        """Wait until there is less."""
        script = PERCENT + "return percent !== null && percent < arguments[1]"
        self.until(script, f"a bar below {percent:g}%", name, percent)

    def text(self, selector: str = "body") -> str:
        """What is to be read there."""
        return str(self.browser.run("return document.querySelector(arguments[0]).innerText", selector))

    def type_search(self, text: str) -> None:
        box = self.browser.one("#search")
        box.clear()
        box.send_keys(text)

    def break_it(self, reason: str) -> None:
        """Through the dialog, as a person does it."""
        self.browser.one("[data-break]").click()
        self.shows("#break-dialog[open]")
        self.browser.one("#break-reason").send_keys(reason)
        self.browser.one("#break-confirm").click()

    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit log, as the page can ask for them."""
        ask = "const done = arguments[0]; fetch('/api/audit').then(answer => answer.text()).then(done)"
        answer: list[dict[str, Any]] = json.loads(self.browser.wait_for(ask))
        return answer
