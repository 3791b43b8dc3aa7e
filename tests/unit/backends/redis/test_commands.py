"""Commands as bytes, and the scripts."""

from __future__ import annotations

import hashlib

import hiredis
import pytest

from fencelock.backends.redis.commands import ACQUIRE, BREAK, LEAVE, RENEW, Script, pack

SCRIPTS = pytest.mark.parametrize("script", [ACQUIRE, LEAVE, RENEW, BREAK], ids=lambda script: script.name)


def words(data: bytes) -> list[bytes]:
    """Read a command as a server does."""
    reader = hiredis.Reader()
    reader.feed(data)
    command = reader.gets()
    assert reader.gets() is False, "there is more than one command"
    assert isinstance(command, list)
    return command


@pytest.mark.parametrize(
    "given", [("PING",), ("SET", b"\r\n\x00", "é"), ("X", 0, -1, 2**53), ("", b"", "*1\r\n")]
)
def test_a_command_is_read_as_it_was_given(given: tuple[str | bytes | int, ...]) -> None:
    expected = [word if isinstance(word, bytes) else str(word).encode() for word in given]
    assert words(pack(*given)) == expected


@SCRIPTS
def test_a_script_is_called_by_its_hash(script: Script) -> None:
    assert script.sha == hashlib.sha1(script.text.encode(), usedforsecurity=False).hexdigest()
    assert words(script.call([b"k1", b"k2"], b"a", b"1")) == [
        *(b"EVALSHA", script.sha.encode(), b"2", b"k1", b"k2", b"a", b"1")
    ]


@SCRIPTS
def test_a_call_in_full_is_the_same_call(script: Script) -> None:
    call = script.call([b"key"], b"EVALSHA", script.sha.encode(), b"$7\r\n")
    full = words(script.in_full(call))
    assert full[:2] == [b"EVAL", script.text.encode()]
    assert full[2:] == words(call)[2:]


@SCRIPTS
def test_a_head_and_what_follows_is_a_call(script: Script) -> None:
    tail = b"$1\r\nk\r\n$1\r\na\r\n$0\r\n\r\n"
    assert script.head(1, 2) + tail == script.call([b"k"], b"a", b"")
    assert words(script.in_full(script.head(1, 2) + tail))[0] == b"EVAL"


@SCRIPTS
def test_a_script_is_whole_and_tells_its_keys_and_arguments(script: Script) -> None:
    assert "-- include" not in script.text
    assert "KEYS" in script.text.split("\n\n", 1)[0]


@SCRIPTS
def test_a_script_asks_the_server_for_the_time_and_nobody_else(script: Script) -> None:
    assert "redis.call('TIME')" in script.text
    for foreign in ("os.time", "os.clock", "math.random"):
        assert foreign not in script.text
