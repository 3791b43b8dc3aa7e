"""What a page lacks for people who see it differently: names for a screen reader, contrast, room on a phone.

`Reader` has the accessibility tree that Chromium hands to a screen reader. `faint` computes the contrast
of every piece of text that is to be seen, by the formula of WCAG 2: 4.5 is enough, 3 for large text.
`too_wide` names what makes the page scroll sideways. Each returns a list of complaints.

Not looked at: text in pictures and over gradients; the order in which things are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.browser import Browser

__all__ = ["Reader", "faint", "too_wide"]

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


class Reader:
    """The accessibility tree as it is now, without what a screen reader passes over."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        found = browser.cdp("Accessibility.getFullAXTree")["nodes"]
        self.nodes: list[dict[str, Any]] = [node for node in found if not node.get("ignored")]

    @property
    def roles(self) -> set[str]:
        """Every role on the page."""
        return {_said(node, "role") for node in self.nodes}

    def unnamed(self) -> list[str]:
        """Controls, tables and pictures without a name."""
        lacking = [node for node in self.nodes if _said(node, "role") in CONTROLS and not _said(node, "name")]
        return [f"{_said(node, 'role')}: {self._html(node)}" for node in lacking]

    def headings(self) -> list[int]:
        """The levels of the headings, in order."""
        found = [node["properties"] for node in self.nodes if _said(node, "role") == "heading"]
        levels = [each for properties in found for each in properties if each["name"] == "level"]
        return [int(each["value"]["value"]) for each in levels]

    def _html(self, node: dict[str, Any]) -> str:
        told = self.browser.cdp("DOM.describeNode", backendNodeId=node["backendDOMNodeId"])["node"]
        return f"<{told['localName']} {' '.join(told.get('attributes', []))}>"


def _said(node: dict[str, Any], field: str) -> str:
    return str(node.get(field, {}).get("value", "")).strip()


def faint(browser: Browser) -> list[str]:
    """Text whose contrast is too low."""
    complaints: list[str] = browser.run(CONTRAST)
    return complaints


def too_wide(browser: Browser) -> list[str]:
    """What sticks out to the right, where the page can be scrolled sideways."""
    complaints: list[str] = browser.run(WIDE)
    return complaints
