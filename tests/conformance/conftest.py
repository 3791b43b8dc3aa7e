"""Which rows run: all, or those of the backends that `make test BACKEND="memory sqlite"` names."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the rows of other backends."""
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
    scheme = item.callspec.params.get("scheme") if hasattr(item, "callspec") else None
    return scheme is None or str(scheme).partition("@")[0] in backends
