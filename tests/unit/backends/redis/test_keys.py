"""Names become keys: no two names meet, and every key can be read back."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelock.backends.redis import keys
from fencelock.backends.redis.keys import BUCKETS, Places, counter

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
SPACES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)


@given(NAMES, SPACES)
def test_a_key_can_be_read_back(name: str, namespace: str) -> None:
    places = Places(namespace)
    place = places.find(name)
    assert places.name_of(place.key) == name
    assert 0 <= place.bucket < BUCKETS
    assert place.key.startswith(counter(place.bucket) + b":")


@given(NAMES, NAMES, SPACES, SPACES)
def test_no_two_names_meet(one: str, other: str, here: str, there: str) -> None:
    same = (one, here) == (other, there)
    assert (Places(here).find(one).key == Places(there).find(other).key) is same


@given(NAMES, SPACES, SPACES)
def test_a_key_of_another_namespace_is_nobodys(name: str, here: str, there: str) -> None:
    if here != there:
        assert Places(there).name_of(Places(here).find(name).key) is None


@given(NAMES, SPACES)
def test_a_lock_and_its_counter_share_what_is_in_the_first_braces(name: str, namespace: str) -> None:
    """What is between the first opening brace and the next closing one decides the slot of a Cluster."""
    place = Places(namespace).find(name)

    def tag(key: bytes) -> bytes:
        return key[key.index(b"{") + 1 :].split(b"}", 1)[0]

    assert tag(place.key) == tag(counter(place.bucket)) == b"%d" % place.bucket


def test_a_place_is_packed_as_the_server_reads_it() -> None:
    place = Places("").find("é")
    assert place.packed == b"$%d\r\n%b\r\n" % (len(place.key), place.key)
    assert Places("").packed("é") == place.packed, "whether it is remembered or not"
    tokens = counter(place.bucket)
    assert place.with_counter == place.packed + b"$%d\r\n%b\r\n" % (len(tokens), tokens)


def test_all_buckets_are_used_and_about_equally() -> None:
    places = Places("")
    found = [places.find(f"job-{number}").bucket for number in range(BUCKETS * 40)]
    counts = [found.count(bucket) for bucket in range(BUCKETS)]
    assert min(counts) > 0
    assert max(counts) < 120


def test_the_bucket_of_a_name_never_changes() -> None:
    """Processes of different versions share a server: another bucket would be another lock."""
    assert [Places("").find(name).key for name in ("invoice:42", "é", "a/b")] == [
        b"fencelock:{238}::invoice:42",
        b"fencelock:{62}::\xc3\xa9",
        b"fencelock:{28}::a/b",
    ]
    assert Places("app:1").find("x").key.endswith(b":app%3A1:x")


@pytest.mark.parametrize(
    "key", [b"", b"fencelock:{1}", b"fencelock:{1}:", b"other", b"fencelock:{1}:b:x", b"a:b:c"]
)
def test_foreign_keys_are_nobodys(key: bytes) -> None:
    assert Places("").name_of(key) is None


def test_a_foreign_key_that_is_no_text_is_nobodys() -> None:
    assert Places("").name_of(b"fencelock:{1}::\xff\xfe") is None


@pytest.mark.parametrize("prefix", ["*", "a*", "[a-z]", "?", "\\", "^", "a[", "]", "-", ""])
def test_a_pattern_takes_its_prefix_by_the_letter(prefix: str) -> None:
    """Checked with fnmatch, which knows * ? and [], so nothing but what was escaped may be left."""
    pattern = Places("").pattern(prefix).decode()
    assert pattern.startswith("fencelock:{*}::")
    rest = pattern.removeprefix("fencelock:{*}::").removesuffix("*")
    plain = ""
    letters = iter(rest)
    for letter in letters:
        assert letter not in "*?[]^"
        plain += next(letters) if letter == "\\" else letter
    assert plain == prefix
    assert fnmatch.fnmatchcase("fencelock:{12}::x", "fencelock:{*}::*")


def test_places_are_remembered_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "CACHED", 10)
    places = Places("")
    first = places.find("a")
    assert places.find("a") is first
    for number in range(100):
        places.find(str(number))
    assert len(places._known) <= 10
    assert places.find("a").key == first.key
