"""zbroker/admin/removal.py: how much goes, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.build import (
    ARCHIVED,
    ARCHIVED_PACKED,
    MINUTE,
    PACKED,
    RAW,
    settings,
    state,
)
from zbroker.admin.removal import removal
from zbroker.admin.view import RetentionView
from zbroker.config import RetentionConfig

FOUR = (RAW, RAW, RAW, RAW)  # last messages 4, 3, 2, 1 minutes old


def removed(found: RetentionView, asked: RetentionConfig) -> tuple[int, ...]:
    decision, _ = removal(found, asked)
    return decision.serials if decision else ()


def blocked(found: RetentionView, asked: RetentionConfig) -> tuple[str, int, str]:
    _, block = removal(found, asked)
    return (block.code, block.bytes, block.why) if block is not None else ("", 0, "")


def test_without_settings_nothing_goes() -> None:
    assert removal(state(*FOUR), settings()) == (None, None)


@pytest.mark.seed("004-95")
@pytest.mark.parametrize(
    ("minutes", "expected"), [(5, ()), (4, (1,)), (3, (1, 2)), (1, (1, 2, 3, 4))]
)
def test_age_is_that_of_the_last_message(minutes: int, expected: tuple[int, ...]) -> None:
    assert removed(state(*FOUR), settings(remove_after=minutes * MINUTE)) == expected


def test_the_reason_of_an_age_tells_age_and_setting() -> None:
    decision, _ = removal(state(*FOUR), settings(remove_after=3 * MINUTE))
    assert decision is not None
    assert decision.why == "the last message is 3 min old, remove_after is 3 min"
    assert decision.bytes == 200


def test_the_open_segment_stays_however_large_the_log_is() -> None:
    assert removed(state(*FOUR), settings(max_bytes=1)) == (1, 2, 3, 4)


@pytest.mark.seed("004-96")
@pytest.mark.parametrize(
    ("max_bytes", "expected"), [(500, ()), (499, (1,)), (400, (1,)), (399, (1, 2)), (300, (1, 2))]
)
def test_the_oldest_go_while_the_log_is_larger(max_bytes: int, expected: tuple[int, ...]) -> None:
    assert removed(state(*FOUR), settings(max_bytes=max_bytes)) == expected


def test_all_copies_in_both_directories_count() -> None:
    found = state((PACKED, ARCHIVED), RAW)  # 140 + 100 + 100
    assert removed(found, settings(max_bytes=340)) == ()
    assert removed(found, settings(max_bytes=339)) == (1,)


def test_the_reason_of_a_size_tells_both_sizes() -> None:
    decision, _ = removal(state(*FOUR), settings(max_bytes=450))
    assert decision is not None
    assert decision.why == "the log has 500 bytes, max_bytes is 450 bytes"


def test_free_space_is_made_from_the_oldest_on() -> None:
    found = state(*FOUR, free_bytes=1_000)
    assert removed(found, settings(min_free=1_000)) == ()
    assert removed(found, settings(min_free=1_101)) == (1, 2)


def test_archived_files_on_the_same_disk_count_as_free_space() -> None:
    found = state(ARCHIVED, RAW, free_bytes=1_000)
    assert removed(found, settings(min_free=1_001)) == (1,)


def test_the_archive_is_not_spent_for_space_on_another_disk() -> None:
    found = state(ARCHIVED, ARCHIVED_PACKED, RAW, free_bytes=1_000, elsewhere=True)
    assert removed(found, settings(min_free=1_001)) == ()
    code, missing, why = blocked(found, settings(min_free=1_001))
    assert (code, missing) == ("elsewhere", 1)
    assert "another disk" in why


def test_where_archiving_makes_the_room_nothing_is_removed_for_it() -> None:
    found = state(RAW, RAW, free_bytes=1_000, elsewhere=True)
    asked = settings(min_free=1_100, archive_after=60 * MINUTE)
    assert removal(found, asked) == (None, None)


def test_the_setting_that_asks_for_most_counts() -> None:
    asked = settings(remove_after=4 * MINUTE, max_bytes=300)
    decision, _ = removal(state(*FOUR), asked)
    assert decision is not None
    assert decision.serials == (1, 2)
    assert "max_bytes" in decision.why


def test_one_run_takes_at_most_its_share() -> None:
    asked = settings(remove_after=MINUTE, remove_share_max=50)  # 250 of 500 bytes
    assert removed(state(*FOUR), asked) == (1, 2)
    assert blocked(state(*FOUR), asked)[0] == ""


def test_a_share_below_the_oldest_segment_is_told() -> None:
    asked = settings(remove_after=MINUTE, remove_share_max=10)
    assert removed(state(*FOUR), asked) == ()
    assert blocked(state(*FOUR), asked)[0] == "share"


@pytest.mark.parametrize(
    ("changes", "expected", "code"),
    [
        ({"held_from": 1, "holders": ("a replay",)}, (), "held"),
        ({"held_from": 100, "holders": ("a replay",)}, (), "held"),
        ({"held_from": 101, "holders": ("a replay",)}, (1,), "held"),
        ({"held_from": 401}, (1, 2, 3, 4), ""),
        ({"silent": ("delivery",)}, (), "held"),
        ({"stated": 0}, (), "stated"),
        ({"stated": 1}, (), "stated"),
        ({"stated": 3}, (1, 2), "stated"),
        ({"busy": frozenset({2})}, (1,), ""),
        ({"resting": frozenset({("remove", 0)})}, (), ""),
    ],
)
def test_removal_stops_at(changes: dict[str, Any], expected: tuple[int, ...], code: str) -> None:
    asked = settings(remove_after=MINUTE)
    assert removed(state(*FOUR, **changes), asked) == expected
    assert blocked(state(*FOUR, **changes), asked)[0] == code


def test_who_holds_back_how_much_is_named() -> None:
    found = state(*FOUR, held_from=101, holders=("a replay of spark",))
    code, size, why = blocked(found, settings(remove_after=2 * MINUTE))
    assert (code, size) == ("held", 200)
    assert why == "segments 2 to 3: needed by a replay of spark"


def test_queues_that_need_some_of_it_are_known() -> None:
    queues = ((50, "rare"), (150, "slow"), (450, "fast"))
    found = state(*FOUR, held_from=50, holders=("queues (rare)",), queues=queues)
    _, block = removal(found, settings(remove_after=2 * MINUTE))
    assert block is not None
    assert block.queues == ("rare", "slow")


def test_nothing_more_goes_while_an_earlier_removal_waits() -> None:
    found = state(*FOUR, removing=frozenset({1}), held_from=201)
    assert removal(found, settings(remove_after=MINUTE)) == (None, None)


def test_who_keeps_given_up_files_from_going_is_named() -> None:
    found = state(*FOUR, removing=frozenset({1}), held_from=50, holders=("slow",))
    assert blocked(found, settings(remove_after=10 * MINUTE))[:2] == ("held", 100)


def test_what_is_going_is_not_counted_twice() -> None:
    found = state(*FOUR, removing=frozenset({1}), free_bytes=1_000)
    assert removal(found, settings(max_bytes=400, min_free=1_100)) == (None, None)


def test_a_segment_of_unknown_age_stops_what_goes_by_age() -> None:
    found = state(*FOUR)
    segments = (found.segments[0], found.segments[1]._replace(last_time=None), *found.segments[2:])
    assert removed(found._replace(segments=segments), settings(remove_after=MINUTE)) == (1,)


def test_a_log_of_one_segment_has_nothing_to_remove() -> None:
    assert removal(state(), settings(remove_after=1, max_bytes=1, min_free=1 << 60)) == (None, None)
