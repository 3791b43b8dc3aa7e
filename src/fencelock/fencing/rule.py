"""The rule, in one place: a resource remembers the highest token it has seen and refuses a lower one.

An equal token passes: one holder writes many times. Every guard of this package asks these functions, and so
does its check of what the caller gave, before anything is sent or changed.

Not promised: that a token is genuine. A token is no secret and proves nothing about who sent it.
"""

from __future__ import annotations

import re

from fencelock.errors import ConfigurationError, StaleToken
from fencelock.names import check_name, shown

__all__ = ["DIGITS", "LARGEST", "check_resource", "check_token", "judge", "padded", "parse_token"]

LARGEST = 2**63 - 1
"""The highest token: what a signed column of 64 bits can hold."""

DIGITS = 19
"""So many digits has the highest token."""

WRITTEN = re.compile(rf"[1-9][0-9]{{0,{DIGITS - 1}}}", flags=re.ASCII)


def check_token(token: int) -> int:
    """Return `token` if it can be one.

    Example:
        >>> check_token(1794966437913934)
        1794966437913934
    """
    if isinstance(token, bool) or not isinstance(token, int):
        raise ConfigurationError(f"token={shown(token)} is not a whole number: give lease.token")
    if not 0 < token <= LARGEST:
        raise ConfigurationError(f"token={shown(token)} is out of range: from 1 to 2**63 - 1 is possible")
    return int(token)


def check_resource(resource: str) -> str:
    """Return `resource` if it can name one: the rules are those for the names of locks."""
    return check_name(resource, "resource")


def judge(resource: str, token: int, newest: int) -> None:
    """Raise `StaleToken` if a resource that has seen `newest` must refuse `token`."""
    if newest > token:
        raise StaleToken(resource=resource, token=token, newest=newest)


def parse_token(text: str) -> int:
    """Return the token that a header has: digits, nothing else, no leading zero."""
    if not WRITTEN.fullmatch(text) or int(text) > LARGEST:
        raise ConfigurationError(f"token={shown(text)} is not a whole number from 1 to 2**63 - 1")
    return int(text)


def padded(token: int) -> str:
    """Return a token, or the one after the last, as text that sorts as the numbers do."""
    return f"{token:0{DIGITS}d}"
