"""The pictures and the tables of `docs/explanation/speed.md`, from what was measured.

    python -m bench.speed            write all anew from docs/pictures/speed.json
    python -m bench.speed --take     first take what `python -m bench` has measured here
    python -m bench.speed --check    change nothing; exit 1 if one of them is stale

No number in any of them is typed by hand. Why a target is missed is written in reasons.toml.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.keep import ROOT
from bench.pages import renew, with_part
from bench.speed.kept import KEPT, load, save, take
from bench.speed.page import block, reasons
from bench.speed.pictures import PICTURES, drawn, shown
from bench.speed.rows import suites

__all__ = ["PAGE", "main", "page_with", "wanted"]

PAGE = ROOT / "docs" / "explanation" / "speed.md"


def page_with(page: str, text: str) -> str:
    """Return a page with its measured part anew."""
    return with_part(page, "bench/speed", text)


def wanted(data: Mapping[str, Any]) -> dict[Path, str]:
    """Return what the page and its pictures ought to be."""
    files = drawn(data)
    text = block(data, reasons(), shown(files))
    page = page_with(PAGE.read_text(encoding="utf-8"), text)
    return {PAGE: page, **{KEPT.with_name(file): picture for file, picture in files.items()}}


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        save(take(load(), suites()))
    texts = wanted(load())
    left = [path for one in PICTURES if (path := KEPT.with_name(one.file)).exists() and path not in texts]
    return renew(texts, "python -m bench.speed", arguments, left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
