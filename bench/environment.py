"""Environments for peers: one each, made on first use, versions pinned.

Peers disagree about the versions of their drivers, and none of them is a dependency of fencelock. The
environment of `redlock-ng` holds what `peers/requirements-redlock-ng.txt` says, and is made anew when
that file or the Python changes.

Not promised: that every peer can be installed. What cannot is a `NotInstalled` with the reason, and
the table says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["NotInstalled", "interpreter"]

HOME = Path(__file__).parent / ".environments"
REQUIREMENTS = Path(__file__).parent / "peers"
SECONDS = 300.0


class NotInstalled(Exception):
    """The reason why there is no such environment, in one line."""


def interpreter(name: str, progress: Callable[[str], None]) -> Path:
    """Return the Python of that environment, which is made if need be."""
    folder = HOME / name
    wanted = (REQUIREMENTS / f"requirements-{name}.txt").read_text()
    stamp, python = folder / "installed.txt", folder / "bin" / "python"
    contents = f"# {sys.version}\n{wanted}"
    if not (stamp.exists() and stamp.read_text() == contents):
        progress(f"installing {name}")
        shutil.rmtree(folder, ignore_errors=True)
        # One pip serves all environments: seeding each with its own takes longer than the peer.
        _do([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        requirements = str(REQUIREMENTS / f"requirements-{name}.txt")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        _do([*pip, "install", "--quiet", "--no-input", "--requirement", requirements])
        stamp.write_text(contents)
    return python


def _do(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"not installed within {SECONDS:.0f} s") from None
    except subprocess.CalledProcessError as failure:
        raise NotInstalled(_reason(failure.stderr)) from None


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no reason given"]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])[:160]
