"""zbroker/admin/actions.py: what is due, in which order, and what a request means."""

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
from zbroker.admin import actions
from zbroker.admin.view import RetentionView
from zbroker.config import RetentionConfig


def due(found: RetentionView, asked: RetentionConfig) -> list[tuple[str, tuple[int, ...]]]:
    return [(d.action, d.serials) for d in actions.plan(found, asked).decisions]


@pytest.mark.seed("004-23")
def test_without_settings_nothing_is_due() -> None:
    assert actions.plan(state(RAW, RAW), settings()) == actions.RetentionPlan([], None)


def test_a_segment_is_archived_at_its_age() -> None:
    assert due(state(RAW, RAW, RAW), settings(archive_after=2 * MINUTE)) == [
        ("archive", (1,)),
        ("archive", (2,)),
    ]


def test_a_segment_is_compressed_wherever_it_is() -> None:
    found = state(ARCHIVED, RAW, ARCHIVED_PACKED, PACKED)
    assert due(found, settings(compress_after=MINUTE)) == [("compress", (1,)), ("compress", (2,))]


def test_the_reason_tells_age_and_setting() -> None:
    [decision] = actions.plan(state(RAW), settings(compress_after=1_000)).decisions
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
    [decision] = actions.plan(state(RAW, copies), settings()).decisions
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
    plan = actions.plan(found, settings(archive_after=60 * MINUTE, min_free=1_150))
    assert [(d.action, d.serials) for d in plan.decisions] == [("archive", (1,)), ("archive", (2,))]
    assert "min_free" in plan.decisions[0].why
    assert plan.blocked is None


def test_a_plan_is_bounded() -> None:
    found = state(*[RAW] * (actions.PLAN_MAX + 5))
    assert len(due(found, settings(compress_after=1))) == actions.PLAN_MAX


def test_the_open_segment_is_never_due() -> None:
    asked = settings(archive_after=1, compress_after=1, remove_after=1, max_bytes=1)
    assert due(state(), asked) == []


def test_a_request_takes_all_up_to_a_segment() -> None:
    taken, skipped = actions.by_hand("archive", state(RAW, PACKED, RAW), None, 2)
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
    taken, skipped = actions.by_hand(action, found, [serial], 0)
    assert taken == []
    assert [row.serial for row in skipped] == [serial]
    assert reason in skipped[0].reason


def test_what_is_half_done_may_be_asked_for() -> None:
    taken, _ = actions.by_hand("archive", state((RAW, ARCHIVED)), [1], 0)
    assert [segment.serial for segment in taken] == [1]


def test_the_second_attempt_waits_longer_than_the_first_up_to_an_hour() -> None:
    waits = [actions.retry_ms(failures, 60_000) for failures in range(1, 12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (120_000, 3_600_000)


def test_an_attempt_waits_at_least_until_the_next_evaluation() -> None:
    assert actions.retry_ms(1, 86_400_000) == 86_400_000
