"""Names that are made of values: `invoice:{id}` and the values of a request or a call.

A value comes from outside, so it must not be able to become another name than its own. Each is quoted: what
is left are letters, digits and `_ . - %`; a value that is longer than `LONGEST` so is replaced by `~` and its
SHA-256. A template is refused if two of its fields are not kept apart by a character that no quoted value
has, such as `:` or `/`. So for one template, different values give different names.

Values are compared as text: `1` and `"1"` give one name. A value whose text says nothing of it, such as an
object with an address in it, is refused, for each process would make another name of it.

Not promised: that two templates never meet. `a:{x}` and `a:{y}` are the same names, and `a:b` is one of them.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import re
import string
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fencelock.errors import ConfigurationError
from fencelock.names import check_name, shown

__all__ = ["Template", "quoted"]

LONGEST = 120
"""Characters of a quoted value; a longer one is hashed."""
PLAIN = (
    str,
    int,
    float,
    bytes,
    decimal.Decimal,
    uuid.UUID,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    type(None),
)
"""What has a text that is the same everywhere; `bool` and `datetime` are among them."""
SEPARATES = re.compile(r"[^A-Za-z0-9_.%~-]")


def quoted(value: object, what: str = "value") -> str:
    """Return a value as a part of a name.

    Example:
        >>> quoted("a:b"), quoted(42)
        ('a%3Ab', '42')
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if not isinstance(value, PLAIN):
        raise ConfigurationError(
            f"{what}={shown(value)} cannot be part of a name: give a string, a number, a UUID or a date"
        )
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    text = quote(raw, safe="").replace("~", "%7E")
    return text if len(text) <= LONGEST else f"~{hashlib.sha256(raw).hexdigest()}"


class Template:
    """A name with fields: `Template("invoice:{id}").filled({"id": 42})`.

    Example:
        >>> Template("invoice:{id}").filled({"id": "4/2"})
        'invoice:4%2F2'
    """

    def __init__(self, text: str, what: str = "name") -> None:
        self.text = check_name(text, what)
        self._what = what
        self._parts: list[tuple[str, str | None]] = []
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"{what}={text!r} is no template: {error}") from None
        between, is_first = "", True
        for literal, field, spec, conversion in parts:
            between += literal
            if field is not None and (not field.isidentifier() or spec or conversion):
                raise ConfigurationError(
                    f"{what}={text!r} has the field {{{field}}}: write a plain word, such as {{id}}"
                )
            if field is not None and not is_first and not SEPARATES.search(between):
                raise ConfigurationError(
                    f"{what}={text!r} has two fields that may run into each other: put a ':' between them"
                )
            if field is not None:
                between, is_first = "", False
            self._parts.append((literal, field))

    @property
    def fields(self) -> list[str]:
        """The fields, in order."""
        return [field for _, field in self._parts if field is not None]

    def filled(self, values: Mapping[str, Any]) -> str:
        """Return the name for these values. Raises `ConfigurationError` if one is missing."""
        text = ""
        for literal, field in self._parts:
            text += literal
            if field is None:
                continue
            if field not in values:
                raise ConfigurationError(f"{self._what}={self.text!r} needs a value for {{{field}}}")
            text += quoted(values[field], field)
        return check_name(text, self._what)
