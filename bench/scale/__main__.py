"""The pictures and the tables of `docs/explanation/scale.md`, from what was measured.

    python -m bench.scale            write all anew from docs/pictures/scale.json
    python -m bench.scale --take     first take what `python -m bench scale` has measured here, and simulate
    python -m bench.scale --check    change nothing; exit 1 if one of them is stale

No number in any of them is typed by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.keep import ROOT
from bench.pages import renew, with_part
from bench.scale.kept import KEPT, load, save, taken
from bench.scale.page import block
from bench.scale.pictures import drawn, shown

__all__ = ["PAGE", "main", "page_with", "wanted"]

PAGE = ROOT / "docs" / "explanation" / "scale.md"


def page_with(page: str, text: str) -> str:
    """Return a page with its measured part anew."""
    return with_part(page, "bench/scale", text)


def wanted(data: Mapping[str, Any]) -> dict[Path, str]:
    """Return what the page and its pictures ought to be."""
    page = page_with(PAGE.read_text(encoding="utf-8"), block(data, shown()))
    return {PAGE: page, **{KEPT.with_name(file): picture for file, picture in drawn(data).items()}}


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        save(taken())
    return renew(wanted(load()), "python -m bench.scale", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
