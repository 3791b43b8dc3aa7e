"""Encodings that are damaged, made up or hostile: one clear error each, and nothing is changed.

20,000 of them; `FENCELOCK_FORMS` says how many instead. Half of them are binary, half JSON; half of each are
damaged as they are, and half are sealed again, as a hostile writer would do it.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from fencelock import ConfigurationError
from fencelock.crdt import Crdt, DecodeError, GCounter, LWWRegister, MVRegister, ORMap, ORSet
from fencelock.crdt.codec import HEAD, MAGIC, VERSION, check_of
from fencelock.crdt.packing import Wrong, from_plain, pack, to_plain

from .makers import KINDS, history

FORMS = int(os.environ.get("FENCELOCK_FORMS", "20000"))
SHARES = 4


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Flip, cut, double, insert."""
    raw = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        place = rng.randrange(len(raw) + 1)
        match rng.randrange(5):
            case 0 if place < len(raw):
                raw[place] ^= 1 << rng.randrange(8)
            case 1:
                del raw[place : place + rng.randint(1, 4)]
            case 2:
                raw[place:place] = rng.randbytes(rng.randint(1, 4))
            case 3:
                raw += raw[place:]
            case _:
                raw[place : place + 1] = rng.randbytes(1)
    return bytes(raw)


def resealed(data: bytes) -> bytes:
    """Make the check right again: what a hostile writer would do."""
    return data[: HEAD - 8] + check_of(data[len(MAGIC) + 1], data[HEAD:]) + data[HEAD:]


def resealed_json(rng: random.Random, kind: type[Crdt], text: str) -> str:
    """Damage the state alone, and make the check right again as far as there is a right one."""
    state = json.dumps(json.loads(text)["state"], ensure_ascii=False)
    broken = damaged(rng, state.encode()).decode(errors="replace")
    try:
        check = check_of(kind.code, pack(from_plain(json.loads(broken)))).hex()
    except (ValueError, RecursionError, Wrong):  # it is no tree: the reader has to find that out
        check = "00" * 8
    return f'{{"fencelock":"crdt","version":1,"type":"{kind.__name__}","check":"{check}","state":{broken}}}'


def read_damaged(rng: random.Random, value: Any) -> Crdt:
    """Return what a damaged form of a value gives; raise `DecodeError`."""
    before = value.to_bytes()
    if rng.random() < 0.5:
        back = Crdt.from_bytes(damaged(rng, before))
    else:
        back = Crdt.from_json(damaged(rng, value.to_json().encode()))
    assert back.to_bytes() == before, "a damaged encoding gave another value"
    return back


def read_made_up(rng: random.Random, value: Any) -> Crdt:
    """Return what a form gives that fits its check; raise `DecodeError`."""
    if rng.random() < 0.5:
        whole = value.to_bytes()
        made = resealed(whole[:HEAD] + damaged(rng, whole[HEAD:]))
        back = Crdt.from_bytes(made)
        assert back.to_bytes() == made, "a made-up encoding has a second form"
    else:
        text = resealed_json(rng, type(value), value.to_json())
        back = Crdt.from_json(text)
        assert json.loads(back.to_json()) == json.loads(text), "a made-up encoding has a second form"
    assert type(back).from_json(back.to_json()) == type(back).from_bytes(back.to_bytes()) == back
    assert back.merge(back) == back
    return back


@pytest.mark.parametrize("share", range(SHARES))
def test_fuzzed_encodings_are_refused_or_are_the_value(share: int) -> None:
    rng = random.Random(share)
    pool: list[Any] = []
    for kind in KINDS:
        states, deltas = history(kind, share, 3, 25)
        pool += [*states, *deltas[:2]]
    refused = taken = 0
    for _ in range(FORMS // SHARES):
        value = rng.choice(pool)
        before = value.to_bytes()
        read = rng.choice((read_damaged, read_made_up))
        try:
            read(rng, value)
            taken += read is read_made_up
        except DecodeError as error:
            refused += 1
            assert "\n" not in str(error)
            assert len(str(error)) < 300
        assert value.to_bytes() == before
    assert refused > FORMS // SHARES // 2
    assert taken > FORMS // SHARES // 100, "hardly any made-up encoding got past the check: no test"
    print(f"{FORMS // SHARES} forms: {refused} refused, {taken} that were made up are values of their own")


def sealed(code: int, body: bytes, version: int = VERSION) -> bytes:
    return MAGIC + bytes([version, code]) + check_of(code, body) + body


GOOD = GCounter().increment("anna")[0]

BAD_BYTES = {
    "nothing": (b"", "does not begin"),
    "garbage": (b"\xff" * 40, "does not begin"),
    "short": (GOOD.to_bytes()[:8], "ends too early"),
    "newer": (sealed(2, b"", version=2), "version 2, this fencelock reads up to 1: upgrade fencelock"),
    "version nought": (sealed(2, b"", version=0), "0 is no version"),
    "unknown type": (sealed(99, b""), "99 is no type"),
    "another type": (ORSet().to_bytes(), "it is a ORSet"),
    "flipped": (GOOD.to_bytes()[:-1] + b"\x85", "the check does not fit"),
    "a tuple of 2^60": (sealed(2, b"\x07" + b"\xff" * 8 + b"\x0f"), "ends too early"),
    "a number of 70 bits": (sealed(2, b"\x03" + b"\xff" * 10 + b"\x01"), "more than 64 bits"),
    "deep": (sealed(2, b"\x07\x01" * 100_000 + b"\x00"), "nested deeper"),
    "long form": (sealed(2, b"\x07\x80\x00"), "shortest form"),
    "small number in the long form": (sealed(2, b"\x03\x02"), "shortest form"),
    "surplus": (sealed(2, pack(()) + b"\x00"), "something follows"),
    "no such string": (sealed(2, b"\x07\x02\x08\x05\x81"), "does not have"),
    "string twice": (sealed(2, b"\x07\x02" + b"\x05\x03abc" * 2), "written out twice"),
    "not UTF-8": (sealed(2, b"\x05\x01\xff"), "not UTF-8"),
    "not finite": (sealed(2, b"\x04\x7f\xf0" + b"\0" * 6), "not finite"),
    "no such sort": (sealed(2, b"\x0b"), "11 is no sort"),
    "not in order": (sealed(2, pack(("b", 1, "a", 1))), "not in order"),
    "twice the same": (sealed(2, pack(("a", 1, "a", 1))), "not in order"),
    "nought": (sealed(2, pack(("a", 0))), "out of range"),
    "a bool": (sealed(2, pack(("a", True))), "out of range"),
    "odd": (sealed(2, pack(("a",))), "wrong shape"),
    "no tuple": (sealed(2, pack("a")), "wrong shape"),
    "empty name": (sealed(2, pack(("", 1))), "is empty"),
}


@pytest.mark.parametrize("case", BAD_BYTES)
def test_bad_bytes(case: str) -> None:
    data, why = BAD_BYTES[case]
    with pytest.raises(DecodeError, match=why) as caught:
        GCounter.from_bytes(data)
    assert str(caught.value).startswith("not the encoding of a GCounter: ")


def json_of(**changes: Any) -> str:
    form = json.loads(GOOD.to_json())
    form.update(changes)
    return json.dumps(form)


BAD_JSON = {
    "nothing": ("", "not JSON"),
    "a list": ("[]", "no object"),
    "deep": ("[" * 200_000, "nested too deeply|not JSON"),
    "not UTF-8": (b"\xff\xfe{", "not JSON"),
    "NaN": (json_of(state=float("nan")), "NaN is not"),
    "a number of 5000 digits": ('{"fencelock":' + "9" * 5000 + "}", "not JSON"),
    "newer": (json_of(version=7), "version 7, this fencelock reads up to 1"),
    "true version": (json_of(version=True), "True is no version"),
    "a field more": (json_of(more=1), "its fields are not"),
    "a field twice": (GOOD.to_json()[:-1] + ',"type":"GCounter"}', "there twice"),
    "unknown type": (json_of(type="Banana"), "'Banana' is no type"),
    "type by number": (json_of(type=[]), "is no type"),
    "edited": (json_of(state=["anna", 2]), "the check does not fit"),
    "too big": (json_of(state=["anna", 2**70]), "out of range"),
    "lone surrogate": (json_of(state=["\ud800", 2]), "lone surrogate"),
    "an object": (json_of(state={"x": 1}), "an object is not"),
    "not base64": (json_of(state={"b": "?"}), "not base64"),
    "base64 with other spare bits": (json_of(state={"b": "Yx=="}), "not base64 in its usual form"),
    "deep state": (json_of(state=json.loads("[" * 100 + "]" * 100)), "nested deeper"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json(case: str) -> None:
    text, why = BAD_JSON[case]
    with pytest.raises(DecodeError, match=why):
        GCounter.from_json(text)


def state_of(kind: type[Crdt], tree: Any) -> tuple[bytes, str]:
    body = pack(tree)
    form = {"fencelock": "crdt", "version": 1, "type": kind.__name__}
    form |= {"check": check_of(kind.code, body).hex(), "state": to_plain(tree)}
    return sealed(kind.code, body), json.dumps(form)


SEEN = (("a", 3), ())
NESTED: Any = (("x", 6, ("a", (1, "e"))),)
for _ in range(8):
    NESTED = (("x", 10, NESTED),)
BAD_STATES = {
    "a dot that was not seen": (ORSet, (SEEN, ("a", (4, "x"))), "its context has not"),
    "an empty column": (ORSet, (SEEN, ("a", ())), "its context has not"),
    "a float as element": (ORSet, (SEEN, ("a", (1, 1.5))), "cannot be held"),
    "dots out of order": (ORSet, (SEEN, ("a", (2, "x", 1, "y"))), "not in order"),
    "a cloud that should be closed up": (ORSet, ((("a", 3), ("a", (4,))), ()), "not closed up"),
    "an empty cloud": (ORSet, ((("a", 3), ("a", ())), ()), "not closed up"),
    "a timestamp below nought": (LWWRegister, ((-1, 0, "a"), 1), "out of range"),
    "a register of three": (LWWRegister, (1, 2, 3), "wrong shape"),
    "an entry of no type": (ORMap, (SEEN, (("x", 99, ()),)), "99 is no type"),
    "an empty entry": (ORMap, (SEEN, (("x", 6, ()),)), "an entry is empty"),
    "the same entry twice": (ORMap, (SEEN, (("x", 6, ("a", (1, "e"))),) * 2), "not in order"),
    "maps too deep": (ORMap, (SEEN, NESTED), "nested too deeply"),
    "a register's dot that was not seen": (MVRegister, (((), ()), ("a", (1, 1))), "its context has not"),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_states_that_cannot_be(case: str) -> None:
    kind, tree, why = BAD_STATES[case]
    data, text = state_of(kind, tree)
    with pytest.raises(DecodeError, match=why):
        kind.from_bytes(data)
    with pytest.raises(DecodeError, match=why):
        kind.from_json(text)


def test_arguments_of_the_wrong_type() -> None:
    with pytest.raises(ConfigurationError, match="is not bytes"):
        GCounter.from_bytes("text")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="is not JSON text"):
        GCounter.from_json(7)  # type: ignore[arg-type]


def test_too_much_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencelock.crdt.codec.MAX_BYTES", 10)
    with pytest.raises(DecodeError, match="bytes, 10 are possible"):
        GCounter.from_bytes(GOOD.to_bytes())
