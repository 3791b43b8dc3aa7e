"""A patch: a few lines of fencelock, in Python, Lua or SQL, replaced by a mistake.

Nothing of it can be reached from fencelock itself. The package is copied to a folder of its own, the text is
replaced there, and the check runs in a process that imports the copy, as do all processes that the check
starts. If the text is not in the file exactly once the patch is out of date, and says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PATCHES", "ROOT", "Check", "Conform", "Patch", "Test", "copied", "patch", "texts"]

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fencelock"


@dataclass(frozen=True)
class Test:
    """Tests that exist anyway, by their path and name."""

    node: str
    environment: tuple[tuple[str, str], ...] = ()
    __test__ = False

    def __str__(self) -> str:
        return self.node.removeprefix("tests/")


@dataclass(frozen=True)
class Conform:
    """Checks of the conformance suite, on a server of that scheme."""

    scheme: str
    names: tuple[str, ...]
    flavours: tuple[str, ...] = ("blocking", "asyncio")

    def __str__(self) -> str:
        return f"conform {self.scheme}: {', '.join(self.names)}"


Check = Test | Conform


@dataclass(frozen=True)
class Patch:
    """One mistake, and the check that must catch it."""

    name: str
    breaks: str
    """What it does wrong, in a sentence."""
    check: Check
    sign: str
    """Words of the failure: a check that fails for another reason has caught nothing."""
    changes: tuple[tuple[str, str, str], ...] = field(repr=False)
    """File below src/fencelock, the text there, and the text instead."""
    quick: bool = False
    """Whether it is cheap enough for `make test`."""


PATCHES: list[Patch] = []


def patch(
    name: str, breaks: str, check: Check, sign: str, *changes: tuple[str, str, str], quick: bool = False
) -> None:
    """Add a patch to the list."""
    PATCHES.append(Patch(name, breaks, check, sign, changes, quick))


def texts(mistake: Patch) -> dict[str, str]:
    """Return the files that the mistake is in, as they are with it."""
    changed: dict[str, str] = {}
    for file, old, new in mistake.changes:
        text = changed.get(file) or (SOURCE / file).read_text(encoding="utf-8")
        found = text.count(old)
        if found != 1:
            raise LookupError(f"{mistake.name}: {file} has this {found} times instead of once: {old!r}")
        changed[file] = text.replace(old, new)
    return changed


@contextmanager
def copied(folder: Path, mistake: Patch | None) -> Iterator[Path]:
    """Copy the package, with the mistake or without one; give the folder to import it from."""
    home = folder / (mistake.name if mistake is not None else "unchanged")
    shutil.copytree(SOURCE, home / "fencelock")  # with its compiled files, which are as valid there
    try:
        for file, text in texts(mistake).items() if mistake is not None else ():
            (home / "fencelock" / file).write_text(text, encoding="utf-8")
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
