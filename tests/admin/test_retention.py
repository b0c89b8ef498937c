"""zbroker/admin/retention.py: what is due, how much goes, and what stops it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.build import (
    ARCHIVED,
    ARCHIVED_PACKED,
    MINUTE,
    NOW_NS,
    PACKED,
    RAW,
    settings,
    state,
)
from zbroker.admin import retention
from zbroker.admin.retention import Copy, RetentionView, SegmentView, plan_removal
from zbroker.config import RetentionConfig


def due(found: RetentionView, asked: RetentionConfig) -> list[tuple[str, tuple[int, ...]]]:
    return [(d.action, d.serials) for d in retention.plan(found, asked).decisions]


@pytest.mark.seed("004-23")
def test_without_settings_nothing_is_due() -> None:
    assert retention.plan(state(RAW, RAW), settings()) == retention.RetentionPlan([], None)


def test_a_segment_is_archived_at_its_age() -> None:
    assert due(state(RAW, RAW, RAW), settings(archive_after=2 * MINUTE)) == [
        ("archive", (1,)),
        ("archive", (2,)),
    ]


def test_a_segment_is_compressed_wherever_it_is() -> None:
    found = state(ARCHIVED, RAW, ARCHIVED_PACKED, PACKED)
    assert due(found, settings(compress_after=MINUTE)) == [("compress", (1,)), ("compress", (2,))]


def test_the_reason_tells_age_and_setting() -> None:
    [decision] = retention.plan(state(RAW), settings(compress_after=1_000)).decisions
    assert decision.why == "the last message is 1 min old, compress_after is 1 s"


def test_a_compressed_segment_can_be_archived() -> None:
    assert due(state(PACKED), settings(archive_after=MINUTE)) == [("archive", (1,))]


@pytest.mark.seed("004-95")
def test_what_is_archived_now_is_compressed_later() -> None:
    asked = settings(archive_after=2 * MINUTE, compress_after=MINUTE)
    assert due(state(RAW, RAW), asked) == [("archive", (1,)), ("compress", (2,))]


def test_what_is_removed_now_is_neither_archived_nor_compressed() -> None:
    asked = settings(remove_after=2 * MINUTE, archive_after=MINUTE, compress_after=MINUTE)
    assert due(state(RAW, RAW), asked) == [("remove", (1,)), ("archive", (2,))]


@pytest.mark.parametrize(
    ("copies", "action"),
    [
        ((RAW, ARCHIVED), "archive"),
        ((PACKED, ARCHIVED_PACKED), "archive"),
        ((RAW, PACKED), "compress"),
        ((ARCHIVED, ARCHIVED_PACKED), "compress"),
    ],
)
def test_what_is_half_done_is_finished_without_any_setting(copies: Any, action: str) -> None:
    [decision] = retention.plan(state(RAW, copies), settings()).decisions
    assert (decision.action, decision.serials) == (action, (2,))
    assert "interrupted" in decision.why


def test_what_is_half_done_comes_before_what_is_due() -> None:
    found = state(RAW, (RAW, PACKED))
    assert due(found, settings(archive_after=MINUTE)) == [("compress", (2,)), ("archive", (1,))]


@pytest.mark.parametrize("changes", [{"busy": frozenset({1})}, {"removing": frozenset({1})}])
def test_what_is_worked_on_or_going_is_left_alone(changes: dict[str, Any]) -> None:
    asked = settings(archive_after=2 * MINUTE, compress_after=2 * MINUTE)
    assert due(state(RAW, **changes), asked) == []
    assert due(state((RAW, PACKED), **changes), asked) == []


def test_what_failed_lately_rests() -> None:
    found = state(RAW, RAW, resting=frozenset({("archive", 1)}))
    assert due(found, settings(archive_after=MINUTE)) == [("archive", (2,))]


def test_little_space_archives_early_where_the_archive_is_on_another_disk() -> None:
    found = state(RAW, RAW, RAW, free_bytes=1_000, elsewhere=True)
    plan = retention.plan(found, settings(archive_after=60 * MINUTE, min_free=1_150))
    assert [(d.action, d.serials) for d in plan.decisions] == [("archive", (1,)), ("archive", (2,))]
    assert "min_free" in plan.decisions[0].why
    assert plan.blocked is None


def test_a_plan_is_bounded() -> None:
    found = state(*[RAW] * (retention.PLAN_MAX + 5))
    assert len(due(found, settings(compress_after=1))) == retention.PLAN_MAX


def test_the_open_segment_is_never_due() -> None:
    asked = settings(archive_after=1, compress_after=1, remove_after=1, max_bytes=1)
    assert due(state(), asked) == []


def test_a_request_takes_all_up_to_a_segment() -> None:
    taken, skipped = retention.by_hand("archive", state(RAW, PACKED, RAW), None, 2)
    assert [segment.serial for segment in taken] == [1, 2]
    assert skipped == []


@pytest.mark.parametrize(
    ("action", "serial", "reason"),
    [
        ("archive", 9, "no such segment"),
        ("archive", 5, "open"),
        ("archive", 2, "archive directory"),
        ("compress", 3, "compressed"),
        ("compress", 1, "being removed"),
        ("compress", 4, "being worked on"),
    ],
)
def test_a_request_says_why_it_leaves_out(action: Any, serial: int, reason: str) -> None:
    found = state(RAW, ARCHIVED, PACKED, RAW, removing=frozenset({1}), busy=frozenset({4}))
    taken, skipped = retention.by_hand(action, found, [serial], 0)
    assert taken == []
    assert [row.serial for row in skipped] == [serial]
    assert reason in skipped[0].reason


def test_what_is_half_done_may_be_asked_for() -> None:
    taken, _ = retention.by_hand("archive", state((RAW, ARCHIVED)), [1], 0)
    assert [segment.serial for segment in taken] == [1]


def test_the_second_attempt_waits_longer_than_the_first_up_to_an_hour() -> None:
    waits = [retention.retry_ms(failures, 60_000) for failures in range(1, 12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (120_000, 3_600_000)


def test_an_attempt_waits_at_least_until_the_next_evaluation() -> None:
    assert retention.retry_ms(1, 86_400_000) == 86_400_000


FOUR = (RAW, RAW, RAW, RAW)  # last messages 4, 3, 2, 1 minutes old


def removed(found: RetentionView, asked: RetentionConfig) -> tuple[int, ...]:
    decision, _ = plan_removal(found, asked)
    return decision.serials if decision else ()


def blocked(found: RetentionView, asked: RetentionConfig) -> tuple[str, int, str]:
    _, block = plan_removal(found, asked)
    return (block.code, block.bytes, block.why) if block is not None else ("", 0, "")


def test_without_settings_nothing_goes() -> None:
    assert plan_removal(state(*FOUR), settings()) == (None, None)


@pytest.mark.seed("004-95")
@pytest.mark.parametrize(
    ("minutes", "expected"), [(5, ()), (4, (1,)), (3, (1, 2)), (1, (1, 2, 3, 4))]
)
def test_age_is_that_of_the_last_message(minutes: int, expected: tuple[int, ...]) -> None:
    assert removed(state(*FOUR), settings(remove_after=minutes * MINUTE)) == expected


def test_the_reason_of_an_age_tells_age_and_setting() -> None:
    decision, _ = plan_removal(state(*FOUR), settings(remove_after=3 * MINUTE))
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
    decision, _ = plan_removal(state(*FOUR), settings(max_bytes=450))
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


def test_where_archiving_makes_the_space_nothing_is_removed_for_it() -> None:
    found = state(RAW, RAW, free_bytes=1_000, elsewhere=True)
    asked = settings(min_free=1_100, archive_after=60 * MINUTE)
    assert plan_removal(found, asked) == (None, None)


def test_the_setting_that_asks_for_most_counts() -> None:
    asked = settings(remove_after=4 * MINUTE, max_bytes=300)
    decision, _ = plan_removal(state(*FOUR), asked)
    assert decision is not None
    assert decision.serials == (1, 2)
    assert "max_bytes" in decision.why


def test_one_run_takes_at_most_its_share() -> None:
    asked = settings(remove_after=MINUTE, remove_share_max=50)  # 250 of 500 bytes
    assert removed(state(*FOUR), asked) == (1, 2)
    assert blocked(state(*FOUR), asked)[0] == ""


def test_a_share_below_the_oldest_segment_is_reported() -> None:
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
    _, block = plan_removal(found, settings(remove_after=2 * MINUTE))
    assert block is not None
    assert block.queues == ("rare", "slow")


def test_nothing_more_goes_while_an_earlier_removal_waits() -> None:
    found = state(*FOUR, removing=frozenset({1}), held_from=201)
    assert plan_removal(found, settings(remove_after=MINUTE)) == (None, None)


def test_who_keeps_given_up_files_from_going_is_named() -> None:
    found = state(*FOUR, removing=frozenset({1}), held_from=50, holders=("slow",))
    assert blocked(found, settings(remove_after=10 * MINUTE))[:2] == ("held", 100)


def test_what_is_going_is_not_counted_twice() -> None:
    found = state(*FOUR, removing=frozenset({1}), free_bytes=1_000)
    assert plan_removal(found, settings(max_bytes=400, min_free=1_100)) == (None, None)


def test_a_segment_of_unknown_age_stops_what_goes_by_age() -> None:
    found = state(*FOUR)
    segments = (found.segments[0], found.segments[1]._replace(last_time=None), *found.segments[2:])
    assert removed(found._replace(segments=segments), settings(remove_after=MINUTE)) == (1,)


def test_a_log_of_one_segment_has_nothing_to_remove() -> None:
    assert plan_removal(state(), settings(remove_after=1, max_bytes=1, min_free=1 << 60)) == (
        None,
        None,
    )


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
    assert retention.age_ms(found, found.segments[0]) == 2 * MINUTE


def test_a_message_from_the_future_has_no_age() -> None:
    found = state(RAW)
    later = found.segments[0]._replace(last_time=NOW_NS + 1)
    assert retention.age_ms(found, later) == 0


def test_a_damaged_segment_is_as_old_as_the_next_one_proves() -> None:
    found = state(RAW, RAW, RAW)
    damaged = [found.segments[0]._replace(end=None, last_time=None), *found.segments[1:]]
    first = retention.bounded_ages(damaged)[0]
    assert (first.end, first.last_time) == (201, found.segments[1].last_time)


def test_a_damaged_newest_sealed_segment_has_no_known_age() -> None:
    found = state(RAW)
    damaged = [found.segments[0]._replace(end=None, last_time=None), found.segments[1]]
    first = retention.bounded_ages(damaged)[0]
    assert (first.end, first.last_time) == (None, None)


def test_the_clock_of_ages_begins_with_the_wall_clock() -> None:
    assert retention.clock_of_ages(0, 0, NOW_NS) == NOW_NS


def test_a_clock_that_goes_right_is_believed() -> None:
    assert retention.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS + SECOND_NS) == NOW_NS + SECOND_NS


def test_a_clock_that_jumps_ahead_is_followed_slowly() -> None:
    day = 86_400 * SECOND_NS
    later = retention.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS + day)
    assert later == NOW_NS + 2 * SECOND_NS


def test_a_clock_that_goes_back_makes_everything_younger_at_once() -> None:
    assert (
        retention.clock_of_ages(NOW_NS, SECOND_NS, NOW_NS - 5 * SECOND_NS) == NOW_NS - 5 * SECOND_NS
    )
