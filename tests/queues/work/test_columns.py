"""Numbers of positions, next to a dict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work import columns
from zbroker.queues.work.columns import NumberColumn

POSITION = st.one_of(st.integers(0, 200), st.integers(1 << 33, (1 << 33) + 50))
NUMBER = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.dictionaries(POSITION, NUMBER, max_size=40)),
        st.tuples(st.just("drop"), st.sets(POSITION, max_size=40)),
    ),
    max_size=20,
)


@settings(max_examples=300)
@given(STEPS)
def test_a_column_is_a_dict(steps: list) -> None:
    column, expected = NumberColumn(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "CHUNK", 4)
        for what, given_ in steps:
            if what == "put":
                column.put(BitMap64(given_), [given_[position] for position in sorted(given_)])
                expected |= given_
            else:
                column.drop(BitMap64(given_))
                expected = {p: n for p, n in expected.items() if p not in given_}
            expected = {position: number for position, number in expected.items() if number}
            column.check()
            everything = BitMap64(range(205)) | BitMap64(range(1 << 33, (1 << 33) + 55))
            assert column.of(everything) == [expected.get(position, 0) for position in everything]
            assert list(column.rows(7)) == sorted((p, n) for p, n in expected.items() if p >= 7)
        twin = NumberColumn()
        twin.load(*column.dump())
        assert dict(twin.rows(0)) == expected


def test_a_dense_column_takes_14_bytes_a_message() -> None:
    column = NumberColumn()
    for at in range(0, 200_000, 1_000):
        column.put(BitMap64(range(at, at + 1_000)), range(1, 1_001))
    assert column.memory_bytes() < 14 * 200_000


def test_what_is_left_of_a_chunk_does_not_keep_it() -> None:
    column = NumberColumn()
    column.put(BitMap64(range(100_000)), range(1, 100_001))
    column.drop(BitMap64(position for position in range(100_000) if position % 100))
    assert column.memory_bytes() < 150_000


def test_tables_with_too_few_numbers_are_refused() -> None:
    positions, numbers = NumberColumn().dump()
    with pytest.raises(ValueError, match="0 positions have 1 numbers"):
        NumberColumn().load(positions, numbers + bytes(8))
