"""Which programs a kind of server needs, where they are, and how to get the missing ones.

`program()` finds, `install()` gets. Nothing is fetched when nothing is missing. Any number of processes may
call `install()` at once: a file lock lets one of them work, the others then find it done.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .apt import Archive, codename
from .errors import ServerError


@dataclass(frozen=True)
class Package:
    """A Debian package; it is installed when each of `provides` (a program, or a file's path) is found."""

    name: str
    provides: tuple[str, ...]
    units: tuple[str, ...] = ()
    unpack_from: str = ""
    """The suite of an older or newer release: unpacked into the cache, since installing it would not fit."""

    @property
    def installed(self) -> bool:
        return all(find(each) for each in self.provides)

    @property
    def version(self) -> str:
        """The version that is installed or unpacked, as its authors write it; empty if there is none."""
        if self.unpack_from:
            return upstream(_logged(cache() / "unpacked" / self.name / "usr/share/doc" / self.name))
        asked = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", self.name], capture_output=True, text=True, check=False
        )
        return upstream(asked.stdout)


def upstream(version: str) -> str:
    """Debian's version without its epoch and revision: `5:7.0.15-1` is 7.0.15."""
    found = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version)
    return found[1] if found else ""


def _logged(folder: Path) -> str:
    """The version at the top of a package's list of changes."""
    for path in folder.glob("changelog*.gz"):
        with gzip.open(path, "rt", errors="replace") as changes:
            if found := re.search(r"\((.*?)\)", changes.readline()):
                return found[1]
    return ""


REDIS = Package("redis-server", ("redis-server",), ("redis-server",))
VALKEY = Package("valkey-server", ("valkey-server",), ("valkey-server",))
POSTGRES = Package("postgresql", ("postgres", "initdb", "psql"), ("postgresql",))
PGBOUNCER = Package("pgbouncer", ("pgbouncer",), ("pgbouncer",))
MARIADB = Package("mariadb-server", ("mariadbd", "mariadb-install-db", "mariadb"), ("mariadb",))
ZOOKEEPER = Package("zookeeper", ("java", "/usr/share/java/zookeeper.jar"))
MYSQL = Package("mysql-server", ("mysqld", "mysql"), ("mysql",))
ETCD = Package("etcd-server", ("etcd",), ("etcd",))
CONSUL = Package("consul", ("consul",), unpack_from="bullseye")
IPTABLES = Package("iptables", ("iptables",))
IPROUTE = Package("iproute2", ("ip",))
CHROMIUM = Package("chromium", ("chromium",))
CHROMEDRIVER = Package("chromium-driver", ("chromedriver",))
VALGRIND = Package("valgrind", ("valgrind",))
FONT = Package("fonts-dejavu-core", ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",))


def cache() -> Path:
    """Where package lists and unpacked packages are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fencelock" / "servers"


def find(name: str) -> str | None:
    """The path of a program or file, looked for where Debian hides its server programs too."""
    if name.startswith("/"):
        return name if Path(name).exists() else None
    hidden = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_major, reverse=True)
    unpacked = cache().glob("unpacked/*/usr/bin")
    # Debian's own psql on the PATH is a wrapper that looks for clusters, so the hidden ones come first.
    folders = [*hidden, *unpacked, os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]
    return shutil.which(name, path=os.pathsep.join(map(str, folders)))


def _major(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


def program(name: str) -> str:
    """Like `find`, but its absence is an error."""
    path = find(name)
    if path is None:
        raise ServerError(f"{name} is not installed: python -m tools.servers install")
    return path


def install(packages: Iterable[Package]) -> list[str]:
    """Gets what is missing and names it; returns at once when nothing is."""
    wanted = list(dict.fromkeys(packages))
    if all(package.installed for package in wanted):
        return []
    with one_at_a_time():
        missing = [package for package in wanted if not package.installed]
        _unpack([package for package in missing if package.unpack_from])
        _install([package for package in missing if not package.unpack_from])
    still = [package.name for package in missing if not package.installed]
    if still:
        raise ServerError(f"installed, but its programs are not to be found: {' '.join(still)}")
    return [package.name for package in missing]


def _unpack(packages: list[Package]) -> None:
    for package in packages:
        archive = Archive(cache(), suites=(package.unpack_from,), only=True)
        archive.update()
        archive.unpack(package.name, cache() / "unpacked" / package.name)


def _install(packages: list[Package]) -> None:
    if not packages:
        return
    if os.geteuid() != 0:
        names = " ".join(package.name for package in packages)
        raise ServerError(f"not installed: {names}; run this as root, or install them yourself")
    # What is only in backports comes from there; all else keeps coming from the release, for apt gives
    # backports the lower priority by itself.
    archive = Archive(cache(), suites=(f"{codename()}-backports",))
    archive.update()
    archive.install([package.name for package in packages])
    _disable([unit for package in packages for unit in package.units])


def _disable(units: list[str]) -> None:
    """Debian enables a daemon that it installs: it must not come up with the next boot either."""
    if units and shutil.which("systemctl"):
        subprocess.run(["systemctl", "disable", "--quiet", *units], capture_output=True, check=False)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Only one process fetches packages; the others wait."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
