"""Power loss: everything is killed, and what was not yet on disk is gone.

A shim between a program and the C library keeps account of what is durable, for the files of one folder:

- of a log that is only appended to (Redis), how long it was when `fsync` was called that then succeeded;
- of a log inside files of a fixed length (PostgreSQL's), up to where it was written, and up to where that was
  so when `fsync` was called;
- of SQLite's files, a whole copy as of each `fsync`, as they are written here and there.

After SIGKILL the files are cut back, filled with zeros from there on, or replaced by their copies. The
boot id that the program sees is another one then, as after a real power loss: the shim answers for that
file as well.

PostgreSQL's other files are left as they are. That is one of the states which a power loss may leave: a
page is written only after the log of its changes is on disk.

Not promised: every such state. A file system may lose less than this, or write blocks in another order.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import uuid
from pathlib import Path

from tools.servers.clock import COMPILER, HEADERS
from tools.servers.packages import install

from chaos.faults.base import Fault
from chaos.stage import Stage
from holdfast.testing import kill

__all__ = ["PowerLoss"]

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char BOOT[] = "/proc/sys/kernel/random/boot_id";

/* Where the account of this file is kept; 0 if it is none of ours. */
static int account(int fd, char *path, char *side, const char *end) {
  char link[64];
  const char *words = getenv("DISK_WORDS"), *folder = getenv("DISK_ACCOUNT");
  if (!words || !folder) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, 1000);
  if (size <= 0) return 0;
  path[size] = 0;
  if (!strstr(path, words)) return 0;
  snprintf(side, 2200, "%s/", folder);
  size_t at = strlen(side);
  for (char *c = path; *c; c++) side[at++] = *c == '/' ? '%' : *c;
  strcpy(side + at, end);
  return 1;
}
static int64_t recall(const char *side, int64_t otherwise) {
  int64_t value = otherwise;
  int fd = syscall(SYS_openat, AT_FDCWD, side, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (syscall(SYS_pread64, fd, &value, 8, 0) != 8) value = otherwise;
    syscall(SYS_close, fd);
  }
  return value;
}
static void note(const char *side, int64_t value) {
  int fd = syscall(SYS_openat, AT_FDCWD, side, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  syscall(SYS_pwrite64, fd, &value, 8, 0);
  syscall(SYS_close, fd);
}
static void copy(const char *path, const char *side) {
  char draft[2300], piece[65536];
  snprintf(draft, sizeof draft, "%s.%d", side, (int)syscall(SYS_gettid));
  int from = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  int to = syscall(SYS_openat, AT_FDCWD, draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  ssize_t size;
  while ((size = syscall(SYS_read, from, piece, sizeof piece)) > 0) syscall(SYS_write, to, piece, size);
  syscall(SYS_close, from);
  syscall(SYS_close, to);
  rename(draft, side);
}
static int synced(int fd, int (*real)(int)) {
  char path[1024], side[2200];
  const char *how = getenv("DISK_HOW");
  int64_t length = -1;
  int ours = how && account(fd, path, side, *how == 'i' ? ".written" : ".durable");
  if (ours && *how == 'a') {
    struct stat about;
    length = fstat(fd, &about) ? -1 : about.st_size;
  } else if (ours && *how == 'i') {
    length = recall(side, -1);
  }
  int answer = real(fd);
  if (answer || !ours) return answer;
  if (*how == 'c') {
    copy(path, side);
  } else if (length >= 0) {
    account(fd, path, side, ".durable");
    if (length > recall(side, -1) || *how == 'a') note(side, length);
  }
  return answer;
}
int fsync(int fd) { return synced(fd, (int (*)(int))dlsym(RTLD_NEXT, "fsync")); }
int fdatasync(int fd) { return synced(fd, (int (*)(int))dlsym(RTLD_NEXT, "fdatasync")); }

static void written(int fd, off_t begin, ssize_t size) {
  char path[1024], side[2200];
  const char *how = getenv("DISK_HOW");
  if (size <= 0 || !how || *how != 'i' || !account(fd, path, side, ".written")) return;
  if (begin + size > recall(side, -1)) note(side, begin + size);
  account(fd, path, side, ".durable");
  if (recall(side, -1) < 0) note(side, begin); /* what was there before the first of our writes */
}
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
  ssize_t done = syscall(SYS_pwrite64, fd, data, size, at);
  written(fd, at, done);
  return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

static const char *instead(const char *path) {
  const char *boot = getenv("DISK_BOOT");
  return boot && path && !strcmp(path, BOOT) ? boot : path;
}
int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return syscall(SYS_openat, AT_FDCWD, instead(path), flags, mode);
}
int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  return syscall(SYS_openat, AT_FDCWD, instead(path), flags, mode);
}
"""


class Disk:
    """The account of one folder's files: `appended`, `inside` or `copied`."""

    def __init__(self, folder: Path, how: str, words: str) -> None:
        source, self.library = folder / "disk.c", folder / "disk.so"
        self.account, self.boot, self.how, self.words = folder / "account", folder / "boot", how, words
        install([COMPILER, HEADERS])
        source.write_text(SHIM)
        self.account.mkdir()
        self.account.chmod(0o777)
        self.reboot()
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(source), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    @property
    def env(self) -> dict[str, str]:
        """What the program must find in its environment."""
        return {
            "LD_PRELOAD": str(self.library),
            "DISK_ACCOUNT": str(self.account),
            "DISK_BOOT": str(self.boot),
            "DISK_HOW": self.how,
            "DISK_WORDS": self.words,
        }

    def reboot(self) -> None:
        """Give the machine another boot id."""
        self.boot.write_text(f"{uuid.uuid4()}\n")

    def lose(self, files: list[Path]) -> int:
        """Take from these files what was not durable; return how many bytes that were."""
        lost = sum(self._lose(file) for file in files)
        for side in self.account.iterdir():
            if self.how != "copied":
                side.unlink()
        return lost

    def _lose(self, file: Path) -> int:
        durable = self._side(file, "durable")
        if self.how == "copied":
            return self._put_back(file, durable)
        if not durable.exists():
            return 0
        kept = _number(durable)
        if self.how == "appended":
            lost = file.stat().st_size - kept
            os.truncate(file, kept)
            return lost
        written = self._side(file, "written")
        lost = _number(written) - kept if written.exists() else 0
        if lost > 0:
            with file.open("r+b") as log:
                log.seek(kept)
                log.write(bytes(lost))
        return max(0, lost)

    def _put_back(self, file: Path, durable: Path) -> int:
        changed = not durable.exists() or durable.read_bytes() != file.read_bytes()
        lost = file.stat().st_size if changed else 0
        if durable.exists():
            shutil.copyfile(durable, file)
        else:
            file.unlink()
        return lost

    def _side(self, file: Path, end: str) -> Path:
        return self.account / f"{str(file).replace('/', '%')}.{end}"


def _number(file: Path) -> int:
    return int(struct.unpack("<q", file.read_bytes())[0])


class PowerLoss(Fault):
    """SIGKILL to everything, and only what was on disk is left."""

    word = "powerloss"
    number = 8
    about = "the power fails: servers are killed, and their logs cut back to what was on disk"
    needs = ("compiler",)
    line = False

    def prepare(self, stage: Stage) -> None:
        how, words = stage.store.logs
        self.disk = Disk(stage.folder, how, words)
        stage.store.persist()
        if stage.store.kind:
            stage.store.env |= self.disk.env
        else:
            stage.env |= self.disk.env

    def strike(self, stage: Stage, dice: random.Random) -> bool:
        with stage.mark():
            if stage.store.kind:
                server = stage.store.servers[0]
                lost = stage.store.unwritten()
                server.kill()
                lost += self.disk.lose(stage.store.log_files())
                server.restart()
            else:
                lost = self.lose_all(stage)
        stage.rest(dice.uniform(0.3, 1.2))
        return lost > 0

    def lose_all(self, stage: Stage) -> int:
        """Where there is no server it is the clients that lose their power."""
        for player in stage.players:
            stage.history.crashed(player.name)
            kill(player.pid)
        lost = self.disk.lose(stage.store.log_files())
        self.disk.reboot()
        for player in stage.players:
            stage.spawn(player)
        return lost
