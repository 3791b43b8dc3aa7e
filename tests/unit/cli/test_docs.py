"""The reference page is current and complete."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tools import clidocs  # noqa: E402


def test_page_is_current() -> None:
    assert clidocs.PAGE.read_text() == clidocs.page(), "run: python tools/clidocs.py"


@pytest.mark.parametrize("name", list(clidocs.commands()))
def test_every_command_and_option_is_documented(name: str) -> None:
    section = clidocs.PAGE.read_text().partition(f"\n## fencelock {name}\n")[2].partition("\n## ")[0]
    assert section
    for param in clidocs.commands()[name].params:
        if isinstance(param, click.Option):
            assert param.help, f"{param.opts} of {name} has no help"
            assert all(f"{option}" in section for option in param.opts)


def test_how_to_knows_the_exit_statuses() -> None:
    text = (ROOT / "docs" / "howto" / "command-line.md").read_text()
    for code in (64, 69, 75, 76, 126, 127):
        assert f"| {code} |" in text
