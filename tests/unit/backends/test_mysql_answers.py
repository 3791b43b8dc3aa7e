"""The usual answers, read from their bytes; everything else is left to the driver."""

from __future__ import annotations

import pytest

from fencelock.backends.mysql.answers import glance_at

TOKEN = 1794916438251680
COUNT = b"\x01"
COLUMN = b"\x03def\0\0\0\x07v_token\x07v_token\x0c?\0\x14\0\0\0\x08\0\0\0\0\0"
END = b"\xfe\0\0\x02\0"
ENDS = b"\xfe\0\0\x0a\0"  # of this result: another follows
ENDS_AS_OK = b"\xfe\0\0\x0a\0\0\0"  # what a server says to a driver that wants no END after the columns
OK = b"\0\0\0\x02\0\0\0"
ONE_ROW = b"\0\x01\0\x02\0\0\0"


def sent(*packets: bytes, first: int = 1) -> bytes:
    return b"".join(
        len(packet).to_bytes(3, "little") + bytes([number]) + packet
        for number, packet in enumerate(packets, first)
    )


def row(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


@pytest.mark.parametrize("value", [TOKEN, -TOKEN, 0, 1])
def test_a_procedure_that_says_a_number(value: int) -> None:
    assert glance_at(sent(COUNT, COLUMN, END, row(str(value)), ENDS, OK)) == value
    assert glance_at(sent(COUNT, COLUMN, row(str(value)), ENDS_AS_OK, OK)) == value


def test_a_statement_that_changed_rows() -> None:
    assert glance_at(sent(OK)) == 0
    assert glance_at(sent(ONE_ROW)) == 1
    assert glance_at(sent(b"\0\xfa\0\x02\0\0\0")) == 250


def test_a_part_of_an_answer() -> None:
    for whole in (
        sent(ONE_ROW),
        sent(COUNT, COLUMN, END, row(str(TOKEN)), ENDS, OK),
        sent(COUNT, COLUMN, row(str(TOKEN)), ENDS_AS_OK, OK),
    ):
        for length in range(len(whole)):
            assert glance_at(whole[:length]) is None
        assert glance_at(whole + b"\0") is None
        assert glance_at(whole + sent(OK)) is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(sent(b"\xff\xbd\x04#40001Deadlock found"), id="an error"),
        pytest.param(sent(COUNT, COLUMN, END, b"\xff\xbd\x04#40001Deadlock found"), id="an error later"),
        pytest.param(sent(b"\0\xfc\0\x01\0\x02\0\0\0"), id="256 rows"),
        pytest.param(sent(b"\0\x01\x05\x02\0\0\0"), id="an id"),
        pytest.param(sent(b"\0\0\0\x0a\0\0\0"), id="more follows"),
        pytest.param(sent(OK, first=0), id="a number that is not next"),
        pytest.param(sent(b"\x02", COLUMN, COLUMN, row("1") + row("2"), ENDS, OK), id="two columns"),
        pytest.param(sent(COUNT, COLUMN, END, row("1"), row("2"), ENDS, OK), id="two rows"),
        pytest.param(sent(COUNT, COLUMN, END, ENDS, OK), id="no row"),
        pytest.param(
            sent(COUNT, COLUMN, row("1"), row("2"), ENDS_AS_OK, OK), id="two rows, no end of columns"
        ),
        pytest.param(sent(COUNT, COLUMN, END, b"\xfb", ENDS, OK), id="NULL"),
        pytest.param(sent(COUNT, COLUMN.replace(b"\x08\0", b"\xfd\0"), END, row("1"), ENDS, OK), id="text"),
        pytest.param(sent(COUNT, COLUMN, END, row("1"), b"\xfe\0\0\x02\0"), id="a SELECT"),
    ],
)
def test_everything_else(other: bytes) -> None:
    assert glance_at(other) is None
