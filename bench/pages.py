"""Pages of the docs with a part that is made from measurements: where it stands, and whether it is stale.

The part is between `<!-- measured: MARK -->` and `<!-- /measured -->`; what is around it is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.keep import ROOT

__all__ = ["renew", "with_part"]

END = "<!-- /measured -->"


def with_part(page: str, mark: str, text: str) -> str:
    """Return a page with its measured part anew."""
    opening = f"<!-- measured: {mark} -->"
    before, begin, rest = page.partition(opening)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {opening} … {END}")
    return f"{before}{opening}\n{text}\n{END}{after}"


def renew(
    texts: Mapping[Path, str], command: str, arguments: Sequence[str], left: Sequence[Path] = ()
) -> int:
    """Write what is stale and remove what is `left` over; with `--check` only say so. Return a status."""
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in [*stale, *left]:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is stale: {command}", file=sys.stderr)
        elif path in texts:
            path.write_text(texts[path], encoding="utf-8")
        else:
            path.unlink()
    return 1 if (stale or left) and "--check" in arguments else 0
