"""Take the pictures of the dashboard: `python -m tools.pictures [--to docs/pictures] [--seconds 240]`.

A company of six hosts works on a Redis that is set up badly, on purpose, and on a PostgreSQL. After a while,
so that the plots have something to show, every view is taken as a desktop and as a phone, light and dark.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import sqlalchemy
from PIL import Image
from tools.browser import DESKTOP, PHONE, Browser, Theme
from tools.pictures.scene import HOSTS, STUCK
from tools.servers import start

from fencelock import jobs

ROOT = Path(__file__).resolve().parents[2]
BAD = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory": "100mb",
    "maxmemory-policy": "allkeys-lru",
}
LOCK = f"lock/b0/{quote(STUCK, safe='')}"
EVERYWHERE = {"list": "", "lock": LOCK, "plots": "plots", "backends": "backends"}
"""These at both sizes and in both themes."""
ONCE = {"leaders": "leaders", "semaphores": "semaphores", "jobs": "jobs"}
SIZES = {"desktop": DESKTOP, "phone": PHONE}
THEMES: tuple[Theme, ...] = ("light", "dark")
COLOURS = 160
REASON = "etl-1 was shut down for repair, its import is repeated tonight"
PATIENCE = 60.0
READY = """
    const told = document.querySelector('main').innerText;
    return document.body.dataset.connected === 'true' && !/Looking|is being examined/.test(told);
"""
ADDRESS = re.compile(r"http://[\w.:]+")
FENCELOCK = Path(sys.executable).parent / "fencelock"


@contextlib.contextmanager
def process(*command: object, read: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Run a program beside this one, and end it."""
    output = subprocess.PIPE if read else subprocess.DEVNULL
    words = list(map(str, command))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output, text=True, cwd=ROOT) as running:
        try:
            yield running
        finally:
            running.kill()


@contextlib.contextmanager
def dashboard(folder: Path, urls: Sequence[str], table: str) -> Iterator[str]:
    """Run it; yield its address."""
    words = [word for url in urls for word in ("--url", url)]
    options = ("--jobs", table, "--port", 0, "--audit-log", folder / "audit.log")
    with process(FENCELOCK, "dashboard", *words, *options, read=True) as running:
        assert running.stdout is not None
        found = ADDRESS.search(running.stdout.readline())
        assert found, "the dashboard did not say its address"
        yield found[0]


@contextlib.contextmanager
def company(urls: Sequence[str], table: str) -> Iterator[None]:
    """Six hosts at work."""
    with contextlib.ExitStack() as stack:
        for host in HOSTS:
            words = (sys.executable, "-m", "tools.pictures.scene", host, *urls, table)
            stack.enter_context(process(*words))
        yield


def look(browser: Browser, address: str, route: str) -> None:
    """Open a view, and let it settle."""
    browser.open("about:blank")
    browser.open(f"{address}/#/{route}")
    deadline = time.monotonic() + PATIENCE
    while not browser.run(READY):
        if time.monotonic() > deadline:
            sys.exit(f"#/{route} shows nothing within {PATIENCE:g}s")
        time.sleep(0.1)
    time.sleep(2)


def keep(browser: Browser, path: Path) -> None:
    """Write a picture with few colours: a page of text and bars needs no more."""
    image = Image.open(io.BytesIO(browser.picture())).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def take_all(browser: Browser, address: str, folder: Path) -> None:
    """Every view that the docs show."""
    for theme in THEMES:
        browser.show_as(theme)
        for kind, size in SIZES.items():
            browser.resize(size)
            for view, route in EVERYWHERE.items():
                look(browser, address, route)
                keep(browser, folder / f"dashboard-{view}-{kind}-{theme}.png")
    browser.resize(DESKTOP)
    browser.show_as("light")
    for view, route in ONCE.items():
        look(browser, address, route)
        keep(browser, folder / f"dashboard-{view}.png")


def take_break(browser: Browser, address: str, folder: Path) -> None:
    """Somebody breaks a lock, and what is told of it."""
    look(browser, address, LOCK)
    browser.one("[data-break]").click()
    browser.one("#break-reason").send_keys(REASON)
    time.sleep(1)
    keep(browser, folder / "dashboard-break.png")
    browser.one("#break-confirm").click()
    time.sleep(1)
    look(browser, address, "audit")
    keep(browser, folder / "dashboard-audit.png")


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    options.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures")
    options.add_argument("--seconds", type=float, default=240.0, help="how long the company works before")
    given = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(start("redis", settings=BAD)).url
        database = stack.enter_context(start("postgres", settings={"max_connections": "300"})).url
        table = database.replace("postgresql://", "postgresql+psycopg://")
        jobs.Table(sqlalchemy.create_engine(table)).create()
        address = stack.enter_context(dashboard(folder, (redis, database), table))
        browser = stack.enter_context(Browser())
        look(browser, address, "")  # from the beginning: what happens while nobody looks is not seen
        stack.enter_context(company((redis, database), table))
        time.sleep(given.seconds)
        take_all(browser, address, given.to)
        take_break(browser, address, given.to)


if __name__ == "__main__":
    main()
