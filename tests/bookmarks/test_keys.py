"""The bytes of the index are what the page says, and damage to them is seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.bookmarks import keys
from zbroker.bookmarks.keys import BadKey, Hint, Stamp

U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_golden_bytes_never_change():
    assert keys.position_key(258).hex() == "700000000000000102"
    assert keys.run_key(0xA1B2, 3).hex() == "72000000000000a1b20000000000000003"
    assert keys.time_key(-1).hex() == "747fffffffffffffff"
    assert keys.time_key(1).hex() == "748000000000000001"
    place = keys.encode_place(keys.position_key(258), Hint(serial=2, offset=8192, position=258))
    assert place.hex() == "000000000000010200000000000000020000000000002000d37a0b72"
    stamp = keys.encode_stamp(Stamp(generation=3, position=500), instance=0xABCDEF)
    assert stamp.hex() == "7a624958000000010000000000abcdef0000000300000000000001f4608df27d"


@given(U64, U64)
def test_keys_sort_as_their_numbers(one: int, other: int):
    assert (one < other) == (keys.position_key(one) < keys.position_key(other))
    assert (one < other) == (keys.run_key(7, one) < keys.run_key(7, other))
    assert (one < other) == (keys.run_key(one, 0) < keys.run_key(other, 0))


@given(I64, I64)
def test_log_times_sort_as_numbers_below_zero_too(one: int, other: int):
    assert (one < other) == (keys.time_key(one) < keys.time_key(other))
    assert keys.time_of(keys.time_key(one)) == one


@given(U64, U64, U64)
def test_a_place_comes_back(serial: int, offset: int, position: int):
    key = keys.run_key(1, 2)
    hint = Hint(serial, offset, position)
    assert keys.decode_place(key, keys.encode_place(key, hint)) == hint


@given(st.integers(0, 17 * 8 - 1), st.integers(0, 28 * 8 - 1), st.booleans())
def test_a_flipped_bit_in_key_or_value_is_seen(key_bit: int, value_bit: int, in_key: bool):
    key = keys.run_key(123_456_789, 42)
    value = keys.encode_place(key, Hint(1, 8192, 10))
    if in_key:
        key = _flipped(key, key_bit)
    else:
        value = _flipped(value, value_bit)
    assert isinstance(keys.decode_place(key, value), BadKey)


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(st.binary(max_size=60))
def test_random_bytes_are_no_place_and_no_stamp(data: bytes):
    assert isinstance(keys.decode_place(keys.position_key(1), data), BadKey)
    assert isinstance(keys.decode_stamp(data), BadKey)


def test_a_stamp_comes_back_to_its_instance_only():
    value = keys.encode_stamp(Stamp(2, 77), instance=9)
    assert keys.decode_stamp(value, 9) == Stamp(2, 77)
    assert keys.decode_stamp(value) == Stamp(2, 77)
    assert keys.decode_stamp(value, 10) == BadKey("it belongs to instance 0000000000000009")


@pytest.mark.parametrize("version", [0, 2, 99])
def test_a_version_that_does_not_exist_is_named(version: int):
    value = keys.encode_stamp(Stamp(2, 77), instance=9)
    changed = value[:4] + version.to_bytes(4, "big") + value[8:]
    assert keys.decode_stamp(changed, 9) == BadKey(f"it has version {version}, not 1")


@pytest.mark.parametrize("end", range(32))
def test_a_cut_stamp_is_wrong(end: int):
    value = keys.encode_stamp(Stamp(2, 77), instance=9)
    assert isinstance(keys.decode_stamp(value[:end], 9), BadKey)


def test_numbers_out_of_range_are_keys_at_the_ends():
    assert keys.position_key(-5) == keys.position_key(0)
    assert keys.position_key(1 << 70) == keys.position_key((1 << 64) - 1)
    assert keys.time_key(1 << 80) == keys.time_key((1 << 63) - 1)
