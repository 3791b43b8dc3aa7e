"""Finds a Python of each version: on this machine, or in another Debian suite.

The Python of another suite needs that suite's libc, so it is unpacked with all that it depends on, as the
servers of `tools.servers.suites` are. It needs no chroot: a script beside it starts it by the dynamic loader
of its root, and names itself as the program. An environment whose `bin/python` is a link to that script is
an environment as any other, for the tests and for the processes that they start.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.servers import ServerError
from tools.servers.packages import Package
from tools.servers.suites import Root, root

__all__ = ["Interpreter", "NotFound", "find"]

LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "lib64/ld-linux-x86-64.so.2"
PYENV = Path.home() / ".pyenv" / "versions"
VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"


class NotFound(Exception):
    """There is no such Python: what was looked for, what was found, and what to do."""


@dataclass(frozen=True)
class Interpreter:
    """A Python: the program, its whole version, and where it comes from."""

    program: Path
    version: str
    source: str


def find(wanted: str, suite: str = "") -> Interpreter:
    """Return the newest Python of a version such as `3.13`; `suite` names a Debian suite that has it too."""
    blame = ""
    found = list(_installed(wanted))
    if suite:
        try:
            found.append(_unpacked(wanted, suite))
        except ServerError as error:
            blame = f" ({str(error).splitlines()[0]})"
    if not found:
        has = ", ".join(dict.fromkeys(each.version for each in _installed(""))) or "none"
        raise NotFound(
            f"Python {wanted} is wanted, and {has} is here{blame}: install python{wanted}, or add it to pyenv"
        )
    return max(found, key=lambda each: [int(part) for part in each.version.split(".")])


def _installed(wanted: str) -> Iterator[Interpreter]:
    """Yield the Pythons of this machine whose version begins so."""
    on_path = shutil.which(f"python{wanted or 3}")
    paths = [Path(on_path)] if on_path else []
    paths += sorted(PYENV.glob(f"{wanted or '3.'}*/bin/python3"))
    for path in paths:
        version = _version(path)
        if version == wanted or version.startswith(f"{wanted}." if wanted else "3"):
            yield Interpreter(path, version, "pyenv" if path.is_relative_to(PYENV) else "this machine")


def _version(program: Path) -> str:
    try:
        asked = subprocess.run([program, "-c", VERSION], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""  # a shim of pyenv may lead nowhere


def _unpacked(wanted: str, suite: str) -> Interpreter:
    packages = [Package(f"python{wanted}{more}", ()) for more in ("", "-venv")]
    place = root(f"python{wanted}@{suite}", suite, packages)
    place.unpack()
    program = _starter(place, place.folder / place.program(f"python{wanted}")[1:])
    version = _version(program)
    if not version:
        raise ServerError(f"python{wanted}@{suite} does not start: remove {place.folder} and try again")
    return Interpreter(program, version, f"Debian {suite}")


def _starter(place: Root, program: Path) -> Path:
    """Write the script that starts a Python by the loader of its own root; return its path."""
    loader = [str(place.folder / LOADER), "--library-path", str(place.folder / LIBRARIES)]
    script = f'#!/bin/sh\nexec {shlex.join(loader)} --argv0 "$0" {shlex.quote(str(program))} "$@"\n'
    # Beside the program, since Python looks for its library from there. Renamed: others may start it now.
    starter = program.with_name("python")
    if not starter.exists() or starter.read_text() != script:
        fresh = program.with_name("python.new")
        fresh.write_text(script)
        fresh.chmod(0o755)
        fresh.rename(starter)
    return starter
