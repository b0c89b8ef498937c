"""A tail holds entries in order, whatever order they came in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zbroker.bookmarks import keys
from zbroker.bookmarks.keys import Hint
from zbroker.bookmarks.tail import IndexTail, TailEntries

PUTS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1_000)))


def _hint(position: int) -> Hint:
    return Hint(1, 8 * position, position)


@given(PUTS, st.integers(-1, 51))
def test_a_line_is_a_sorted_map(puts: list[tuple[int, int]], wanted: int):
    line, model = TailEntries(), {}
    for key, position in puts:
        line.put(key, _hint(position))
        model[key] = _hint(position)
    assert list(line.items()) == sorted(model.items())
    assert line.last == max(model, default=None)
    below = [key for key in model if key <= wanted]
    expected = (max(below), model[max(below)]) if below else None
    assert line.at_or_before(wanted) == expected


@given(PUTS, st.integers(0, 1_000))
def test_a_line_forgets_by_position_not_by_key(puts: list[tuple[int, int]], position: int):
    line = TailEntries()
    for key, at in puts:
        line.put(key, _hint(at))
    expected = [(key, hint) for key, hint in line.items() if hint.position < position]
    line.forget_after(position)
    assert list(line.items()) == expected


@given(PUTS, PUTS, PUTS)
def test_encoded_entries_come_in_the_order_of_lmdb(ones, twos, threes):
    tail = IndexTail()
    for key, at in ones:
        tail.positions.put(key, _hint(at))
    for key, at in twos:
        tail.runs.setdefault(at % 3, TailEntries()).put(key, _hint(at))
    for key, at in threes:
        tail.times.put(key, _hint(at))
    entries = list(tail.encoded())
    assert [key for key, _ in entries] == sorted({key for key, _ in entries})
    assert len(entries) == len(tail)
    assert all(isinstance(keys.decode_place(key, value), Hint) for key, value in entries)
