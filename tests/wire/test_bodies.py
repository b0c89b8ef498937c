"""Packed bodies and columns (zbroker/wire/bodies.py)."""

from __future__ import annotations

from array import array

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from zbroker.errors import ClientError
from zbroker.limits import MIB
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

PACKED = bodies.pack([b"a", b"bb"])


@pytest.mark.parametrize("codec", [None, "zstd"])
@given(messages=st.lists(st.binary(max_size=300), max_size=40))
def test_what_was_packed_is_unpacked(codec, messages):
    body = bodies.pack(messages)
    sent = zstandard.compress(body) if codec else body
    assert bodies.unpack(memoryview(sent), codec, len(messages), MIB) == messages
    bodies.check_packed(sent, len(messages), codec, MIB)


@pytest.mark.parametrize(
    ("body", "codec", "code"),
    [
        (b"", None, "bad_frame"),
        (b"\x81\xc4\x01a\xc0", None, "bad_frame"),
        (b"\xdc\x00", None, "bad_frame"),
        (b"\xdd\xff\xff\xff\xff" + b"\xc4\x01a" * 9, None, "bad_frame"),
        (b"\x92\xc4\x01a", None, "bad_frame"),
        (b"\x92\xa1a\xa1b", None, "bad_frame"),
        (b"\x92\xc4\x01a\xc0", None, "bad_frame"),
        (PACKED + b"\0", None, "bad_frame"),
        (PACKED[:-1], None, "bad_frame"),
        (bodies.pack([b"a"]), None, "bad_frame"),
        (bodies.pack([b"a"] * 3), None, "bad_frame"),
        (bodies.pack([b"a" * 600, b""]), None, "too_large"),
        (zstandard.compress(bodies.pack([b"a" * 600, b""])), "zstd", "too_large"),
        (zstandard.compress(bytes(1 << 24)), "zstd", "too_large"),
        (PACKED, "zstd", "bad_frame"),
        (zstandard.compress(PACKED)[:-1], "zstd", "bad_frame"),
        (zstandard.compress(PACKED) + b"\0", "zstd", "bad_frame"),
        (PACKED, "lz4", "bad_field"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(body, codec, code):
    with pytest.raises(ClientError) as caught:
        bodies.check_packed(body, 2, codec, 500)
    assert caught.value.code == code


def test_a_compressed_body_must_announce_its_size():
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    with pytest.raises(ClientError, match="announce"):
        bodies.unpack(compressor.compress(PACKED), "zstd", 2, 500)


def test_a_body_cut_at_any_byte_is_refused():
    for body, codec in ((PACKED, None), (zstandard.compress(PACKED), "zstd")):
        for length in range(len(body)):
            with pytest.raises(ClientError):
                bodies.unpack(body[:length], codec, 2, 500)


def test_columns_are_little_endian():
    assert list(bodies.indexes(b"\x01\x00\x00\x01")) == [1, 256]
    assert list(bodies.times(b"\xff" * 8)) == [-1]
    assert list(bodies.offsets(b"\x02\0\0\0")) == [2]
    assert bodies.to_little(array("H", [1, 256])) == b"\x01\x00\x00\x01"


def test_columns_that_fit_are_accepted():
    bodies.check_columns(Columns(), 3, 1)
    bodies.check_columns(Columns(index=bytes(4), time=bytes(16)), 2, 2)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (Columns(), "index"),
        (Columns(index=bytes(3)), "index"),
        (Columns(index=b"\x02\0\0\0"), "index"),
        (Columns(index=bytes(4), time=bytes(15)), "time"),
        (Columns(index=bytes(4), offset=bytes(8)), "offset"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, key):
    with pytest.raises(ClientError, match=f"columns.{key}"):
        bodies.check_columns(columns, 2, 2)


@given(
    size=st.integers(0, 300),
    count=st.integers(1, 40),
    flip=st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)),
)
def test_the_short_cut_for_records_of_one_size_never_says_more_than_decoding(size, count, flip):
    body = bytearray(bodies.pack([b"\xc4" * size] * count))
    if flip is not None:
        body[flip[0] % len(body)] = flip[1]
    try:
        bodies.check_packed(bytes(body), count, None, 1 << 20)
    except ClientError:
        return
    assert len(bodies.unpack(bytes(body), None, count, 1 << 20)) == count


@pytest.mark.parametrize("count", [1, 15, 16, 2_500])
def test_the_short_cut_is_taken(count):
    assert bodies._is_uniform(bodies.pack([b"x" * 100] * count), count)
    assert (
        not bodies._is_uniform(bodies.pack([b"x" * 100] * (count - 1) + [b"y"]), count)
        or count == 1
    )
