"""How values become bytes, and bytes values again.

JSON is the default. Pickle is by choice only: whoever can write to the store could make every reader run any
code. A record names the codec that wrote it, and is not there for a flight with another one.
"""

from __future__ import annotations

import json
import pickle
import re
from typing import Any, Protocol, runtime_checkable

from fencelock.errors import ConfigurationError
from fencelock.names import shown

__all__ = ["Codec", "codec_for"]


@runtime_checkable
class Codec(Protocol):
    """Turns values into bytes and back: for a codec of your own."""

    @property
    def name(self) -> str:
        """What records are marked with: up to 32 small letters, digits and dashes."""

    def dumps(self, value: Any) -> bytes:
        """Return the value as bytes. An error is that of the computation."""

    def loads(self, data: bytes) -> Any:
        """Return the value again. An error means that it is computed anew."""


class JSONCodec:
    """Whatever JSON can carry."""

    name = "json"

    def dumps(self, value: Any) -> bytes:
        try:
            return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"value={shown(value)} is not JSON: {error}; give the flight another codec"
            ) from None

    def loads(self, data: bytes) -> Any:
        return json.loads(data)


class BytesCodec:
    """Bytes, as they are."""

    name = "bytes"

    def dumps(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise ConfigurationError(
                f"value={shown(value)} is not bytes, and codec='bytes' keeps nothing else"
            )
        return value

    def loads(self, data: bytes) -> Any:
        return data


class PickleCodec:
    """Whatever pickle can carry. Only for a store that nobody else can write to."""

    name = "pickle"

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def loads(self, data: bytes) -> Any:
        return pickle.loads(data)


READY: dict[str, Codec] = {codec.name: codec for codec in (JSONCodec(), BytesCodec(), PickleCodec())}


def codec_for(given: str | Codec) -> Codec:
    """Return a codec, checked. Raises `ConfigurationError`."""
    if isinstance(given, str):
        if given not in READY:
            raise ConfigurationError(f"codec={given!r} is not known: give one of {', '.join(READY)}")
        return READY[given]
    if not isinstance(given, Codec):
        raise ConfigurationError(f"codec={shown(given)} has no name, dumps and loads: give one that has")
    if not isinstance(given.name, str) or not re.fullmatch(r"[a-z0-9-]{1,32}", given.name):
        raise ConfigurationError(
            f"codec name {shown(given.name)} cannot be used: give up to 32 small letters, digits and dashes"
        )
    return given
