"""Packed bodies and columns (zbroker/wire/bodies.py)."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from zbroker.errors import ClientError
from zbroker.limits import EXTRA_MAX_BYTES, MIB
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

PACKED = bodies.pack([b"a", b"bb"])
PACK = msgspec.msgpack.encode


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
    scalars = {"s": "", "i": -1, "big": (1 << 64) - 1, "f": 0.5, "b": False, "y": b"", "n": None}
    extras = Columns(keys=PACK([b"", None]), headers=PACK([None, scalars]), expiry=bytes(16))
    bodies.check_columns(extras, 2, 1)


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (Columns(), "index"),
        (Columns(index=bytes(3)), "index"),
        (Columns(index=b"\x02\0\0\0"), "index"),
        (Columns(index=bytes(4), time=bytes(15)), "time"),
        (Columns(index=bytes(4), offset=bytes(8)), "offset"),
        (Columns(expiry=bytes(15)), "expiry"),
        (Columns(expiry=bytes(8) + b"\xff" * 8), "expiry"),
        (Columns(keys=b""), "keys"),
        (Columns(keys=PACK([b"k"])), "keys"),
        (Columns(keys=PACK([b"k", "text"])), "keys"),
        (Columns(keys=PACK([b"k", None]) + b"x"), "keys"),
        (Columns(keys=b"\xdd\xff\xff\xff\xff"), "keys"),
        (Columns(keys=b"\x92\xc4\x05ab"), "keys"),
        (Columns(headers=PACK([{}])), "headers"),
        (Columns(headers=PACK([{}, b"x"])), "headers"),
        (Columns(headers=PACK([{}, {1: "a"}])), "headers"),
        (Columns(headers=PACK([{}, {"a": {}}])), "headers"),
        (Columns(headers=PACK([{}, {"a": [1]}])), "headers"),
        (Columns(headers=PACK([{}, {"a": msgspec.msgpack.Ext(1, b"")}])), "headers"),
        (Columns(headers=PACK([{}, {"a": datetime(2026, 1, 1, tzinfo=UTC)}])), "headers"),
        (Columns(headers=b"\x92\x80\x81\xa1\xff\x01"), "headers"),
        (Columns(headers=b"\x92\x80\x81\xa1a" + b"\x91" * 60_000), "headers"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, key):
    with pytest.raises(ClientError, match=f"columns.{key}"):
        bodies.check_columns(columns, 2, 2)


def test_headers_are_decoded_when_one_is_asked_for_and_once():
    rows = [None, {"a": 1, "b": b"x"}, {}, {"a": None}]
    columns = Columns(headers=PACK(rows))
    found = bodies.HeaderColumn(columns, 4)
    columns.headers = None
    assert [found.of(i) for i in range(4)] == rows
    assert found.of(1) is found.of(1)
    assert [found.value(i, "a") for i in range(4)] == [None, 1, None, None]
    assert found.value(1, "b") == b"x"


@pytest.mark.parametrize("columns", [None, Columns(keys=PACK([b"k"] * 3))])
def test_a_batch_without_headers_has_none(columns):
    found = bodies.HeaderColumn(columns, 3)
    assert (found.of(2), found.value(2, "a")) == (None, None)


def test_a_column_that_is_none_is_noticed_when_it_is_asked_for():
    for data in (b"", b"\x91\x80", PACK([{}, 5])):
        found = bodies.HeaderColumn(Columns(headers=data), 2)
        with pytest.raises(ClientError, match="bad_field"):
            found.value(0, "a")


@pytest.mark.parametrize("headers", [None, {}, {"a": b"x"}])
def test_key_and_headers_of_one_message_have_a_limit(headers):
    size_max = EXTRA_MAX_BYTES - len(PACK(headers)) - 3
    small = [b"x" * 9_000] * 2
    for size, fits in ((size_max, True), (size_max + 1, False)):
        columns = Columns(keys=PACK([b"x" * size, *small]), headers=PACK([headers] * 3))
        if fits:
            bodies.check_columns(columns, 3, 1)
            continue
        with pytest.raises(ClientError) as raised:
            bodies.check_columns(columns, 3, 1)
        assert raised.value.code == "too_large"


def test_a_column_alone_is_limited_too():
    for columns in (
        Columns(keys=PACK([None, bytes(EXTRA_MAX_BYTES)])),
        Columns(headers=PACK([None, {"a": bytes(EXTRA_MAX_BYTES)}])),
    ):
        with pytest.raises(ClientError, match="key and headers"):
            bodies.check_columns(columns, 2, 1)
    bodies.check_columns(Columns(keys=PACK([bytes(EXTRA_MAX_BYTES - 3)] * 3)), 3, 1)


ITEMS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=4),
        st.none() | st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


@given(items=ITEMS, data=st.data())
def test_what_is_picked_of_the_columns_is_what_those_messages_have(items, data):
    keys, headers, expiry = zip(*items, strict=True)
    columns = Columns(keys=PACK(keys), headers=PACK(headers), expiry=array("q", expiry).tobytes())
    picks = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, unique=True).map(sorted))
    found, count = Columns(), len(picks)
    extras = bodies.extras(columns, len(items))
    assert extras is not None
    extras.put(found, picks)
    none = [None] * count
    assert (bodies.keys(found.keys, count) if found.keys else none) == [keys[i] for i in picks]
    assert (bodies.headers(found.headers, count) if found.headers else none) == [
        headers[i] for i in picks
    ]
    times = list(bodies.expiry(found.expiry, count)) if found.expiry else [0] * count
    assert times == [expiry[i] for i in picks]
    assert (found.keys is None) == all(keys[i] is None for i in picks)
    assert (found.expiry is None) == (not any(times))


def test_columns_without_them_have_no_extras():
    assert bodies.extras(None, 1) is None
    assert bodies.extras(Columns(index=b"\0\0", time=bytes(8)), 1) is None
    with pytest.raises(ClientError, match=r"columns\.keys"):
        bodies.extras(Columns(keys=b"\x90"), 1)


@given(
    size=st.integers(0, 300),
    count=st.integers(1, 150),
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


@pytest.mark.parametrize("length", [1, 100, 255, 256, 65_535, 65_536])
@pytest.mark.parametrize("count", [bodies.STRIDED_MIN, 140])
def test_the_short_cut_is_taken(count, length):
    payloads = [bytes([i]) * length for i in range(count)]
    body = bodies.pack(payloads)
    for form in (body, memoryview(body)):
        first, step, size = bodies.stride_of(form, count)
        assert [bytes(form[i : i + size]) for i in range(first, len(form), step)] == payloads
    assert bodies.stride_of(body, count + 1) is None


def test_the_short_cut_is_taken_for_a_long_array():
    assert bodies.stride_of(bodies.pack([b"x"] * 65_536), 65_536) == bodies.Stride(7, 3, 1)


@given(st.lists(st.binary(max_size=2), min_size=1, max_size=4))
def test_a_stride_is_never_found_where_there_is_none(some):
    payloads = some * bodies.STRIDED_MIN
    found = bodies.stride_of(bodies.pack(payloads), len(payloads))
    lengths = {len(one) for one in some}
    assert (found is not None) == (len(lengths) == 1 and lengths != {0})


def test_few_messages_are_made_at_once():
    few = bodies.STRIDED_MIN - 1
    assert bodies.stride_of(bodies.pack([b"x"] * few), few) is None
