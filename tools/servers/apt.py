"""A private view of the machine's own apt archive, able to see suites that the machine does not use.

The archive's address, components and signing key are read from the apt sources that exist (one-line
``.list`` files and deb822 ``.sources`` files); only the suite's name is exchanged. Lists and downloads live
in our cache folder, so neither /etc/apt nor /var/lib/apt/lists is touched. Installed packages are the
system's, as with any ``apt-get install``; no service is started or enabled by it.

Not promised: anything on systems without apt.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import ServerError

ETC = Path("/etc/apt")
POLICY = Path("/usr/sbin/policy-rc.d")
DENY_ALL = "#!/bin/sh\n# temporary: packages are being installed whose daemons must not start\nexit 101\n"


@dataclass(frozen=True)
class Source:
    """One suite of one archive; `options` is what stands in brackets in a one-line entry."""

    uri: str
    suite: str
    components: tuple[str, ...]
    options: str = ""

    def __str__(self) -> str:
        brackets = f"[{self.options}] " if self.options else ""
        return f"deb {brackets}{self.uri} {self.suite} {' '.join(self.components)}"


def machine_sources(etc: Path = ETC) -> list[Source]:
    """Every binary source that apt itself would read."""
    folder = etc / "sources.list.d"
    one_line = [etc / "sources.list", *sorted(folder.glob("*.list"))]
    found = [source for path in one_line if path.is_file() for source in parse_list(path.read_text())]
    for path in sorted(folder.glob("*.sources")):
        found += parse_deb822(path.read_text())
    return found


def parse_list(text: str) -> list[Source]:
    """`deb [options] uri suite component…`, one per line."""
    found = []
    for raw in text.splitlines():
        line = raw.split("#", 1)[0].strip()
        if not line.startswith(("deb ", "deb\t")):
            continue
        rest, options = line[3:].strip(), ""
        if rest.startswith("["):
            options, _, rest = rest[1:].partition("]")
        words = rest.split()
        if len(words) >= 2:
            found.append(Source(words[0], words[1], tuple(words[2:]), options.strip()))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Paragraphs of `Field: value`; a key written out in full is left to apt's own keyring."""
    found = []
    for fields in _paragraphs(text):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        key = fields.get("signed-by", "")
        options = f"signed-by={key}" if key.startswith("/") else ""
        found += [
            Source(uri, suite, tuple(fields.get("components", "").split()), options)
            for uri in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return found


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    name = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}".strip()
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()


def codename(path: Path = Path("/etc/os-release")) -> str:
    """The release this machine runs, such as `bookworm`; empty where unknown."""
    if not path.is_file():
        return ""
    values = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", "").strip('"')


class AptError(ServerError):
    """apt refused; `blame` is its own reason in one line."""

    def __init__(self, message: str, blame: str) -> None:
        super().__init__(message)
        self.blame = blame


class Archive:
    """apt-get with sources and lists of its own; `suites` are exchanged for the machine's release."""

    def __init__(self, cache: Path, *, suites: tuple[str, ...], only: bool = False) -> None:
        release = codename()
        if not shutil.which("apt-get") or not release:
            raise ServerError("packages can be installed with apt only: use compose.yaml on this system")
        own = [s for s in machine_sources() if s.suite == release or s.suite.startswith(f"{release}-")]
        main = next((s for s in own if s.suite == release), None)
        if main is None:
            raise ServerError(f"no apt source for {release!r} found below {ETC}")
        extra = [replace(main, suite=suite) for suite in suites]
        self.sources = extra if only else list(dict.fromkeys([*own, *extra]))
        self.folder = cache / "-".join(["apt", release, *suites])

    def update(self) -> None:
        """Fetches the lists of packages."""
        for part in ("lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "sources.list").write_text("".join(f"{source}\n" for source in self.sources))
        self._run("update", "-qq")

    def install(self, packages: list[str]) -> None:
        """Installs into the system, starting and enabling nothing."""
        with services_denied():
            self._run("install", "-y", "-qq", "--no-install-recommends", *packages)

    def unpack(self, package: str, target: Path) -> None:
        """Downloads one package and lays its files out below `target`, without installing it."""
        downloads = self.folder / "downloads"
        shutil.rmtree(downloads, ignore_errors=True)
        downloads.mkdir(parents=True)
        self._run("download", "-qq", package, cwd=downloads)
        # Unpacked beside the target and renamed, so that half an unpacking is never taken for a whole one.
        fresh = target.with_name(target.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for deb in downloads.glob("*.deb"):
            _run(["dpkg", "-x", str(deb), str(fresh)])
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
        shutil.rmtree(downloads)

    def fetch(self, packages: list[str]) -> list[Path]:
        """Downloads the packages and all that they depend on, as for a machine that has none."""
        nothing = self.folder / "no-packages"
        nothing.touch()
        archives = self.folder / "cache" / "archives"
        for old in archives.glob("*.deb"):
            old.unlink()
        more = {"Dir::State::status": nothing}
        self._run("install", "-y", "-qq", "--no-install-recommends", "--download-only", *packages, **more)
        return sorted(archives.glob("*.deb"))

    def forget(self, files: list[Path]) -> None:
        """Removes downloads that are no longer needed."""
        for file in files:
            file.unlink(missing_ok=True)

    def _run(self, verb: str, *arguments: str, cwd: Path | None = None, **more: Path) -> None:
        options = {
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": self.folder / "lists",
            "Dir::Cache": self.folder / "cache",
            # The unprivileged download user of apt cannot enter a root-owned cache folder.
            "APT::Sandbox::User": "root",
            "APT::Keep-Downloaded-Packages": "false",
            "DPkg::Lock::Timeout": "300",
            "Acquire::Retries": "3",
            **more,
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        _run(["apt-get", *flags, verb, *arguments], cwd=cwd)


def _run(command: list[str], cwd: Path | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = done.stdout.strip().splitlines()
        tail = "\n".join(f"  {line}" for line in said[-12:])
        blame = next((line[3:] for line in said if line.startswith("E: ")), f"status {done.returncode}")
        raise AptError(f"{command[0]} ended with status {done.returncode}\n{tail}", blame)


@contextlib.contextmanager
def services_denied(policy: Path = POLICY) -> Iterator[None]:
    """Debian's maintainer scripts start a daemon unless policy-rc.d forbids it: forbid it for a while.

    A policy that already forbids is left alone. One that does not is moved aside and moved back; should we be
    killed in between, the next call finds it and moves it back.
    """
    aside = policy.with_name(policy.name + ".fencelock-aside")
    if aside.exists():
        aside.replace(policy)
    if _denies(policy):
        yield
        return
    existed = policy.exists()
    if existed:
        policy.rename(aside)
    policy.write_text(DENY_ALL)
    policy.chmod(0o755)
    try:
        yield
    finally:
        if existed:
            aside.replace(policy)
        else:
            policy.unlink()


def _denies(policy: Path) -> bool:
    if not os.access(policy, os.X_OK):
        return False
    asked = subprocess.run([str(policy), "redis-server", "start"], capture_output=True, check=False)
    return asked.returncode == 101
