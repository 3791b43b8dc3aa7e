"""The schema: made on first use, under an advisory lock, by whoever comes first.

A statement that finds no schema asks for it, so that nobody checks what is there already. One client at a
time makes it, in one transaction: there is a whole schema of one version, or none.
"""

from __future__ import annotations

from importlib.resources import files

from fencelock.backends import RIGHTS
from fencelock.backends.postgres.failures import Refused, said
from fencelock.backends.postgres.wire import Wire
from fencelock.errors import BackendUnavailable, ConfigurationError

__all__ = ["BUCKETS", "VERSION", "check", "create", "script"]

VERSION = 1
BUCKETS = 256
LATCH = 0x66656E63656C6F63  # "fenceloc": the key of the advisory lock under which it is made


def script(schema: str, folder: str = "") -> str:
    """Return the SQL that makes the schema, for people who run migrations themselves."""
    text = files(__package__).joinpath(folder, "schema.sql").read_text("utf-8")
    quoted = f'"{schema}"'
    return (
        text.replace("{schema}", quoted).replace("{version}", str(VERSION)).replace("{buckets}", str(BUCKETS))
    )


async def check(wire: Wire, schema: str, deadline: float) -> bool:
    """Say whether there is a schema; refuse one that is newer."""
    try:
        result = await wire.run(f'SELECT max(version) FROM "{schema}".version', deadline)
    except Refused as error:
        if error.state in {"42P01", "3F000"}:
            return False
        if error.state == "42501":
            raise _not_allowed(wire, schema, error, "use") from error
        raise said(wire.source.label, error) from error
    version = int(result.get_value(0, 0) or 0)
    if version > VERSION:
        raise ConfigurationError(
            f"{wire.source.label}: schema {schema!r} is of version {version}, and this fencelock knows "
            f"versions up to {VERSION}: upgrade fencelock, or give another schema with ?schema=NAME"
        )
    return True


async def create(wire: Wire, schema: str, deadline: float, folder: str = "") -> None:
    """Make the schema, or what is missing of it."""
    # Statements that are sent together are one transaction.
    text = f"SELECT pg_advisory_xact_lock({LATCH});\n{script(schema, folder)}"
    try:
        await wire.run(text, deadline)
    except Refused as error:
        if error.state in {"42501", "25006"}:
            raise _not_allowed(wire, schema, error, "create") from error
        raise said(wire.source.label, error) from error


def _not_allowed(wire: Wire, schema: str, error: Refused, what: str) -> BackendUnavailable:
    label = wire.source.label
    if error.state == "25006":
        return BackendUnavailable(
            backend="postgresql",
            detail=f"{label}: it is a read-only replica, or read-only for this role: give the address of its "
            "primary",
        )
    if what == "use":
        detail = (
            f"this role may not use schema {schema!r}: `fencelock schema --print URL` ends with the GRANTs "
            f"that it needs (see {RIGHTS})"
        )
    else:
        detail = (
            f"schema {schema!r} is missing or incomplete, and this role may not create it: let the "
            f"database's owner run what `fencelock schema --print URL` prints (see {RIGHTS})"
        )
    return BackendUnavailable(backend="postgresql", detail=f"{label}: {detail}", transient=False)
