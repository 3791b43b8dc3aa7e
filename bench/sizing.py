"""The picture and the figures of `docs/howto/sizing.md`, from what was measured.

    python -m bench.sizing            write both anew from docs/pictures/sizing.json
    python -m bench.sizing --take     first take what `python -m bench sizing` has measured here
    python -m bench.sizing --check    change nothing; exit 1 if one of them is stale

No number in either is typed by hand. A renewal comes after a third of the ttl; so many leases does one client
keep alive as it renews in that time. Who is full first is told by the processor time of both sides for one
renewal, where the server's was enough to be seen.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.drawing import colours
from bench.pages import renew, with_part

__all__ = ["KEPT", "PAGE", "PICTURE", "block", "main", "page_with", "picture"]

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "bench" / "results" / "sizes.json"
KEPT = ROOT / "docs" / "pictures" / "sizing.json"
PICTURE = ROOT / "docs" / "pictures" / "sizing.svg"
PAGE = ROOT / "docs" / "howto" / "sizing.md"

NAMES = {
    "sqlite": "SQLite",
    "redis": "Redis",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "zookeeper": "ZooKeeper",
    "etcd": "etcd",
    "consul": "Consul",
}
TTL = 30
WIDTH, LEFT, ROW = 760, 100, 26
COLOURS = (["#00796b", "#c2410c"], ["#4fd1b8", "#fb923c"])


def rate(rounds: Sequence[float]) -> float:
    """Return how many in a second, by the median."""
    return 1 / statistics.median(rounds)


def rough(number: float) -> str:
    """Return a figure with the two digits that are worth anything.

    Example:
        >>> [rough(1234), rough(0.4), rough(96), rough(45_678)]
        ['1,200', '0', '96', '46,000']
    """
    if number < 1:
        return "0"
    digits = max(0, math.floor(math.log10(number)) - 1)
    return f"{round(number, -digits):,.0f}"


def full_first(one: Mapping[str, Any]) -> str:
    """Say which side is full first when leases are renewed, and at what rate."""
    client, server = one["client_processor"], one["server_processor"]
    if server <= client:
        return f"the client, at {rough(1 / client)}/s"
    return f"the server, at {rough(1 / server)}/s for each processor"


def block(data: Mapping[str, Any]) -> str:
    """Return what stands between the marks of the page."""
    found = data["backends"]
    lines = [
        "![Renewals a second of one client, and bytes in the server for a lock](../pictures/sizing.svg)",
        "",
        f"One client, one server of its own beside it, on a machine with {data['processors']} processors "
        f"(load {data['load']:.1f} before it began), Python {data['python']}. {found[0]['leases']:,} leases "
        f"held, {found[0]['waiters']:,} waiters on one lock. Two digits of each figure.",
        "",
        *_heading("acquire and release", "renewals", "leases kept alive, ttl 30", "who is full first"),
    ]
    for one in found:
        renewals = rate(one["renewal"])
        lines.append(
            f"| {NAMES[one['kind']]} {one['version']} | {rough(rate(one['pair']))}/s | {rough(renewals)}/s "
            f"| {rough(renewals * TTL / 3)} | {full_first(one)} |"
        )
    lines += [
        "",
        *_heading("a lock in the server", "a waiter", "a lease in the client", "a waiter", "in the server"),
    ]
    for one in found:
        sizes = [one[key] for key in ("server_lock", "server_waiter", "client_lease", "client_waiter")]
        cells = " | ".join(f"{rough(size)} B" if size >= 1 else "not seen" for size in sizes)
        lines.append(f"| {NAMES[one['kind']]} | {cells} | {one['measured']} |")
    return "\n".join(lines)


def _heading(*words: str) -> list[str]:
    return [f"| backend | {' | '.join(words)} |", "|---" * (len(words) + 1) + "|"]


def page_with(page: str, text: str) -> str:
    """Return a page with its measured part anew."""
    return with_part(page, "bench/sizing.py", text)


def picture(data: Mapping[str, Any]) -> str:
    """Return two rows of bars, on a scale of powers of ten."""
    found = data["backends"]
    panels = [
        ("renewals a second, one client", [rate(one["renewal"]) for one in found]),
        ("bytes in the server for a lock that is held", [one["server_lock"] for one in found]),
    ]
    height = 20 + sum(40 + ROW * len(found) for _ in panels)
    style = "text{font:12px system-ui,sans-serif}.t{font-weight:600}.e{text-anchor:end}"
    light = colours("#ffffff", "#1f2937", "#4b5563", "#e5e7eb", COLOURS[0])
    dark = colours("#0d1117", "#e6edf3", "#aab4c0", "#2b333d", COLOURS[1])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Renewals a second of one client, and bytes in the server for a lock</title>",
        f"<style>{style}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
        f'<rect class="p" width="{WIDTH}" height="{height}"/>',
    ]
    top = 20
    for number, (title, values) in enumerate(panels):
        lines += _panel(number, top, title, [NAMES[one["kind"]] for one in found], values)
        top += 40 + ROW * len(found)
    return "\n".join([*lines, "</svg>", ""])


def _panel(number: int, top: int, title: str, names: Sequence[str], values: Sequence[float]) -> list[str]:
    lines = [f'<text class="t" x="{LEFT}" y="{top + 10}">{title}</text>']
    highest = math.log10(max(*values, 10))
    for row, (name, value) in enumerate(zip(names, values, strict=True)):
        y = top + 22 + ROW * row
        length = round((WIDTH - LEFT - 90) * max(0.0, math.log10(max(value, 1))) / highest)
        lines.append(f'<text class="k e" x="{LEFT - 8}" y="{y + 13}">{name}</text>')
        lines.append(
            f'<rect class="d{number}" x="{LEFT}" y="{y}" width="{max(length, 1)}" height="18" rx="3"/>'
        )
        lines.append(f'<text class="a" x="{LEFT + length + 6}" y="{y + 13}">{rough(value)}</text>')
    return lines


def main(arguments: Sequence[str]) -> int:
    if "--take" in arguments:
        KEPT.write_text(MEASURED.read_text(encoding="utf-8"), encoding="utf-8")
    data = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    wanted = {PICTURE: picture(data), PAGE: page_with(page, block(data))}
    return renew(wanted, "python -m bench.sizing", arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
