"""From the names of locks to a bounded number of labels.

A metric with a label for each name would have a series for each invoice, for ever. So a label is a
*pattern* of names: by default the name with `*` for whatever looks like a value in it; or the template that
it was made of; or what a function of yours says. Whatever that gives, at most `MOST` labels are different:
those that come later are `other`.

What looks like a value: a UUID; digits; eight or more hexadecimal digits with a digit among them, or
sixteen in any case; twenty or more letters and digits with a digit among them (ULIDs, hashes in base 32 or
64).

Not promised: that words are told from values. `user:alice` stays as it is, and so do the next ninety-nine.
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Callable, Iterable

from fencelock.errors import ConfigurationError
from fencelock.names import shown
from fencelock.templates import Template

__all__ = ["Labels", "Pattern", "default_pattern"]

Pattern = Callable[[str], str] | Iterable[str] | None
"""A function from a name to its label, or templates such as `invoice:{id}`, or `None` for the default."""

MOST = 100
OTHER = "other"
REMEMBERED = 10_000
"""So many names have their label looked up; then they are forgotten, and it is found out again."""

VALUES = re.compile(
    r"""
      [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}                              # a UUID
    | (?<![0-9A-Za-z])(?:(?=[A-Fa-f]*[0-9])[0-9A-Fa-f]{8,}|[0-9A-Fa-f]{16,})(?![0-9A-Za-z])
    | (?<![0-9A-Za-z])(?=[A-Za-z]*[0-9])[0-9A-Za-z]{20,}(?![0-9A-Za-z])
    | [0-9]+
    """,
    re.VERBOSE,
)

log = logging.getLogger("fencelock")


def default_pattern(name: str) -> str:
    """Return the name with `*` for whatever looks like a value in it.

    Example:
        >>> default_pattern("invoice:42")
        'invoice:*'
        >>> default_pattern("job-0b54a7d2-7d4e-4f0f-9c2e-93f4b2a51c11#send_email")
        'job-*#send_email'
    """
    return VALUES.sub("*", name)


class Labels:
    """The label of each name: `Labels(pattern)(name)`."""

    def __init__(self, pattern: Pattern = None) -> None:
        self._pattern = _function(pattern)
        self._known: dict[str, str] = {}
        self._labels: set[str] = set()
        self._has_failed = False

    def __call__(self, name: str) -> str:
        """Return the label of a name; it never raises."""
        label = self._known.get(name)
        if label is None:
            label = self._bounded(self._made(name))
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[name] = label
        return label

    def _made(self, name: str) -> str:
        try:
            return str(self._pattern(name))
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                log.exception("the pattern of a name failed, it counts as %r (this is said once)", OTHER)
            return OTHER

    def _bounded(self, label: str) -> str:
        if label in self._labels or label == OTHER:
            return label
        if len(self._labels) >= MOST:
            return OTHER
        self._labels.add(label)
        return label


def _function(pattern: Pattern) -> Callable[[str], str]:
    if pattern is None:
        return default_pattern
    if callable(pattern):
        return pattern
    if isinstance(pattern, str) or not isinstance(pattern, Iterable):
        raise ConfigurationError(
            f"pattern={shown(pattern)} is no function and no list: give templates such as ['invoice:{{id}}']"
        )
    templates = [(Template(text, "pattern").text, _matching(text)) for text in pattern]

    def matched(name: str) -> str:
        return next((text for text, names in templates if names.fullmatch(name)), OTHER)

    return matched


def _matching(template: str) -> re.Pattern[str]:
    parts = string.Formatter().parse(template)
    text = "".join(
        re.escape(literal) + (".+?" if field is not None else "") for literal, field, _, _ in parts
    )
    return re.compile(text, re.DOTALL)
