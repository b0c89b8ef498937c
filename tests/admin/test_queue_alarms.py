"""zbroker/admin/queue_alarms.py: the table of what is wrong with queues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.queue_rows import row
from zbroker.admin.queue_alarms import NAMED_MAX, QueueObservation, found
from zbroker.wire.queue_surveys import QueueRow

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


def codes(given: QueueObservation) -> list[str]:
    return [finding.code for finding in found(given)]


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
        (seen(row(), dead={"work": 1}), ["dead_letters"]),
        (seen(row(), dead={"work": 0}), []),
        (seen(row(), dead={"gone": 1}), []),
    ],
)
def test_the_table_of_alarms(given: QueueObservation, expected: list[str]) -> None:
    assert codes(given) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"depth": 0, "ready": 0, "oldest_ns": None},
        {"ready": 0, "leased": 3},
        {"ready": 0, "delayed": 3},
        {"ready": 0, "leased": 1, "delayed": 1, "going": 1},
        {"oldest_ns": NOW_NS - (HOUR_MS - 1) * NS},
        {"oldest_ns": NOW_NS + HOUR_MS * NS},
        {"kind": "replayable"},
    ],
    ids=["empty", "leased", "delayed", "under way", "just come", "from the future", "replayable"],
)
@pytest.mark.parametrize("idle_ms", [None, 90 * HOUR_MS])
def test_a_queue_is_not_idle_while_nobody_could_take_anything(
    more: dict[str, Any], idle_ms: int | None
) -> None:
    assert codes(seen(waiting(idle_ms, **more), known_ms=90 * HOUR_MS)) == []


def test_what_waits_behind_a_barrier_waits_too() -> None:
    assert codes(seen(waiting(2 * HOUR_MS, ready=0, leased=1, depth=3))) == ["queue_idle"]


def test_a_queue_that_nobody_ever_took_from_says_so() -> None:
    [finding] = found(seen(waiting(None), known_ms=HOUR_MS))
    assert finding.what == (
        "work was never consumed since 19700105T030000Z (1 h): 3 messages; it holds the log from "
        "position 7 on"
    )


def test_a_queue_that_is_not_taken_from_any_more_says_since_when() -> None:
    [finding] = found(seen(waiting(90 * 60_000)))
    assert finding.what == (
        "work has messages, and nobody takes any since 19700105T023000Z (1.5 h): 3 messages; it "
        "holds the log from position 7 on"
    )


def test_a_large_queue_says_what_it_holds() -> None:
    [finding] = found(seen(row(bytes=3 << 30, holding=7, definition={"size_alarm": 1 << 30})))
    assert finding.what == (
        "work holds 3 GiB of the log from position 7 on, its size_alarm is 1 GiB"
    )


def test_dead_letters_say_where_they_are() -> None:
    rows = [row("a"), row("b", definition={"dead_letter": "dead.b"})]
    [finding] = found(seen(*rows, dead={"a": 1, "b": 2}))
    assert finding.what == (
        "b: 2 dead letters lately, they are in dead.b; a: 1 dead letter lately, it has no "
        "dead_letter topic: only counted"
    )


def test_the_worst_of_several_are_named() -> None:
    rows = [row(f"q{n}", bytes=(11 + n) << 30) for n in range(NAMED_MAX + 2)]
    [finding] = found(seen(*rows))
    told = finding.what.split("; ")
    assert [text.split()[0] for text in told] == ["q4", "q3", "q2", "and"]
    assert told[-1] == "and 2 more"


def test_every_alarm_says_what_it_means_and_what_to_do() -> None:
    one = waiting(2 * HOUR_MS, bytes=1 << 50)
    all_of_them = found(seen(one, dead={"work": 1}))
    assert len(all_of_them) == 3
    assert all(finding.what and finding.means and finding.next for finding in all_of_them)
