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
from bench.scale.kept import KEPT, load, save, taken
from bench.scale.page import block
from bench.scale.pictures import drawn, shown

__all__ = ["PAGE", "main", "page_with", "wanted"]

PAGE = ROOT / "docs" / "explanation" / "scale.md"
BEGIN, END = "<!-- measured: bench/scale -->", "<!-- /measured -->"


def page_with(page: str, text: str) -> str:
    """Return a page with its measured part anew."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def wanted(data: Mapping[str, Any]) -> dict[Path, str]:
    """Return what the page and its pictures ought to be."""
    page = page_with(PAGE.read_text(encoding="utf-8"), block(data, shown()))
    return {PAGE: page, **{KEPT.with_name(file): picture for file, picture in drawn(data).items()}}


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        save(taken())
    texts = wanted(load())
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is stale: python -m bench.scale", file=sys.stderr)
        else:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
