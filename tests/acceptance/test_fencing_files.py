"""Files behind a fence: the holder that slept, 32 writers at once, kill -9 in the middle of a write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crew import Crew
from fencing_drills import Cast

from fencelock import StaleToken
from fencelock.fencing import fenced_read, fenced_write

FLAVOURS = pytest.mark.parametrize("kind", ["file", "file-async"])

WRITER = """
import sys
from fencelock.fencing import fenced_write
from pathlib import Path
path, step = Path(sys.argv[1]), 0
while True:
    step += 1
    fenced_write(path, b"%d " % step * 50_000, step)
    print(step, flush=True)
"""


@pytest.fixture(scope="module")
def cast() -> Iterator[Cast]:
    with Cast() as cast:
        yield cast


@FLAVOURS
def test_the_holder_that_slept(cast: Cast, kind: str, tmp_path: Path) -> None:
    cast.paused_holder(kind, str(tmp_path), tmp_path)


@FLAVOURS
def test_32_writers(cast: Cast, kind: str, tmp_path: Path) -> None:
    cast.crowd(kind, str(tmp_path))


def test_kill_in_the_middle_of_a_write(crew: Crew, tmp_path: Path) -> None:
    path = tmp_path / "report"
    for number in range(5):
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        writer = crew.python(WRITER, path)
        for _ in range(3 + number):
            written = writer.hear()
        writer.process.kill()
        writer.end()
        found = path.read_bytes()
        (word,) = set(found.split())
        assert len(found.split()) == 50_000, "a part of a file"
        assert int(word) >= int(str(written)), "what was written is gone"
        with pytest.raises(StaleToken):
            fenced_write(path, b"late", int(word) - 1)
        assert fenced_read(path, int(word) + 1) == found
