"""The broken backends by URL, for the command line: `broken://NAME`, and `broken://NAME?silent`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from fencelock.backends.base import Backend
from fencelock.backends.memory import MemoryBackend, Store

from .broken import BACKENDS, Broken
from .troubles import silent

__all__ = ["BrokenScheme", "package"]

NAMED = {broken.__name__: broken for broken in BACKENDS} | {"Broken": Broken}


class BrokenScheme(MemoryBackend):
    """Makes a backend whose mistake has the name that the URL says; `Broken` itself has none."""

    stores: ClassVar[dict[str, Store]] = {}

    @classmethod
    def from_url(cls, url: str) -> Backend:  # type: ignore[override]
        name, _, trouble = url.partition("://")[2].partition("?")
        broken = NAMED[name]
        is_first = url not in cls.stores  # the command's own, which finds out whether there is a server
        store = cls.stores.setdefault(url, broken.store_type())
        if is_first or not trouble:
            return broken(store)
        with silent(broken) as kind:
            return kind(store)


@contextmanager
def package(folder: Path) -> Iterator[str]:
    """Return a PYTHONPATH with a package that has the entry point `broken`."""
    about = folder / "broken_backends-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-backends\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[fencelock.backends]\nbroken = conformance.scheme:BrokenScheme\n"
    )
    yield f"{folder}:{Path(__file__).parents[1]}"
