"""A client's wall clock jumps by an hour, back and forth: nobody notices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.servers.clock import Clock

PROGRAM = """
import sys, time, fencelock
url, hours = sys.argv[1], sys.stdin
with fencelock.Client(url) as locks, locks.lock("job", ttl=1.0) as lease:
    kept = locks.lock("kept", ttl=1.0, renew=False).acquire()
    print("held", flush=True)
    for line in hours:
        if line.startswith("look"):
            print(lease.is_held(), kept.is_held(), round(lease.remaining(), 3) <= 1.0, flush=True)
        else:
            assert kept.lost.wait(5), "a lease that is not renewed ends"
            print("over", time.time(), flush=True)
"""
HOUR = 3600


@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_of_an_hour(tmp_path: Path, hours: int) -> None:
    clock = Clock(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"sqlite://{tmp_path}/locks.db"],
        env={**os.environ, **clock.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            clock.set(hours * HOUR)
            print("look", file=holder.stdin, flush=True)
            assert holder.stdout.readline() == "True True True\n"
            print("wait", file=holder.stdin, flush=True)
            over, at = holder.stdout.readline().split()
            assert over == "over"
            assert abs(float(at) - _now() - hours * HOUR) < HOUR / 2, "the jump was not real"
            print("look", file=holder.stdin, flush=True)
            assert holder.stdout.readline() == "True False True\n"
            holder.stdin.close()
            assert holder.wait(20) == 0
        finally:
            holder.kill()


def _now() -> float:
    return float(subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout)
