"""A token has 64 bits: where one is declared in SQL, in a mapped class or a model, and where one is shown.

Real tokens are the time of day in microseconds or more. In PostgreSQL and MySQL an INTEGER has 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/**/*.md"]
SHOWN = [*PAGES, "examples/*.py"]
CODE = [*SHOWN, "src/**/*.py", "src/**/*.sql"]
NAME = r"\b\w*(?:token|fence|newest)\w*\b"
NARROW = [
    # A key of SQLite that stands for the rowid is INTEGER by its very word, and has 64 bits.
    rf"{NAME}[\"'`\]]?\s+(?:INTEGER|INT|INT4|MEDIUMINT|SMALLINT|SERIAL)\b(?!\s+PRIMARY\s+KEY)",
    rf"{NAME}\s*(?::[^=\n]*)?=\s*(?:\w+\.)?(?:mapped_column|Column)\((?![^\n]*BigInteger)",
    rf"{NAME}\s*:\s*Mapped\[int\]\s*$",
    rf"{NAME}\s*=\s*models\.(?:Positive|Small|PositiveSmall)?IntegerField",
]
SMALL = [
    rf"{NAME}\s*={{1,2}}\s*[1-9]\d{{0,11}}\b(?!\s*\*\*)",
    r"\btoken [1-9]\d{0,11}\b",
    r"(?i)Fencing-Token\W{1,6}[1-9]\d{0,11}\b",
    r"\b(?:admit|admits|admit_async|turn|etcd_fence|check_token)\((?:[^()\n]*, )?[1-9]\d{0,11}\)",
]


def lines(*patterns: str) -> Iterator[tuple[str, str]]:
    """Return the lines of files, and where each stands."""
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                yield f"{path.relative_to(ROOT)}:{number}", line


def found(wrong: list[str], *patterns: str) -> list[str]:
    rules = [re.compile(rule, re.IGNORECASE if "INTEGER|" in rule else 0) for rule in wrong]
    return [
        f"{where}: {line.strip()}"
        for where, line in lines(*patterns)
        if any(rule.search(line) for rule in rules)
    ]


def test_no_column_for_a_token_is_too_narrow() -> None:
    assert found(NARROW, *CODE) == []


def test_tokens_that_are_shown_are_of_real_size() -> None:
    assert found(SMALL, *SHOWN) == []
    docstrings = [line for line in found(SMALL, "src/**/*.py") if ">>>" in line or "..." in line]
    assert docstrings == []


@pytest.mark.parametrize(
    "line",
    [
        'db.execute("CREATE TABLE document (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL DEFAULT 0)")',
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, last_token int)",
        "    fence: Mapped[int] = mapped_column(default=0)",
        "    fence: Mapped[int]",
        "    token = Column(Integer)",
        "    fence = models.PositiveIntegerField(default=0)",
    ],
)
def test_the_rules_find_columns_that_are_too_narrow(line: str) -> None:
    assert any(re.search(rule, line, re.IGNORECASE) for rule in NARROW)


@pytest.mark.parametrize(
    "line",
    [
        "CREATE TABLE t (token INTEGER PRIMARY KEY AUTOINCREMENT, fence BIGINT NOT NULL)",
        "    fence: Mapped[int] = mapped_column(BigInteger, default=0)",
        "    fence = models.BigIntegerField(default=0)",
        "    token: int",
    ],
)
def test_the_rules_let_others_pass(line: str) -> None:
    assert not any(re.search(rule, line) for rule in NARROW)


@pytest.mark.parametrize(
    "line",
    [
        "fence.set('a', token=34)",
        "token 33 for 'a' is stale: 34 was seen already",
        'gate.admit("document:1", 33)',
        '>>> admit(conn, "document:1", 34)',
        'headers={"Fencing-Token": "33"}',
    ],
)
def test_the_rules_find_tokens_that_are_too_small(line: str) -> None:
    assert any(re.search(rule, line) for rule in SMALL)
