"""Header blocks by heart are what the library hpack makes of them, in any order."""

from __future__ import annotations

import hpack
from hypothesis import given
from hypothesis import strategies as st

from fencelock.backends.etcd.headers import Reader, Writer

names = st.sampled_from([b":status", b"content-type", b"grpc-status", b"grpc-message", b"token"])
values = st.sampled_from([b"200", b"application/grpc", b"0", b"14", b"", b"a" * 40, b"b" * 300])
sizes = st.sampled_from([None, 0, 64, 256, 4096])


@given(st.lists(st.tuples(st.lists(st.tuples(names, values), max_size=4), sizes), max_size=12))
def test_what_is_written_is_read_by_others(said: list[tuple[list[tuple[bytes, bytes]], int | None]]) -> None:
    writer, reader = Writer(), hpack.Decoder()
    for headers, size in said:
        if size is not None:
            writer.header_table_size = size
        assert [*reader.decode(writer.encode(headers), raw=True)] == headers


@given(st.lists(st.tuples(st.lists(st.tuples(names, values), max_size=4), sizes), max_size=12))
def test_what_others_write_is_read(said: list[tuple[list[tuple[bytes, bytes]], int | None]]) -> None:
    writer, reader = hpack.Encoder(), Reader()
    for headers, size in said:
        if size is not None:
            writer.header_table_size = size
        assert [*reader.decode(writer.encode(headers), raw=True)] == headers


def test_the_same_headers_are_the_same_bytes() -> None:
    writer = Writer()
    headers = [(b":path", b"/etcdserverpb.KV/Txn"), (b"token", b"secret")]
    assert writer.encode(headers) == writer.encode(headers) == Writer().encode(headers)
    assert not writer.header_table.dynamic_entries


def test_rows_that_change_make_what_is_known_void() -> None:
    writer, reader = hpack.Encoder(), Reader()
    first, second = [(b"grpc-status", b"0")], [(b"grpc-status", b"14")]
    assert [*reader.decode(writer.encode(first), raw=True)] == first
    known = writer.encode(first)  # one byte: the newest row
    assert [*reader.decode(known, raw=True)] == first
    assert [*reader.decode(writer.encode(second), raw=True)] == second  # a new row: that byte is it now
    assert [*reader.decode(writer.encode(second), raw=True)] == second
    assert writer.encode(second) == known
