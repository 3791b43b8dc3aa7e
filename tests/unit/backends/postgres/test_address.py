"""URLs: what libpq is told, what is fencelock's own, and that a password is never shown."""

from __future__ import annotations

import pytest
from psycopg import pq

from fencelock.backends.postgres import PostgresBackend
from fencelock.backends.postgres.address import DEFAULTS, POOL_SIZE, Address, identifier
from fencelock.errors import ConfigurationError

SECRET = "s3cr3t"


def read(url: str) -> dict[str, str]:
    """Return what was given, without the defaults."""
    address, rest = Address.from_url(url)
    assert rest == {}
    return {key: value for key, value in address.parameters.items() if DEFAULTS.get(key) != value}


@pytest.mark.parametrize(
    ("url", "given", "label"),
    [
        ("postgresql://", {}, "localhost"),
        ("postgresql://h", {"host": "h"}, "h"),
        ("postgresql://h:5433/d", {"host": "h", "port": "5433", "dbname": "d"}, "h:5433"),
        ("postgresql://u:p@h/d", {"user": "u", "password": "p", "host": "h", "dbname": "d"}, "h"),
        ("postgresql://u:a%40%2F%3F%23:b@h", {"user": "u", "password": "a@/?#:b", "host": "h"}, "h"),
        ("postgresql://u%40corp@h", {"user": "u@corp", "host": "h"}, "h"),
        ("postgresql://[::1]:5433/d", {"host": "::1", "port": "5433", "dbname": "d"}, "::1:5433"),
        ("postgresql://%2Frun%2Fpg/d", {"host": "/run/pg", "dbname": "d"}, "/run/pg"),
        (
            "postgresql:///d?host=/run/pg&port=5433",
            {"host": "/run/pg", "port": "5433", "dbname": "d"},
            "/run/pg",
        ),
        ("postgresql://h1:1,h2:2/d", {"host": "h1,h2", "port": "1,2", "dbname": "d"}, "h1,h2"),
        ("postgresql://h?sslmode=require", {"host": "h", "sslmode": "require"}, "h"),
        ("postgresql://h?options=-c%20a%3Db", {"host": "h", "options": "-c a=b"}, "h"),
        ("postgresql://h?password=a+b%2Bc%20d", {"host": "h", "password": "a+b+c d"}, "h"),
        ("postgresql://h?application_name=jobs", {"host": "h", "application_name": "jobs"}, "h"),
        ("postgresql+advisory://h/d", {"host": "h", "dbname": "d"}, "h"),
    ],
)
def test_what_a_url_says(url: str, given: dict[str, str], label: str) -> None:
    assert read(url) == given
    address, _ = Address.from_url(url)
    assert address.label == label
    assert repr(address) == f"<Address {label}>"


def test_what_is_not_said_is_chosen() -> None:
    address, _ = Address.from_url("postgresql://h")
    assert address.schema == "fencelock"
    assert address.pool_size == POOL_SIZE
    assert address.parameters == {**DEFAULTS, "host": "h"}
    address, _ = Address.from_url("postgresql://h?keepalives_idle=60")
    assert address.parameters["keepalives_idle"] == "60"


def test_options_of_ones_own() -> None:
    address, rest = Address.from_url("postgresql://h?schema=Turns_1&pool_size=12&sslmode=disable")
    assert (address.schema, address.pool_size, rest) == ("Turns_1", 12, {})
    assert "schema" not in address.parameters
    assert "pool_size" not in address.parameters
    _, rest = Address.from_url("postgresql://h?bound=3", frozenset({"bound"}))
    assert rest == {"bound": "3"}


def test_libpq_reads_what_is_written_for_it() -> None:
    values = {"password": r"it's a \ back'slash", "host": "h", "application_name": "", "options": "-c a=b"}
    words = Address(values).conninfo
    read_back = {option.keyword.decode(): option.val for option in pq.Conninfo.parse(words)}
    for key, value in values.items():
        assert read_back[key] == value.encode()


def test_parameters_may_be_written_otherwise() -> None:
    address, _ = Address.from_url(f"postgresql://u:{SECRET}@h:1/d?schema=s&pool_size=2")
    other = address.with_parameters({"hostaddr": "10.0.0.1"})
    assert other.parameters == {**address.parameters, "hostaddr": "10.0.0.1"}
    assert (other.schema, other.pool_size, other.label) == ("s", 2, "h:1")


WRONG = {
    "pool size": (f"postgresql://u:{SECRET}@h?pool_size=x", "pool_size='x'"),
    "pool of none": (f"postgresql://u:{SECRET}@h?pool_size=0", "pool_size='0'"),
    "huge pool": (f"postgresql://u:{SECRET}@h?pool_size=101", "pool_size='101'"),
    "pool size in other digits": (f"postgresql://u:{SECRET}@h?pool_size=-1", "pool_size='-1'"),
    "schema": (f"postgresql://u:{SECRET}@h?schema=a;b", "schema='a;b'"),
    "unknown option": (f"postgresql://u:{SECRET}@h?nonsense=1", "nonsense"),
    "unknown option beside the password": (f"postgresql://h?password={SECRET}&colour=red", "colour"),
    "fragment": (f"postgresql://u:{SECRET}@h#x", "%23"),
    "hash in the password": (f"postgresql://u:a#{SECRET}@h", "%23"),
    "slash in the password": (f"postgresql://u:{SECRET}/x@h", "%2F"),
    "slash before it": (f"postgresql://u:x/{SECRET}@h", "%2F"),
    "question mark in the password": (f"postgresql://u:{SECRET}?x@h", "%3F"),
    "question mark before it": (f"postgresql://u:12?{SECRET}@h", "%3F"),
    "at in the password": (f"postgresql://u:a@{SECRET}@h:5432/d", "%40"),
    "percent in the password": (f"postgresql://u:{SECRET}%zz@h", "percent-encode"),
    "NUL in the password": (f"postgresql://u:{SECRET}%00@h", "percent-encode"),
    "NUL": (f"postgresql://u:{SECRET}\0@h", "NUL"),
    "user that is no UTF-8": (f"postgresql://%c3%28:{SECRET}@h", "UTF-8"),
    "port": (f"postgresql://u:{SECRET}@h:pg/d", "port"),
    "high port": (f"postgresql://u:{SECRET}@h:65536/d", "port"),
    "port of the second host": (f"postgresql://u:{SECRET}@h:1,i:x/d", "port"),
    "broken IPv6": (f"postgresql://u:{SECRET}@[::1/d", "not understood"),
}


@pytest.mark.parametrize(("url", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_in_one_line_without_the_password(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Address.from_url(url)
    told = str(caught.value)
    assert says in told
    assert SECRET not in told
    assert len(told.splitlines()) == 1
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", 'a"b', "a.b", "a;b", "é", "a" * 64, "a\n", "a\0"])
def test_schemas_that_are_no_plain_names(name: str) -> None:
    with pytest.raises(ConfigurationError):
        identifier(name, "url")


@pytest.mark.parametrize("name", ["a", "_a", "A1_", "select", "a" * 63])
def test_schemas(name: str) -> None:
    assert identifier(name, "url") == name


def test_a_backend_shows_no_password() -> None:
    for url in (f"postgresql://u:{SECRET}@h:1/d", f"postgresql://h:1?password={SECRET}"):
        assert repr(PostgresBackend.from_url(url)) == "<PostgresBackend h:1>"
