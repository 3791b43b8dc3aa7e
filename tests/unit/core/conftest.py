from __future__ import annotations

from collections.abc import Iterator

import pytest

from unit.core.scripted import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.runtime.stop()
