"""Names: no two of them meet, on any backend, and bad ones are refused."""

from __future__ import annotations

import unicodedata
from typing import Any

from fencelock.errors import ConfigurationError
from fencelock.testing.conformance.expect import refused, same, that
from fencelock.testing.conformance.registry import check
from fencelock.testing.conformance.world import World

LONGEST = 512
ALIKE = (
    "a/b", "a:b", "{a}b", "a{b}", "A/B", "A/b", "a/B", "a.b", "a_b", "a-b", "a%b", "a*b", "a?b", "a[b]",
    "a\\b", "a'b", 'a"b', "a;b", "a\nb", "a\tb", "a#b", "a&b", "a=b", "a+b", "a,b",
    "a", "a/", "a//b", "a/b/", "a/b/c", "a/../b", "a/./b", "/a/b", "ab",
    "a/b ", "a/b  ", " a/b", "a /b", "a%2Fb", "a%2fb", "a%252Fb", "a%20b", "a b",
    "é", unicodedata.normalize("NFD", "é"), "É", "e", "ß", "ss", "SS", "ı", "i", "I", "İ",
    "K", "\u212a", "ﬁ", "fi", "①", "1", "ａ", "a\u200bb", "a\u00adb", "a\u00a0b",
    "🔒", "🔓", "日本", "日本語",
)  # fmt: skip
"""What some store, somewhere, would take for one another: by case, by trimming, by decoding, by
folding Unicode, by reading a path, a pattern, a hash tag or an escape."""


async def _hold_all(world: World, names: list[str], **terms: Any) -> list[Any]:
    leases = []
    for name in names:
        lease = await world(world.locks.lock(name, **terms).try_acquire)
        that(lease is not None, f"{name!r} is refused though only other names are held")
        leases.append(lease)
    return leases


@check("names", bug="unrelated names block each other, since the store folds, trims or hashes them (tooz)")
async def check_names_that_look_alike_do_not_meet(world: World) -> None:
    """Names that differ by a slash, a case, a space or a Unicode form are different locks."""
    base = world.name()
    names = [base + text for text in ALIKE]
    same(len(set(names)), len(names), "the number of distinct names")
    leases = await _hold_all(world, names)
    for lease, name in zip(leases, names, strict=True):
        same(lease.name, name, "lease.name")
        await world.taken(name)
    for lease in leases:
        that(await world(lease.release), f"{lease.name!r} was not held any more")


@check("names")
async def check_hash_tags_do_not_meet(world: World) -> None:
    """Names that share a part in braces are different locks, wherever the braces stand."""
    part = world.prefix + "tag"
    names = [
        world.own(text)
        for text in ("{" + part + "}", "{" + part + "}a", "a{" + part + "}", "{}" + part, "}" + part + "{")
    ]
    for lease in await _hold_all(world, names):
        await world(lease.release)


@check("names", needs={"list"})
async def check_alike_names_are_listed_as_they_are(world: World) -> None:
    """`list` and `inspect` give every name back exactly as it was written, sorted."""
    base = world.name()
    names = [base + text for text in ALIKE]
    leases = await _hold_all(world, names)
    listed = [state.name for state in await world(world.locks.list, base)]
    same(sorted(listed), sorted(names), "the names that are listed")
    for lease in leases:
        await world(lease.release)


@check("names")
async def check_names_of_512_bytes(world: World) -> None:
    """A name may have 512 bytes, and the last one counts."""
    base = world.name()
    filled = base + "x" * (LONGEST - len(base.encode()) - 1)
    wide = base + "é" * ((LONGEST - len(base.encode())) // 2)
    names = [filled + "1", filled + "2", filled, wide, wide[:-1] + "e"]
    for lease in await _hold_all(world, names):
        that(await world(lease.verify), f"the lease on a name of {len(lease.name.encode())} bytes is gone")
        await world(lease.release)


@check("names")
async def check_bad_names_are_refused(world: World) -> None:
    """An empty name, NUL, 513 bytes, a lone surrogate or no string at all is a `ConfigurationError`."""
    bad: tuple[Any, ...] = ("", "a\0b", "x" * 513, "é" * 257, "\ud800", None, 5, b"a", ["a"])
    for name in bad:
        for make in (world.locks.lock, world.locks.election):
            error = refused(ConfigurationError, make, name)
            that(isinstance(error, ValueError), "ConfigurationError is not a ValueError")
            that("name" in str(error), f"the message does not say what is wrong: {error}")
    for names in ([], "a", ["a", ""], [5]):
        refused(ConfigurationError, world.locks.multi, names)


@check(
    "names",
    alone=True,
    limit=90.0,
    bug="unrelated names block each other: a hash of 16 bits (tooz on PostgreSQL)",
)
async def check_many_names_do_not_block_each_other(world: World) -> None:
    """A thousand names are held at once: no short hash makes two of them one."""
    base = world.name()
    for lease in await _hold_all(world, [f"{base}/{number}" for number in range(1000)]):
        await world(lease.release)


@check("names", needs={"list"})
async def check_prefixes_are_no_patterns(world: World) -> None:
    """`list(prefix)` compares characters: no wildcard, no case folding, no escape."""
    base = world.name()
    names = [base + text for text in ("%x", "axx", "_x", "Axx", "*x", "[a]x", "?x", "\\x", "a", "b")]
    leases = await _hold_all(world, names)
    for prefix in ("%", "_", "*", "[a]", "?", "\\", "a", "A", "axx", "", "axxx"):
        listed = [state.name for state in await world(world.locks.list, base + prefix)]
        same(listed, sorted(n for n in names if n.startswith(base + prefix)), f"list(…{prefix!r})")
    for lease in leases:
        await world(lease.release)
