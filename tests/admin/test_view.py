"""zbroker/admin/view.py: what copies mean, ages, the clock they are counted with."""

from __future__ import annotations

import pytest

from tests.admin.build import ARCHIVED, ARCHIVED_PACKED, MINUTE, NOW_NS, PACKED, RAW, state
from zbroker.admin import view
from zbroker.admin.view import Copy, SegmentView

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("copies", "half"),
    [
        ((RAW,), None),
        ((PACKED,), None),
        ((ARCHIVED,), None),
        ((RAW, PACKED), "compress"),
        ((RAW, ARCHIVED), "archive"),
        ((PACKED, ARCHIVED_PACKED), "archive"),
        ((ARCHIVED, ARCHIVED_PACKED), "compress"),
        ((RAW, ARCHIVED, PACKED), "compress"),
    ],
)
def test_copies_show_what_is_half_done(copies: tuple[Copy, ...], half: str | None) -> None:
    assert SegmentView(1, copies, 100, 101, 1).half_done() == half


def test_a_segment_with_a_copy_left_in_the_journal_is_not_archived() -> None:
    assert not SegmentView(1, (RAW, ARCHIVED), 100, 101, 1).archived
    assert SegmentView(1, (ARCHIVED,), 100, 101, 1).archived


def test_ages_are_from_the_last_message_on() -> None:
    found = state(RAW, RAW)
    assert view.age_ms(found, found.segments[0]) == 2 * MINUTE


def test_a_message_from_the_future_has_no_age() -> None:
    found = state(RAW)
    later = found.segments[0]._replace(last_time=NOW_NS + 1)
    assert view.age_ms(found, later) == 0


def test_a_damaged_segment_is_as_old_as_the_next_one_proves() -> None:
    found = state(RAW, RAW, RAW)
    damaged = [found.segments[0]._replace(end=None, last_time=None), *found.segments[1:]]
    first = view.bounded_ages(damaged)[0]
    assert (first.end, first.last_time) == (201, found.segments[1].last_time)


def test_a_damaged_newest_sealed_segment_has_no_known_age() -> None:
    found = state(RAW)
    damaged = [found.segments[0]._replace(end=None, last_time=None), found.segments[1]]
    first = view.bounded_ages(damaged)[0]
    assert (first.end, first.last_time) == (None, None)


def test_the_clock_of_ages_begins_with_the_wall_clock() -> None:
    assert view.clock_of_ages(0, 0, NOW_NS) == NOW_NS


def test_a_clock_that_goes_right_is_believed() -> None:
    assert view.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS + SECOND_NS) == NOW_NS + SECOND_NS


def test_a_clock_that_jumps_ahead_is_followed_slowly() -> None:
    day = 86_400 * SECOND_NS
    later = view.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS + day)
    assert later == NOW_NS + 2 * SECOND_NS


def test_a_clock_that_goes_back_makes_everything_younger_at_once() -> None:
    assert view.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS - 5 * SECOND_NS) == NOW_NS - 5 * SECOND_NS
