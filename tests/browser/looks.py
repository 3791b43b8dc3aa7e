"""What a page lacks for people who see it differently: names for a screen reader, contrast, room on a phone.

`unnamed` reads the accessibility tree that Chromium hands to a screen reader. `faint` computes the contrast
of every piece of text that is to be seen, by the formula of WCAG 2: 4.5 is enough, 3 for large text.
`too_wide` names what makes the page scroll sideways. Each returns a list of complaints.

Not looked at: text in pictures and over gradients; the order in which things are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.browser import Browser

__all__ = ["faint", "headings", "roles", "too_wide", "unnamed"]

CONTROLS = {
    *("button", "checkbox", "combobox", "dialog", "link", "listbox", "menuitem", "meter", "progressbar"),
    *(
        "radio",
        "searchbox",
        "slider",
        "spinbutton",
        "switch",
        "tab",
        "textbox",
        "table",
        "grid",
        "img",
        "image",
    ),
}
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
WIDE = """
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    return [...document.querySelectorAll('body *')]
        .filter(element => element.getBoundingClientRect().right > width + 1)
        .map(element => element.outerHTML.slice(0, 120));
"""


def nodes(browser: Browser) -> list[dict[str, Any]]:
    """The accessibility tree, without what a screen reader passes over."""
    browser.cdp("Accessibility.enable")
    found = browser.cdp("Accessibility.getFullAXTree")["nodes"]
    browser.cdp("Accessibility.disable")
    return [node for node in found if not node.get("ignored")]


def _said(node: dict[str, Any], field: str) -> str:
    return str(node.get(field, {}).get("value", "")).strip()


def unnamed(browser: Browser) -> list[str]:
    """Controls, tables and pictures without a name."""
    lacking = [node for node in nodes(browser) if _said(node, "role") in CONTROLS and not _said(node, "name")]
    return [f"{_said(node, 'role')}: {_html(browser, node)}" for node in lacking]


def _html(browser: Browser, node: dict[str, Any]) -> str:
    told = browser.cdp("DOM.describeNode", backendNodeId=node["backendDOMNodeId"])["node"]
    return f"<{told['localName']} {' '.join(told.get('attributes', []))}>"


def roles(browser: Browser) -> set[str]:
    """Every role on the page."""
    return {_said(node, "role") for node in nodes(browser)}


def headings(browser: Browser) -> list[int]:
    """The levels of the headings, in order."""
    found = [node for node in nodes(browser) if _said(node, "role") == "heading"]
    levels = [
        each["value"]["value"] for node in found for each in node["properties"] if each["name"] == "level"
    ]
    return [int(level) for level in levels]


def faint(browser: Browser) -> list[str]:
    """Text whose contrast is too low."""
    complaints: list[str] = browser.run(CONTRAST)
    return complaints


def too_wide(browser: Browser) -> list[str]:
    """What sticks out to the right, where the page can be scrolled sideways."""
    complaints: list[str] = browser.run(WIDE)
    return complaints
