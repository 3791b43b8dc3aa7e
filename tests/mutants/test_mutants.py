"""The mutants are what they say they are; a few of them are caught here, all of them by `make mutants`."""

from __future__ import annotations

import ast
from pathlib import Path

import clients  # noqa: F401 (each adds its patches to the list)
import ensembles  # noqa: F401
import pytest
import queues  # noqa: F401
from judge import judge
from patch import PATCHES, ROOT, Conform, Patch, texts

from fencelock.testing import checks
from suites import SUITES

QUICK = [mistake for mistake in PATCHES if mistake.quick]


@pytest.mark.parametrize("mistake", PATCHES, ids=lambda mistake: mistake.name)
def test_its_text_is_still_there_and_its_check_exists(mistake: Patch) -> None:
    for file, text in texts(mistake).items():
        if file.endswith(".py"):
            ast.parse(text)
    check = mistake.check
    if isinstance(check, Conform):
        assert set(check.names) <= {known.name for known in checks()}
        return
    file, _, test = check.node.partition(" ")[0].partition("::")
    names = [
        one.name for one in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(one, ast.FunctionDef)
    ]
    assert any(name.startswith("test_") for name in names)
    assert not test or test.partition("[")[0] in names


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    names = [mistake.name for mistake in PATCHES]
    assert len(set(names)) == len(names) >= 30
    assert sum(len(suite.mutants) for suite in SUITES) >= 50
    assert all(mistake.breaks.endswith(".") and mistake.sign for mistake in PATCHES)


@pytest.mark.parametrize("mistake", QUICK, ids=lambda mistake: mistake.name)
def test_it_is_caught(mistake: Patch, tmp_path: Path) -> None:
    # That the check passes on fencelock as it is, the check itself shows.
    verdict = judge(mistake, tmp_path, lambda *_: True)
    assert verdict.caught, verdict.why


def test_a_patch_that_is_out_of_date_says_so() -> None:
    check = Conform("memory", ("tokens_are_plain_integers",))
    old = Patch("old", "Nothing.", check, "", (("lease.py", "no such text", ""),))
    with pytest.raises(LookupError, match=r"old: lease\.py has this 0 times instead of once: 'no such text'"):
        texts(old)


def test_what_changes_nothing_is_not_caught(tmp_path: Path) -> None:
    check = Conform("memory", ("tokens_are_plain_integers",), ("blocking",))
    same = Patch("same", "Nothing.", check, "", (("lease.py", "def remaining(", "def remaining("),))
    verdict = judge(same, tmp_path, lambda *_: True)
    assert (verdict.caught, verdict.why) == (False, "the check passed: 1 passed")
