"""The clock that leases are counted on: monotonic, and it goes on while the machine sleeps.

`time.monotonic()` stands still during suspend on Linux, so a laptop that slept for an hour
would wake up believing in leases that ended long ago. CLOCK_BOOTTIME does not. On macOS
CLOCK_MONOTONIC counts suspend. Elsewhere `time.monotonic` has to do.

All processes of one host read the same clock, whatever their wall clocks say, until the
next boot; `boot_id` names the boot.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path

__all__ = ["boot_id", "now"]

if sys.platform == "linux":
    now = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
elif sys.platform == "darwin":
    now = functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)
else:
    now = time.monotonic


@functools.cache
def boot_id() -> str | None:
    """Return a name for the time since the machine was started, or `None` if it has none."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    if sys.platform == "darwin":
        import subprocess

        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return None
