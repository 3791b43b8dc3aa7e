"""The wall clock of a process, to be set from another: a shim between the process and the C library.

The offset is a number in a file that both have mapped, so it takes effect at once. Clocks that only go
forward are left alone. It needs a C compiler, which is installed if it is missing; programs that do without
the C library (those written in Go) do not notice.
"""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

from .packages import Package, install

__all__ = ["Clock"]

COMPILER = Package("gcc", ("cc",))
HEADERS = Package("libc6-dev", ("/usr/include/stdlib.h",))

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset; /* seconds, shared with the test */
static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_day)(struct timeval *, void *);

__attribute__((constructor)) static void begin(void) {
  int fd = open(getenv("CLOCK_OFFSET"), O_RDONLY);
  offset = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  real_clock = dlsym(RTLD_NEXT, "clock_gettime");
  real_day = dlsym(RTLD_NEXT, "gettimeofday");
}
int clock_gettime(clockid_t clock, struct timespec *when) {
  if (!real_clock) real_clock = dlsym(RTLD_NEXT, "clock_gettime");
  int answer = real_clock(clock, when);
  if (!answer && clock == CLOCK_REALTIME && offset) when->tv_sec += *offset;
  return answer;
}
int gettimeofday(struct timeval *when, void *zone) {
  if (!real_day) real_day = dlsym(RTLD_NEXT, "gettimeofday");
  int answer = real_day(when, zone);
  if (!answer && offset) when->tv_sec += *offset;
  return answer;
}
time_t time(time_t *when) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (when) *when = now.tv_sec;
  return now.tv_sec;
}
"""


class Clock:
    """The wall clock of every process that is started with `env`, to be set from here."""

    def __init__(self, folder: Path) -> None:
        source, self.library, self.file = folder / "clock.c", folder / "clock.so", folder / "offset"
        install([COMPILER, HEADERS])
        source.write_text(SHIM)
        self.file.write_bytes(bytes(8))
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        with self.file.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 8)

    @property
    def env(self) -> dict[str, str]:
        """What the process must find in its environment."""
        return {"LD_PRELOAD": str(self.library), "CLOCK_OFFSET": str(self.file)}

    def set(self, seconds: int) -> None:
        """So many seconds ahead of the true time, or behind it."""
        self._offset[:8] = struct.pack("l", seconds)
