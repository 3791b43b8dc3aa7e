"""The tables and procedures: as text, and how a client makes them when they are missing.

A client looks for the version once, before its first step. If there is none, it makes everything,
under GET_LOCK so that two clients do not get in each other's way; each statement may be repeated,
so one that is stopped in the middle is made good by the next. A client without the right to do so
says what to run. The names of procedures end in their version: what a newer fencelock makes stands
beside them, and if it cannot, it drops them and says so in the version.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from fencelock.errors import ConfigurationError

__all__ = ["DEFAULT_PREFIX", "VERSION", "check_prefix", "latch", "script", "statements"]

VERSION = 1
DEFAULT_PREFIX = "fencelock_"
SQL = files("fencelock.backends.mysql") / "sql"


def check_prefix(prefix: str, shown: str) -> str:
    """Return `prefix` if tables and procedures can be called so."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", prefix):
        raise ConfigurationError(
            f"prefix={prefix} in {shown!r}: write letters, digits and '_', at most 40 and no digit first"
        )
    return prefix


def script(prefix: str = DEFAULT_PREFIX, name: str = "schema") -> str:
    """Return the SQL that makes everything, for the `mysql` program. Run again, it changes nothing."""
    text = (SQL / f"{name}.sql").read_text(encoding="utf-8").replace("PREFIX", prefix)
    return text.replace("\nCREATE PROCEDURE ", "\nCREATE PROCEDURE IF NOT EXISTS ")


def statements(prefix: str, name: str = "schema") -> list[str]:
    """Return the same as single statements, as a connection takes them.

    Without IF NOT EXISTS for procedures, which MySQL knows since 8.0.29: that one is there is no harm.
    """
    text = (SQL / f"{name}.sql").read_text(encoding="utf-8").replace("PREFIX", prefix)
    text = re.sub(r"^\s*--.*\n", "", text, flags=re.M)
    found, end = [], ";"
    for part in re.split(r"^(DELIMITER .+)\n", text, flags=re.M):
        if part.startswith("DELIMITER "):
            end = part.split()[1]
        else:
            found += [one.strip() for one in part.split(end)]
    return [one for one in found if one]


def latch(database: str, prefix: str) -> str:
    """Return the name of the lock under which the tables are made."""
    return "fencelock:" + hashlib.sha256(f"{database}.{prefix}".encode()).hexdigest()[:32]
