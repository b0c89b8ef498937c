"""Ranges of origins that are not in a log."""

from __future__ import annotations

from zbroker.ids import Origin
from zbroker.journal.missing_ranges import MissingRanges, MissingRow, merged

ROW = MissingRow(2, 1, 1, 40, "state", 3)


def test_a_range_is_noted_once() -> None:
    ranges = MissingRanges()
    ranges.note(ROW)
    ranges.note(ROW)
    assert ranges.rows() == [ROW]


def test_the_vector_below_covers_all_of_them() -> None:
    ranges = MissingRanges()
    ranges.note(ROW)
    ranges.note(MissingRow(2, 1, 60, 70, "skipped", 9))
    assert ranges.below() == {Origin(2, 1): 70}


def test_merged_vectors_cover_both() -> None:
    a, b = Origin(1, 1), Origin(2, 1)
    assert merged({a: 3, b: 1}, {b: 5}) == {a: 3, b: 5}
