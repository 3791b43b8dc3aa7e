"""The docs say what is: every example runs, every link leads somewhere, derived pages are current.

A page's blocks run in the order of the page, in one process of its own, in an empty folder,
with `$FENCELOCK_URL` set to a new SQLite file and the venv's programs first in `$PATH`:

    ```python               executed; all blocks of a page share one namespace
    ```python file=NAME     written to NAME in that folder, for a later block to run
    ```python no-run: WHY   shown only; there must be a reason
    ```sh                   run by bash -eu, a process for each block

Other blocks (text, console, toml) are for reading.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.apidocs import SAMPLES

from fencelock.backends import backend_from_url
from fencelock.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
LANGUAGES = {"python", "sh", "console", "text", "toml", "json", "sql", "make"}
MOST_NOT_RUN = 3
PAGE_LIMIT = 300
SHELL_LIMIT = 60

NEEDS_SERVERS = {"docs/reference/servers.md"}
"""Their Python starts servers that may have to be installed: tests/acceptance runs the same."""

DRIVER = """
import json, os, subprocess, sys, types

def run(steps):
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page
    sys.argv = ["example.py"]
    for kind, where, line, text in steps:
        print(f"--- {where}:{line}", flush=True)
        if kind == "python":
            exec(compile("\\n" * line + text, where, "exec"), page.__dict__)
        elif kind == "sh":
            subprocess.run(["bash", "-eu", "-c", text], check=True, timeout=SHELL_LIMIT)
        else:
            with open(kind, "w", encoding="utf-8") as file:
                file.write(text)

run(json.loads(sys.stdin.read()))
""".replace("SHELL_LIMIT", str(SHELL_LIMIT))


class Block(NamedTuple):
    """A fenced block: its info string, the number of its first line, its text."""

    info: str
    line: int
    text: str

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @property
    def option(self) -> str:
        return self.info.partition(" ")[2].strip()

    def kind(self) -> str:
        """How the driver is to treat it; '' if not at all."""
        if self.language == "sh":
            return "sh"
        if self.language != "python" or self.option.startswith("no-run"):
            return ""
        return self.option.removeprefix("file=") if self.option else "python"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    fence: re.Match[str] | None = None
    lines: list[str] = []
    start = 0
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r"^( *)(```+)(.*)$", line)
        if fence is None and match:
            fence, lines, start = match, [], number
        elif fence is not None and match and match[2] == fence[2] and not match[3].strip():
            found.append(Block(fence[3].strip(), start, "\n".join(lines) + "\n"))
            fence = None
        elif fence is not None:
            lines.append(line.removeprefix(fence[1]))
    assert fence is None, f"{page}:{start}: the block that begins here does not end"
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^( *)(```+).*?^ *\2 *$", "", text, flags=re.DOTALL | re.MULTILINE)


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[tuple[str, str, int, str]]:
    """Return what the driver is to do for a page."""
    steps = [(block.kind(), str(page), block.line, block.text) for block in blocks(page) if block.kind()]
    if shown(page) in NEEDS_SERVERS:
        steps = [step for step in steps if step[0] == "sh"]
    return steps


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=shown)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("FENCELOCK_")},
        "FENCELOCK_URL": f"sqlite://{tmp_path}/locks.db",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input=json.dumps(runnable(page)),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PAGE_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_blocks_are_of_a_known_sort(page: Path) -> None:
    for block in blocks(page):
        where = f"{shown(page)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: unknown sort of block {block.info!r}"
        if block.language == "python" and block.option:
            assert re.fullmatch(r"file=[\w./-]+|no-run: \S.{9,}", block.option), f"{where}: {block.info!r}"


def test_nearly_every_example_is_run() -> None:
    not_run = [
        f"{shown(page)}:{block.line}" for page in PAGES for block in blocks(page) if "no-run" in block.option
    ]
    assert len(not_run) <= MOST_NOT_RUN, not_run


# Links ------------------------------------------------------------------------------------


def links(page: Path) -> Iterator[str]:
    """Return the targets of a page's links."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        yield match[1]


def anchors(page: Path) -> set[str]:
    """Return the anchors that the headings of a page make."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def local(page: Path, link: str) -> Path | None:
    """Return the file that a link leads to, or `None` if it leads elsewhere."""
    if re.match(r"[a-z]+:", link):
        return None
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        target = local(page, link)
        if target is None:
            continue
        fragment = link.partition("#")[2]
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(link)
    assert not broken, f"{shown(page)} has broken links: {broken}"


def test_every_page_is_reachable_from_the_map() -> None:
    seen: set[Path] = set()
    ahead = [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        ahead += [target for link in links(page) if (target := local(page, link)) is not None]
    missing = sorted(shown(page) for page in set(DOCS.rglob("*.md")) - seen)
    assert not missing, f"no way leads from docs/index.md to {missing}"


# Facts ------------------------------------------------------------------------------------


PROMISING = [page for page in PAGES if re.search(r"^\| \| `\S+://` \|$", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("page", PROMISING, ids=shown)
def test_a_page_has_the_guarantees_of_the_code(page: Path) -> None:
    section = page.read_text().partition("## What it promises\n")[2].partition("\n## ")[0]
    schemes = re.findall(r"^\| \| `(\S+)://` \|$", section, re.MULTILINE)
    assert len(schemes) == 1, f"{shown(page)} has its table elsewhere"
    promised = backend_from_url(SAMPLES.get(schemes[0], f"{schemes[0]}://localhost")).guarantees.as_dict()
    caveats = re.findall(r"^- (.*)$", re.sub(r"\n  +", " ", section), re.MULTILINE)
    assert caveats == promised.pop("caveats")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))
    assert rows == {
        field: f"{value:g} s" if isinstance(value, float) else value for field, value in promised.items()
    }


def test_enough_pages_have_them() -> None:
    assert len(PROMISING) >= 8, [shown(page) for page in PROMISING]


def test_the_choosing_table_has_every_backend() -> None:
    page = DOCS / "howto" / "choose-a-backend.md"
    table = page.read_text().partition("## Side by side\n")[2].partition("\n## ")[0]
    compared = set(re.findall(r"\]\(\.\./backends/([\w-]+)\.md\)", table.strip().splitlines()[0]))
    like_another = {
        "memory",
        "redis-sentinel-cluster",
    }  # for tests; as redis://, with its own row on failover
    assert compared == {page.stem for page in (DOCS / "backends").glob("*.md")} - like_another


def test_speed_beside_other_libraries_is_stated_on_one_page() -> None:
    """A figure that is written down twice differs after the next measurement."""
    elsewhere = [page for page in PAGES if page != DOCS / "explanation" / "speed.md"]
    found = [
        f"{shown(page)}: {row}"
        for page in elsewhere
        for row in re.findall(r"^\|.*$", page.read_text(), re.MULTILINE)
        if re.search(r"[\d.]+ times as (long|fast)|[\d.]+ times (faster|slower)", row)
    ]
    assert not found


def test_derived_pages_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "apidocs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def commands(page: Path) -> Iterator[str]:
    """Return the commands of fencelock that a page names, in code spans and in shell blocks."""
    for span in re.findall(r"`(fencelock [^`\n]+)`", prose(page)):
        yield from re.findall(r"^fencelock ([a-z][\w-]*)", span)
    for block in blocks(page):
        if block.language in {"sh", "console"}:
            starts = r"(?:^|[;&|(]|\$ |\bthen |\bif |\bdo )\s*(?:\w+=\S* +)*fencelock ([a-z][\w-]*)"
            yield from re.findall(starts, block.text, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_named_commands_exist(page: Path) -> None:
    unknown = sorted(set(commands(page)) - set(COMMANDS))
    assert not unknown, f"{shown(page)} names commands that do not exist: {unknown}"


def test_the_command_finder_finds() -> None:
    found = {command for page in PAGES for command in commands(page)}
    assert {"run", "ls", "break", "doctor"} <= found
