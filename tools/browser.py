"""A real Chromium without a window, driven by a program: what it shows, says, asks for and weighs.

    from tools.browser import Browser

    with Browser() as browser:
        browser.open("http://127.0.0.1:8555/")
        browser.errors()                 # what the console complained about, since the last look
        browser.foreign_requests()       # addresses it asked for on other hosts

Debian's `chromium` and `chromium-driver` are installed when they are missing, in the way of the servers. Each
browser has a profile of its own in a temporary folder, and cannot resolve the name of another host: a request
that goes elsewhere fails, and is on the list. The sandbox is off for root only, where Chromium refuses it.

Promised: nothing stays behind, neither process nor folder, however the calling process ends.

Not promised: the same pixels on two machines; fonts and their smoothing differ.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.command import Command
from selenium.webdriver.remote.webelement import WebElement
from tools.servers import packages, proc
from tools.servers.keeper import keeper

__all__ = ["DESKTOP", "PHONE", "Browser", "Size", "Theme"]

NEEDS = (packages.CHROMIUM, packages.CHROMEDRIVER, packages.FONT)
Theme = Literal["dark", "light"]
Size = tuple[int, int]
DESKTOP: Size = (1280, 800)
PHONE: Size = (390, 844)
GRAVE = ("WARNING", "SEVERE")
PATIENCE = 120.0
"""How long a script may take to call back."""
SECONDS = 5.0
"""How long its processes may take to end."""
WEB = ("http", "https", "ws", "wss")
LOCAL = ("127.0.0.1", "localhost")
QUIET = (
    "--headless=new",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--enable-precise-memory-info",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--lang=en-GB",
    "--mute-audio",
    "--js-flags=--expose-gc",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Browser:
    """One Chromium with one page; it ends with its block."""

    def __init__(self, size: Size = DESKTOP, theme: Theme = "light") -> None:
        packages.install(NEEDS)
        self._folder = tempfile.mkdtemp(prefix="fencelock-browser-")
        keeper().add("folder", self._folder)
        self._service = _Service(packages.program("chromedriver"), env={**os.environ, "HOME": self._folder})
        try:
            self.driver = Chrome(options=_options(self._folder), service=self._service)
            self.driver.set_script_timeout(PATIENCE)
            self.resize(size)
            self.show_as(theme)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of this browser, and remove its folder."""
        family = self._service.family()
        if hasattr(self, "driver"):
            with contextlib.suppress(WebDriverException, OSError):
                self.driver.quit()
        self._service.end(family)
        shutil.rmtree(self._folder, ignore_errors=True)
        keeper().remove("folder", self._folder)

    # What it looks at.

    def open(self, url: str) -> None:
        """Load a page; return when it and its parts are there."""
        self.driver.get(url)

    def resize(self, size: Size) -> None:
        """Take a desktop's window, or a phone's: there with touch and two points for each dot."""
        width, height = size
        phone = size == PHONE
        metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.cdp("Emulation.setDeviceMetricsOverride", **metrics)
        self.cdp("Emulation.setTouchEmulationEnabled", enabled=phone)

    def show_as(self, theme: Theme) -> None:
        """Prefer dark or light, as the user's system would say it."""
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    # How it is asked.

    def cdp(self, command: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of Chromium's own protocol."""
        answer: dict[str, Any] = self.driver.execute_cdp_cmd(command, parameters)
        return answer

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, script: str, *arguments: object) -> Any:
        """Run a script that is given a function to call, and return what it calls it with."""
        return self.driver.execute_async_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """Every element that a CSS selector finds."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        """The first of them; an error if there is none."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(key)
        chain.perform()

    def picture(self) -> bytes:
        """What is to be seen, as a PNG."""
        return base64.b64decode(self.cdp("Page.captureScreenshot", format="png")["data"])

    # What it has said and asked for.

    def errors(self) -> list[str]:
        """The console's warnings and errors since the last look; exceptions and refusals are among them."""
        return [
            f"{line['level']}: {line['message']}" for line in self._log("browser") if line["level"] in GRAVE
        ]

    def requests(self) -> list[str]:
        """The addresses asked for since the last look."""
        logged = (json.loads(line["message"])["message"] for line in self._log("performance"))
        asked = (each["params"] for each in logged if each["method"] == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in asked]

    def foreign_requests(self) -> list[str]:
        """Those of them that went to another host."""
        parts = [urlsplit(url) for url in self.requests()]
        return [part.geturl() for part in parts if part.scheme in WEB and part.hostname not in LOCAL]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.driver.execute(Command.GET_LOG, {"type": kind})["value"]
        return lines

    # What it weighs.

    def heap(self) -> int:
        """Bytes of JavaScript that are in use after a collection."""
        self.cdp("HeapProfiler.collectGarbage")
        return int(self.cdp("Runtime.getHeapUsage")["usedSize"])

    def memory(self) -> int:
        """Bytes of the page's own process that no other process shares."""
        return max(_private(pid) for pid in self._service.family() if _renders(pid))

    def cpu_seconds(self) -> float:
        """Processor time of all its processes that are alive."""
        return sum(_cpu_seconds(pid) for pid in self._service.family())


class _Service(ChromeService):
    """The driver's process, known to the keeper."""

    def start(self) -> None:
        super().start()
        self.identity = f"{self.process.pid} {proc.start_time(self.process.pid)}"
        keeper().add("process", self.identity)

    def family(self) -> dict[int, str | None]:
        """The process and its descendants, each with the time of its start."""
        if not hasattr(self, "identity"):
            return {}
        return {pid: proc.start_time(pid) for pid in proc.tree(self.process.pid)}

    def end(self, family: dict[int, str | None]) -> None:
        """End whoever of them is left after a polite end."""
        if not hasattr(self, "identity"):
            return
        proc.wait_gone(list(family), SECONDS)
        for pid, begun in family.items():
            if proc.runs(pid) and proc.start_time(pid) == begun:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        keeper().remove("process", self.identity)


def _options(folder: str) -> ChromeOptions:
    options = ChromeOptions()
    options.binary_location = packages.program("chromium")
    for each in (*QUIET, f"--user-data-dir={folder}/profile", "about:blank"):
        options.add_argument(each)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return options


def _renders(pid: int) -> bool:
    try:
        return b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _private(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    lines = (line.split() for line in text.splitlines() if line.startswith("Private_"))
    return sum(int(words[1]) * 1024 for words in lines)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
