"""A dashboard over Redis and an SQLite file, and a Chromium that looks at it: one of each for all tests here.

Starting them costs more than what most tests do with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crew import Crew, sqlite_url
from tools.browser import Browser
from tools.servers import start
from view import View, dashboard

import fencelock


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    with start("redis", settings={"appendonly": "yes"}) as group:
        yield group


@pytest.fixture(scope="session")
def file(folder: Path) -> str:
    """The URL of the second backend."""
    return sqlite_url(folder)


@pytest.fixture(scope="session")
def address(server: Any, file: str, folder: Path) -> Iterator[str]:
    with fencelock.Client(file), dashboard(folder, server.url, file) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def view(browser: Browser, address: str) -> View:
    """The list of all locks."""
    view = View(browser, address)
    view.home()
    return view


@pytest.fixture
def locks(server: Any) -> Iterator[fencelock.Client]:
    with fencelock.Client(server.url, client_name="billing") as client:
        yield client


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as crew:
        yield crew
