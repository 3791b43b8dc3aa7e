"""Servers of another Debian suite, such as `redis@sid`: unpacked into a root of their own and run inside it.

A package of another suite needs that suite's libc and libraries, so it comes with all that it depends on. apt
resolves that against an empty list of installed packages, `dpkg-deb` unpacks the files below
`~/.cache/fencelock/servers/roots/SUITE/NAME`, and no script of a package runs. `chroot` starts a server in a
mount namespace of its own, into which the machine's /proc, /dev and accounts and the server's folders are
bound. Each program on the way replaces itself by the next, so the pid is the server's, and the mounts go
with the last process.

Why not the root's own dynamic loader: initdb starts postgres, mariadb-install-db is a shell script, and java
starts itself again and looks below /etc for its configuration. All of these would get the machine's libc and
files. `chroot` is one way that fits all servers. Its price: it needs root.

The archive is the one that the machine uses already; only the suite's name is exchanged.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .apt import AptError, Archive
from .errors import ServerError
from .packages import Package, cache, one_at_a_time, upstream

TOOLS = ("coreutils", "dash", "grep", "hostname", "libc-bin", "mawk", "sed")
"""What scripts such as mariadb-install-db take for granted, and the locale C.UTF-8."""
FOLDERS = ("usr/lib/postgresql/*/bin", "usr/lib/jvm/default-java/bin", "usr/bin", "usr/sbin")
BINDS = ("/proc", "/dev", "/etc/hosts", "/etc/passwd", "/etc/group")
VERSIONS = "versions.json"
NAME = re.compile(r"[a-z][a-z0-9-]*")
ENTER = """\
root=$1; shift
while [ "$1" != -- ]; do mount --rbind "$1" "$root$1" || exit; shift; done
shift; exec "$@"
"""


@dataclass(frozen=True)
class Root:
    """The root of one kind's packages from one suite; `wanted` is how the user named it."""

    wanted: str
    suite: str
    packages: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return cache() / "roots" / self.suite / "+".join(self.packages)

    @property
    def installed(self) -> bool:
        return (self.folder / VERSIONS).exists()

    @property
    def version(self) -> str:
        """The version of its first package, if it is unpacked."""
        if not self.installed:
            return ""
        versions: dict[str, str] = json.loads((self.folder / VERSIONS).read_text())
        return upstream(versions.get(self.packages[0], ""))

    def program(self, name: str) -> str:
        """The path of a program as it is called inside."""
        for pattern in FOLDERS:
            for folder in sorted(self.folder.glob(pattern)):
                if os.path.lexists(folder / name):
                    return f"/{(folder / name).relative_to(self.folder)}"
        raise ServerError(f"{self.wanted}: {name} is not in {self.folder}: remove that folder and try again")

    def prefix(self, user: str, paths: Iterable[Path]) -> list[str]:
        """What to put before a command so that it runs inside, as `user`, and sees these paths."""
        # The first folder of each path, so that no mount point is left in the root.
        tops = sorted({f"/{path.absolute().parts[1]}" for path in paths})
        for top in tops:
            (self.folder / top[1:]).mkdir(exist_ok=True)
        become = [f"--userspec={user}:", "--groups="] if user else []
        # What the machine unmounts must go in the namespace too, or a disk that it has lost lives on there.
        shell = ["unshare", "--mount", "--propagation=slave", "sh", "-c", ENTER, "enter", str(self.folder)]
        return [*shell, *BINDS, *tops, "--", "chroot", *become, str(self.folder)]

    def install(self) -> bool:
        """Unpacks it unless that is done; says whether there was something to do."""
        if os.geteuid() != 0:
            raise ServerError(f"{self.wanted}: a server of another suite runs in a chroot: run this as root")
        return self.unpack()

    def unpack(self) -> bool:
        """As `install`, for a program that needs no chroot."""
        if self.installed:
            return False
        with one_at_a_time():
            if self.installed:
                return False
            self._fetch()
        return True

    def _fetch(self) -> None:
        archive = Archive(cache(), suites=(self.suite,), only=True)
        try:
            archive.update()
        except AptError as error:
            shutil.rmtree(archive.folder)
            raise ServerError(
                f"{self.wanted}: suite {self.suite!r} cannot be read from this machine's archive"
                f" ({error.blame}): name one that it has, such as sid"
            ) from error
        try:
            files = archive.fetch([*self.packages, *TOOLS])
        except AptError as error:
            raise ServerError(
                f"{self.wanted}: {' '.join(self.packages)} cannot be had from suite {self.suite!r}"
                f" ({error.blame}): name a suite that has it, or leave out @{self.suite}"
            ) from error
        self._unpack(files)
        archive.forget(files)

    def _unpack(self, files: list[Path]) -> None:
        # Unpacked beside the target and renamed, so that half an unpacking is never taken for a whole one.
        fresh = self.folder.with_name(self.folder.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        _lay_out(fresh)
        versions = dict(_unpack(file, fresh) for file in files)
        (fresh / VERSIONS).write_text(json.dumps(versions, indent=2, sort_keys=True))
        shutil.rmtree(self.folder, ignore_errors=True)
        fresh.rename(self.folder)


def root(wanted: str, suite: str, packages: Iterable[Package]) -> Root:
    """The root for these packages; unpacked by its `install()`."""
    if not NAME.fullmatch(suite):
        raise ServerError(
            f"{wanted}: {suite!r} is not the name of a suite: write NAME@SUITE, as in redis@sid"
        )
    return Root(wanted, suite, tuple(package.name for package in packages))


def _lay_out(folder: Path) -> None:
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "etc", "tmp"):
        (folder / name).mkdir()
    for bound in BINDS:
        if not Path(bound).is_dir():
            (folder / bound[1:]).touch()


def _unpack(file: Path, folder: Path) -> tuple[str, str]:
    """Lays out one package; the links from /lib to /usr/lib stay. Returns its name and version."""
    told = subprocess.run(
        ["dpkg-deb", "-f", str(file), "Package", "Version"], capture_output=True, text=True, check=False
    )
    tar = ["tar", "-x", "-C", str(folder), "--keep-directory-symlink", "-f", "-"]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as archive:
        done = subprocess.run(tar, stdin=archive.stdout, capture_output=True, text=True, check=False)
    if told.returncode or done.returncode or archive.returncode:
        said = (told.stderr or done.stderr).strip().splitlines() or ["dpkg-deb failed"]
        raise ServerError(f"{file.name} cannot be unpacked ({said[-1]}): free some space and try again")
    fields = dict(line.split(": ", 1) for line in told.stdout.splitlines())
    return fields["Package"], fields["Version"]


def unpacked() -> list[tuple[str, tuple[str, ...]]]:
    """Every root that is there: its suite and its packages."""
    found = sorted((cache() / "roots").glob(f"*/*/{VERSIONS}"))
    return [(path.parts[-3], tuple(path.parts[-2].split("+"))) for path in found]
