"""Which rows run: all, or those of the backends that `make test BACKEND="memory sqlite"` names.

Chosen rows run without the tests of the suite itself, whose broken backends take longer than two rows.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rows of other backends, and the tests of the suite itself."""
    chosen = os.environ.get("FENCELOCK_ROWS")
    if chosen is None:
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (kept if _is_of(item, set(chosen.split())) else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _is_of(item: pytest.Item, backends: set[str]) -> bool:
    if item.path.parent != HERE:
        return True  # the hook is given the tests of all folders
    scheme = item.callspec.params.get("scheme") if hasattr(item, "callspec") else None
    return str(scheme).partition("@")[0] in backends
