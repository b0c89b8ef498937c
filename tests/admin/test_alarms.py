"""zbroker/admin/alarms.py: the table of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.queue_rows import row
from zbroker.admin import alarms
from zbroker.admin.alarms import (
    NAMED_MAX,
    AlarmFacts,
    AlarmWatch,
    DiskUsage,
    Failure,
    QueueObservation,
    queue_findings,
)
from zbroker.admin.retention import BlockedRemoval
from zbroker.config import RetentionConfig
from zbroker.wire.queue_surveys import QueueRow

SECOND_NS = 1_000_000_000
HELD = BlockedRemoval("held", 200, "segments 2 to 3: needed by a replay")
KEPT = BlockedRemoval(
    "held", 26 << 20, "segments 2 to 9: needed by queues (rare)", ("rare", "other")
)
FAILED = Failure("archive", (4,), "the disk is full")


def codes(facts: AlarmFacts) -> list[str]:
    return [finding.code for finding in alarms.found(facts)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (AlarmFacts({}), []),
        (AlarmFacts({"accepting": 1, "damage": 0, "conflicts": 0, "index_failed": ""}), []),
        (AlarmFacts({"accepting": 0}), ["disk_full"]),
        (AlarmFacts({"accepting": 0}, disks=(DiskUsage("/j", 1, 100),)), ["disk_full", "disk_80"]),
        (AlarmFacts({}, disks=(DiskUsage("/j", 20, 100),)), ["disk_80"]),
        (AlarmFacts({}, disks=(DiskUsage("/j", 21, 100),)), []),
        (AlarmFacts({}, disks=(DiskUsage("/j", 50, 100), DiskUsage("/a", 1, 100))), ["disk_80"]),
        (AlarmFacts({}, disks=(DiskUsage("/j", 0, 0),)), []),
        (AlarmFacts({"damage": 2}), ["damage"]),
        (AlarmFacts({"conflicts": 1}), ["conflicts"]),
        (AlarmFacts({"index_failed": "MDB_MAP_FULL"}), ["index_failed"]),
        (AlarmFacts({}, grown={"flush_late": 1}), ["flush_late"]),
        (AlarmFacts({}, grown={"unprepared": 1}), ["unprepared"]),
        (AlarmFacts({}, blocked=HELD, held_alarm=199), ["held"]),
        (AlarmFacts({}, blocked=HELD, held_alarm=200), []),
        (
            AlarmFacts({}, blocked=BlockedRemoval("share", 1, ""), held_alarm=200),
            ["removal_blocked"],
        ),
        (
            AlarmFacts({}, blocked=BlockedRemoval("stated", 1, ""), held_alarm=200),
            ["removal_blocked"],
        ),
        (
            AlarmFacts({}, blocked=BlockedRemoval("elsewhere", 1, ""), held_alarm=200),
            ["removal_blocked"],
        ),
        (AlarmFacts({}, blocked=KEPT, held_alarm=1 << 60), ["queue_holds"]),
        (AlarmFacts({}, rules="access.toml:3: no such action"), ["access_file"]),
        (AlarmFacts({}, failures=(FAILED,)), ["action_failed"]),
        (AlarmFacts({}, clock_behind_ms=59_999), []),
        (AlarmFacts({}, clock_behind_ms=60_000), ["clock_jumped"]),
    ],
)
def test_the_table_of_alarms(facts: AlarmFacts, expected: list[str]) -> None:
    assert codes(facts) == expected


def test_every_alarm_says_what_it_means_and_what_to_do() -> None:
    facts = AlarmFacts(
        {"accepting": 0, "damage": 1, "conflicts": 1, "index_failed": "x"},
        (DiskUsage("/j", 1, 100),), HELD, 0, (FAILED,), 60_000, {"flush_late": 1, "unprepared": 1},
        rules="x",
    )  # fmt: skip
    found = [*alarms.found(facts), *alarms.found(AlarmFacts({}, blocked=KEPT))]
    assert len(found) == 12
    assert all(finding.what and finding.means and finding.next for finding in found)


@pytest.mark.parametrize(
    ("stats", "limit_ms", "age_ms"),
    [
        ({"branches_prepared": 1, "branches_since_s": 40}, 60_000, 60_000),
        ({"branches_prepared": 1, "branches_since_s": 40}, 60_001, None),
        ({"branches_prepared": 1, "branches_since_s": 40}, 0, None),
        ({"branches_prepared": 0, "branches_decided": 1, "branches_since_s": 0}, 1, None),
        ({}, 1, None),
    ],
)
def test_a_transaction_is_in_doubt_from_its_limit_on(
    stats: dict[str, int], limit_ms: int, age_ms: int | None
) -> None:
    assert alarms.in_doubt_ms(stats, limit_ms, 100 * 1_000_000_000) == age_ms


def test_transactions_in_doubt_are_counted_with_what_lists_them() -> None:
    facts = AlarmFacts({"branches_prepared": 2}, in_doubt_ms=7_200_000)
    [finding] = alarms.found(facts)
    assert finding.code == "transaction_in_doubt"
    assert finding.what == (
        "2 distributed transactions are prepared and not decided, the oldest for 2 h"
    )
    assert "zbroker-admin transaction ls" in finding.next
    [alone] = alarms.found(facts._replace(journal={"branches_prepared": 1}))
    assert alone.what.startswith("1 distributed transaction is prepared")


def test_who_holds_is_named() -> None:
    [finding] = alarms.found(AlarmFacts({}, blocked=HELD))
    assert "a replay" in finding.what


def test_a_queue_that_keeps_retention_from_working_is_named_at_once() -> None:
    watch = AlarmWatch()
    assert look(watch, 10, {}, blocked=KEPT, held_alarm=10 << 30) == [("queue_holds", 10)]
    [finding] = alarms.found(AlarmFacts({}, blocked=KEPT))
    assert "queue rare and 1 more queue needs the log" in finding.what
    assert "zbroker-admin queue explain rare" in finding.next


@pytest.mark.parametrize(
    ("more", "limit"),
    [({}, 10 << 30), ({"max_bytes": 4 << 20}, (4 << 20) // 10), ({"min_free": 100}, 10)],
)
def test_what_may_be_held_back_is_a_part_of_what_the_rules_allow(
    more: dict[str, int], limit: int
) -> None:
    assert alarms.held_limit(RetentionConfig(**more)) == limit


@pytest.mark.parametrize(
    ("stats", "means"),
    [
        ({"accepting": 1}, "nothing yet; when the journal's disk is full, publishers are refused"),
        ({"accepting": 0}, "publishers are refused: see disk_full"),
    ],
)
def test_a_full_disk_does_not_say_that_nothing_is_wrong(stats: dict[str, int], means: str) -> None:
    found = alarms.found(AlarmFacts(stats, disks=(DiskUsage("/j", 1, 100),)))
    assert found[-1].means == means


def test_a_full_disk_names_the_queue_that_needs_most_of_the_log() -> None:
    facts = AlarmFacts({"bytes": 30 << 20}, disks=(DiskUsage("/j", 1, 100),))
    [alone] = alarms.found(facts._replace(keeper=("small", 1 << 20)))
    assert "queue" not in alone.next
    [kept] = alarms.found(facts._replace(keeper=("rare", 29 << 20)))
    assert kept.next.startswith("queue rare needs 29 MiB of the log")


def test_the_newest_of_several_failures_is_reported() -> None:
    other = Failure("compress", (5, 6), "cannot be read")
    [finding] = alarms.found(AlarmFacts({}, failures=(FAILED, other)))
    assert finding.what == "compress of segments 5 to 6 failed: cannot be read (and 1 more)"


def look(
    watch: AlarmWatch, second: int, stats: dict[str, Any], **more: Any
) -> list[tuple[str, int]]:
    found = watch.look(AlarmFacts(stats, **more), second * SECOND_NS)
    return [(alarm.finding.code, alarm.since_ns // SECOND_NS) for alarm in found]


def test_an_alarm_tells_since_when_it_is() -> None:
    watch = AlarmWatch()
    assert look(watch, 1, {"damage": 1}) == [("damage", 1)]
    assert look(watch, 5, {"damage": 2}) == [("damage", 1)]


def test_an_alarm_that_comes_back_begins_again() -> None:
    watch = AlarmWatch()
    look(watch, 1, {"accepting": 0})
    assert look(watch, 2, {"accepting": 1}) == []
    assert look(watch, 3, {"accepting": 0}) == [("disk_full", 3)]


def test_a_queue_may_be_full_for_moments() -> None:
    watch, full = AlarmWatch(), tuple(queue_findings(seen(row(full=True, depth=9))))
    assert look(watch, 10, {}, queues=full) == []
    assert look(watch, 30, {}) == []
    assert look(watch, 35, {}, queues=full) == []
    assert look(watch, 64, {}, queues=full) == []
    assert look(watch, 65, {}, queues=full) == [("queue_full", 35)]
    assert full[0].what == "work is full: 9 messages"


def test_a_holder_has_a_moment_to_let_go() -> None:
    watch = AlarmWatch()
    assert look(watch, 10, {}, blocked=HELD) == []
    assert look(watch, 39, {}, blocked=HELD) == []
    assert look(watch, 40, {}, blocked=HELD) == [("held", 10)]


@pytest.mark.parametrize(("counter", "least"), alarms.COUNTERS.items())
def test_a_counter_alarms_while_it_grew_enough_lately(counter: str, least: int) -> None:
    watch = AlarmWatch()
    assert look(watch, 0, {counter: 5}) == [], "what was before is old"
    assert look(watch, 5, {counter: 5 + least - 1}) == []
    assert look(watch, 10, {counter: 5 + least}) == [(counter, 10)]
    assert look(watch, 604, {counter: 5 + least}) == [(counter, 10)]
    assert look(watch, 610, {counter: 5 + least}) == []


def test_a_counter_of_a_new_process_is_no_growth() -> None:
    watch = AlarmWatch()
    look(watch, 0, {"unprepared": 5})
    assert look(watch, 1, {"unprepared": 0}) == []
    assert look(watch, 2, {"unprepared": 1}) == [("unprepared", 2)]


HOUR_MS = 3_600_000
NS = 1_000_000
NOW_MS = 100 * HOUR_MS
NOW_NS = NOW_MS * NS


def seen(*rows: QueueRow, known_ms: int = 0, **more: Any) -> QueueObservation:
    made = QueueObservation(rows, {one.name: known_ms for one in rows}, {}, NOW_NS)
    return made._replace(**more)


def waiting(idle_ms: int | None, **more: Any) -> QueueRow:
    """A queue with messages of two hours ago."""
    oldest = {"oldest_ns": NOW_NS - 2 * HOUR_MS * NS}
    return row(**{"depth": 3, "ready": 3, "idle_ms": idle_ms, "holding": 7, **oldest, **more})


def away(**more: Any) -> QueueRow:
    """One of which another instance owns all messages."""
    oldest = {"elsewhere_first": 7, "elsewhere_ns": NOW_NS - 2 * HOUR_MS * NS}
    return row(**{"depth": 3, "elsewhere": 3, **oldest, **more})


def queues_codes(given: QueueObservation) -> list[str]:
    return [finding.code for finding in queue_findings(given)]


def big(size: int, limit: int | None = None) -> QueueRow:
    return row(bytes=size, definition={} if limit is None else {"size_alarm": limit})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (seen(), []),
        (seen(row()), []),
        (seen(big(10 << 30)), []),
        (seen(big((10 << 30) + 1)), ["queue_size"]),
        (seen(big(11, 10)), ["queue_size"]),
        (seen(big(10, 10)), []),
        (seen(big(1 << 50, 0)), []),
        (seen(waiting(HOUR_MS)), ["queue_idle"]),
        (seen(waiting(HOUR_MS - 1)), []),
        (seen(waiting(HOUR_MS - 5), ago_ms={"work": 5}), ["queue_idle"]),
        (seen(waiting(None), known_ms=HOUR_MS), ["queue_idle"]),
        (seen(waiting(None), known_ms=HOUR_MS - 1), []),
        (seen(waiting(HOUR_MS, definition={"idle_alarm": 0})), []),
        (seen(waiting(5, definition={"idle_alarm": 5})), ["queue_idle"]),
        (seen(away(), stays_ms={"work": HOUR_MS}), ["queue_elsewhere"]),
        (seen(away(), stays_ms={"work": HOUR_MS - 1}), []),
        (seen(away()), []),
        (seen(away(elsewhere=0), stays_ms={"work": HOUR_MS}), []),
        (seen(away(definition={"idle_alarm": 0}), stays_ms={"work": HOUR_MS}), []),
        (seen(row(full=True)), ["queue_full"]),
        (seen(row(), dead={"work": 1}), ["dead_letters"]),
        (seen(row(), dead={"work": 0}), []),
        (seen(row(), dead={"gone": 1}), []),
    ],
)
def test_the_table_of_alarms_for_queues(given: QueueObservation, expected: list[str]) -> None:
    assert queues_codes(given) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"depth": 0, "ready": 0, "oldest_ns": None},
        {"ready": 0, "leased": 3},
        {"ready": 0, "delayed": 3},
        {"ready": 0, "elsewhere": 3},
        {"ready": 0, "leased": 1, "delayed": 1, "going": 1},
        {"oldest_ns": NOW_NS - (HOUR_MS - 1) * NS},
        {"oldest_ns": NOW_NS + HOUR_MS * NS},
        {"kind": "replayable"},
    ],
    ids=[
        "empty",
        "leased",
        "delayed",
        "elsewhere",
        "under way",
        "just come",
        "from the future",
        "replayable",
    ],
)
@pytest.mark.parametrize("idle_ms", [None, 90 * HOUR_MS])
def test_a_queue_is_not_idle_while_no_one_could_take_anything(
    more: dict[str, Any], idle_ms: int | None
) -> None:
    assert queues_codes(seen(waiting(idle_ms, **more), known_ms=90 * HOUR_MS)) == []


def test_what_waits_behind_a_barrier_waits_too() -> None:
    assert queues_codes(seen(waiting(2 * HOUR_MS, ready=0, leased=1, depth=3))) == ["queue_idle"]


def test_what_waits_for_another_instance_is_named() -> None:
    [finding] = queue_findings(seen(away(), stays_ms={"work": HOUR_MS}))
    assert finding.what == (
        "work has 3 messages of other instances; the oldest, at position 7, waits for 2 h"
    )


def test_a_queue_that_no_one_ever_took_from_says_so() -> None:
    [finding] = queue_findings(seen(waiting(None), known_ms=HOUR_MS))
    assert finding.what == (
        "work was never consumed since 19700105T030000Z (1 h): 3 messages; it holds the log from "
        "position 7 on"
    )


def test_a_queue_that_is_not_taken_from_any_more_says_since_when() -> None:
    [finding] = queue_findings(seen(waiting(90 * 60_000)))
    assert finding.what == (
        "work has messages, and no consumer takes any since 19700105T023000Z (1.5 h): 3 messages; "
        "it holds the log from position 7 on"
    )


def test_a_large_queue_says_what_it_holds() -> None:
    [finding] = queue_findings(
        seen(row(bytes=3 << 30, holding=7, definition={"size_alarm": 1 << 30}))
    )
    assert finding.what == (
        "work holds 3 GiB of the log from position 7 on, its size_alarm is 1 GiB"
    )


def test_dead_letters_say_where_they_are() -> None:
    rows = [row("a"), row("b", definition={"dead_letter": "dead.b"})]
    [finding] = queue_findings(seen(*rows, dead={"a": 1, "b": 2}))
    assert finding.what == (
        "b: 2 dead letters lately, they are in dead.b; a: 1 dead letter lately, it has no "
        "dead_letter topic: only counted"
    )


def test_the_worst_of_several_are_named() -> None:
    rows = [row(f"q{n}", bytes=(11 + n) << 30) for n in range(NAMED_MAX + 2)]
    [finding] = queue_findings(seen(*rows))
    reported = finding.what.split("; ")
    assert [text.split()[0] for text in reported] == ["q4", "q3", "q2", "and"]
    assert reported[-1] == "and 2 more"


def test_every_alarm_says_what_it_means_and_what_to_do_for_queues() -> None:
    one = waiting(2 * HOUR_MS, bytes=1 << 50)
    all_of_them = queue_findings(seen(one, dead={"work": 1}))
    assert len(all_of_them) == 3
    assert all(finding.what and finding.means and finding.next for finding in all_of_them)
