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
from crew import wait_until
from tools.browser import Browser

__all__ = ["ROUTES", "View", "dashboard"]

ROUTES = ("", "plots", "leaders", "semaphores", "jobs", "backends", "audit")
ADDRESS = re.compile(r"http://[\w.:\[\]]+")
ROWS = "return [...document.querySelectorAll('[data-lock]')].map(row => row.dataset.lock)"
BAR = """
    const row = [...document.querySelectorAll('[data-lock]')].find(row => row.dataset.lock === arguments[0]);
    const bar = row && row.querySelector('.bar');
    return bar ? Number(bar.getAttribute('aria-valuenow') ?? bar.value) : null;
"""
WHEN = """
    const [name, wanted, done] = arguments;
    const there = () => [...document.querySelectorAll('[data-lock]')].some(row => row.dataset.lock === name);
    const look = () => there() === wanted ? done(Date.now() / 1000) : setTimeout(look, 5);
    look();
"""


@contextlib.contextmanager
def dashboard(folder: Path, *urls: str, port: int = 0, options: tuple[str, ...] = ()) -> Iterator[str]:
    """Run `holdfast dashboard` over these backends, and yield its address once it answers."""
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

    def wait_connected(self) -> None:
        wait_until(self.connected, "the page is connected")

    def connected(self) -> bool:
        return bool(self.browser.run("return document.body.dataset.connected === 'true'"))

    def go(self, route: str) -> None:
        """Follow a link within the page."""
        self.browser.run("location.hash = arguments[0]", f"#/{route}")
        # The page draws when it hears of the new hash, which is a task later, and then in a frame.
        self.browser.wait_for(
            "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => done()), 0)"
        )

    def go_to_lock(self, name: str, backend: str = "b0") -> None:
        self.go(f"lock/{backend}/{quote(name, safe='')}")
        wait_until(lambda: self.browser.all("[data-break]"), f"the page of {name!r}")

    def rows(self) -> list[str]:
        names: list[str] = self.browser.run(ROWS)
        return names

    def seen(self, name: str) -> float:
        """Wait for a lock's row, and say when it was there."""
        return float(self.browser.wait_for(WHEN, name, True))

    def gone(self, name: str) -> float:
        """Wait until it is not there any more, and say when."""
        return float(self.browser.wait_for(WHEN, name, False))

    def bar(self, name: str) -> float | None:
        """How much of its lease is left, in percent."""
        percent: float | None = self.browser.run(BAR, name)
        return percent

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
        wait_until(lambda: self.browser.all("#break-dialog[open]"), "the dialog is open")
        self.browser.one("#break-reason").send_keys(reason)
        self.browser.one("#break-confirm").click()

    def audit(self) -> list[dict[str, Any]]:
        """The lines of the audit log, as the page can ask for them."""
        ask = "const done = arguments[0]; fetch('/api/audit').then(answer => answer.text()).then(done)"
        answer: list[dict[str, Any]] = json.loads(self.browser.wait_for(ask))
        return answer
