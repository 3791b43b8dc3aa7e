"""The two encodings of a CRDT, both with a version and a check sum.

    bytes:  "HFC", version, type, check (8 bytes), state (see `packing.py`)
    JSON:   {"fencelock": "crdt", "version": 1, "type": …, "check": …, "state": …}

The check is BLAKE2b over the type and the binary form of the state, the same in both. So a form
that was cut, flipped or edited is refused, and equal values have equal checks. It is a check against
damage, not a signature: whoever may write your store may write what they like.

Whatever is wrong is one `DecodeError`, and a form of a newer version says so.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

from fencelock.crdt.base import Crdt
from fencelock.crdt.packing import DecodeError, Tree, Wrong, from_plain, pack, to_plain, unpack
from fencelock.errors import ConfigurationError
from fencelock.names import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MAX_BYTES", "TYPES", "check_of", "from_bytes", "from_json", "register", "to_bytes", "to_json"]

C = TypeVar("C", bound=Crdt)
MAGIC = b"HFC"
VERSION = 1
CHECK = 8
HEAD = len(MAGIC) + 2 + CHECK
MAX_BYTES = 2**28
"""More than that is not read."""
FIELDS = ("fencelock", "version", "type", "check", "state")

TYPES: dict[int, type[Crdt]] = {}
"""The types by their number."""


def register(cls: type[C]) -> type[C]:
    """Let a type be decoded."""
    TYPES[cls.code] = cls
    return cls


def to_bytes(value: Crdt) -> bytes:
    """Return the binary form."""
    body = pack(value._tree())
    return MAGIC + bytes([VERSION, value.code]) + check_of(value.code, body) + body


def to_json(value: Crdt) -> str:
    """Return the JSON form."""
    tree = value._tree()
    check = check_of(value.code, pack(tree)).hex()
    filled = ("crdt", VERSION, type(value).__name__, check, to_plain(tree))
    form = dict(zip(FIELDS, filled, strict=True))
    return json.dumps(form, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def check_of(code: int, body: bytes) -> bytes:
    """Return the check sum of a state."""
    return hashlib.blake2b(bytes([code]) + body, digest_size=CHECK).digest()


def from_bytes(data: bytes, wanted: type[C]) -> C:
    """Return the value of a binary form; raise `DecodeError`."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigurationError(f"data={shown(data)} is not bytes")
    try:
        return _from_bytes(bytes(data), wanted)
    except Wrong as wrong:
        raise DecodeError(what=_what(wanted), detail=str(wrong)) from None


def _from_bytes(data: bytes, wanted: type[C]) -> C:
    _check_size(len(data))
    if data[: len(MAGIC)] != MAGIC:
        raise Wrong(f"it does not begin with {MAGIC!r}")
    if len(data) < HEAD:
        raise Wrong("it ends too early")
    _check_version(data[len(MAGIC)])
    cls = _type(data[len(MAGIC) + 1], wanted)
    body = data[HEAD:]
    if check_of(cls.code, body) != data[HEAD - CHECK : HEAD]:
        raise Wrong("it is damaged: the check does not fit")
    return _made(cls, unpack(body))


def from_json(text: str | bytes, wanted: type[C]) -> C:
    """Return the value of a JSON form; raise `DecodeError`."""
    if not isinstance(text, str | bytes | bytearray):
        raise ConfigurationError(f"text={shown(text)} is not JSON text")
    try:
        return _from_json(text, wanted)
    except Wrong as wrong:
        raise DecodeError(what=_what(wanted), detail=str(wrong)) from None


def _from_json(text: str | bytes, wanted: type[C]) -> C:
    _check_size(len(text))
    form = _parsed(text)
    if not isinstance(form, dict) or form.get("fencelock") != "crdt":
        raise Wrong('it is no object with "fencelock": "crdt"')
    _check_version(form.get("version"))
    if set(form) != set(FIELDS):
        raise Wrong(f"its fields are not {', '.join(FIELDS)}")
    code = next((code for code, cls in TYPES.items() if cls.__name__ == form["type"]), form["type"])
    cls = _type(code, wanted)
    tree = from_plain(form["state"])
    try:
        body = pack(tree)
    except ConfigurationError as error:
        raise Wrong(str(error)) from None
    if form["check"] != check_of(cls.code, body).hex():
        raise Wrong("it is damaged: the check does not fit")
    return _made(cls, tree)


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise Wrong("it is nested too deeply") from None
    except ValueError as error:  # broken JSON, broken UTF-8, a number of thousands of digits
        raise Wrong(f"it is not JSON ({shown(str(error))})") from None


def _once(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) != len(fields):
        raise Wrong("a field is there twice")
    return found


def _no_constant(word: str) -> Any:
    raise Wrong(f"{word} is not a number of JSON")


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise Wrong(f"it has {size} bytes, {MAX_BYTES} are possible")


def _check_version(version: object) -> None:
    if type(version) is not int or version < 1:
        raise Wrong(f"{shown(version)} is no version")
    if version > VERSION:
        raise Wrong(
            f"it is of version {shown(version)}, this fencelock reads up to {VERSION}: upgrade fencelock"
        )


def _type(code: object, wanted: type[C]) -> type[C]:
    cls = TYPES.get(code) if type(code) is int else None
    if cls is None:
        raise Wrong(f"{shown(code)} is no type of CRDT")
    if not issubclass(cls, wanted):
        raise Wrong(f"it is a {cls.__name__}")
    return cls


def _made(cls: type[C], tree: Tree) -> C:
    return cls._from_tree(tree)


def _what(wanted: type[Crdt]) -> str:
    return f"not the encoding of a {'CRDT' if wanted is Crdt else wanted.__name__}"
