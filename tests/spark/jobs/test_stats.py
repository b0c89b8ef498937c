"""Claims about stats: topics by hour, and what became of messages of a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="needs package pyspark")

import pyarrow as pa

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.cli.main import main
from zbroker.spark import plan_ranges
from zbroker.spark.jobs.stats import (
    HOUR_US,
    Classes,
    QueueRuns,
    RangeFacts,
    classes_of,
    facts,
    join,
    lowest_of,
    queues,
    tallied,
)

SECOND_NS = 1_000_000_000


def test_ages_are_from_the_append_of_their_batch() -> None:
    marks = [(1, 0), (11, 10 * SECOND_NS)]
    left = [QueueRuns("work", "acked", False, 12 * SECOND_NS, [(6, 16)])]
    row = queues([RangeFacts(marks, []), RangeFacts([], left)])["work"].row("work")
    assert (row["left"], row["left_why"], row["age_max_s"]) == (10, {"acked": 10}, 12.0)
    assert row["age_p50_s"] == pytest.approx(2.0, rel=1 / 16)


def test_what_was_appended_before_has_no_age() -> None:
    left = [QueueRuns("work", "acked", False, 5 * SECOND_NS, [(1, 13)])]
    row = queues([RangeFacts([(11, 4 * SECOND_NS)], left)])["work"].row("work")
    assert (row["age_unknown"], row["age_max_s"], row["left"]) == (10, 1.0, 12)
    assert queues([RangeFacts([], left)])["work"].row("work")["age_unknown"] == 12


def test_what_came_back_is_a_redelivery() -> None:
    left = [QueueRuns("work", "lease_ended", True, 0, [(1, 4), (9, 10)])]
    row = queues([RangeFacts([(1, 0)], left)])["work"].row("work")
    assert (row["redelivered"], row["redelivered_why"], row["left"]) == (4, {"lease_ended": 4}, 0)


@pytest.mark.process
def test_records_of_a_real_queue_are_read(tmp_path: Path) -> None:
    queue: Any = {"queue": [{"name": "work", "topic": "jobs"}]}
    with (
        zbroker.LocalBroker(tmp_path / "data", settings=queue) as broker,
        zbroker.connect(broker.url) as client,
    ):
        client.publish_many("jobs", [b"%d" % number for number in range(5)])
        client.flush(timeout=10)
        with client.consume("work") as consumer:
            for _, message in zip(range(3), consumer, strict=False):
                message.ack()
    found = queues([facts(part) for part in plan_ranges(tmp_path / "data", min_partitions=2)])
    assert found["work"].row("work")["left_why"] == {"acked": 3}


@pytest.mark.spark
def test_all_messages_are_counted_by_topic_and_hour(spark: Any, tmp_path: Path) -> None:
    maker = JournalMaker(tmp_path / "journal")
    for _ in range(100):
        maker.batch(["a", "b", "a"] * 20)
    maker.close()
    line = ["spark", "stats", str(maker.directory), "--json", "--partitions", "3"]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    counts: dict[tuple[str, str], int] = {}
    for message in maker.messages:
        hour = message.time_ns // (3_600 * SECOND_NS)
        name = (f"1970-01-01T{hour:02d}", message.topic)
        counts[name] = counts.get(name, 0) + 1
    assert {(row["hour"], row["topic"]): row["messages"] for row in report["topics"]} == counts
    assert report["queues"] == []


# -- tallies of topics ------------------------------------------------------------------------

Row = tuple[str, int, bytes]  # topic, time in microseconds, payload


def batch(rows: list[Row]) -> Any:
    topics, times, payloads = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "topic": pa.array(topics),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


@given(st.integers(0, (1 << 52) - 1))
def test_a_class_is_at_most_a_sixteenth_wide(value: int) -> None:
    number = int(classes_of([value])[0])
    low, behind = lowest_of(number), lowest_of(number + 1)
    assert low <= value < behind
    assert behind - low <= max(1, low // 16)


def test_a_percentile_is_the_class_where_that_share_ends() -> None:
    classes = Classes()
    classes.add([1] * 98 + [7] * 2)
    assert (classes.percentile(0.5), classes.percentile(0.98), classes.percentile(0.99)) == (
        1,
        1,
        7,
    )
    assert Classes().percentile(0.5) == 0


ROWS: list[Row] = [
    ("ab"[number % 3 == 0], HOUR_US // 2 + number * 1_000_000 * 60, b"x" * number)
    for number in range(1, 100)
]


@pytest.mark.parametrize("size", [1, 7, 99])
def test_counts_of_parts_add_up(size: int) -> None:
    found = {}
    for start in range(0, len(ROWS), size):
        join(found, tallied([batch(ROWS[start : start + size])]))
    whole = tallied([batch(ROWS)])
    assert {key: tally.row(key) for key, tally in found.items()} == {
        key: tally.row(key) for key, tally in whole.items()
    }


def test_a_row_says_sizes_rates_and_gaps() -> None:
    rows = [
        ("t", HOUR_US, b"12"),
        ("t", HOUR_US + 500_000, b"1234"),
        ("t", HOUR_US + 2_000_000, b""),
    ]
    assert tallied([batch(rows)])["t", 1].row(("t", 1)) == {
        "hour": "1970-01-01T01", "topic": "t", "messages": 3, "bytes": 6, "per_s": 1.0,
        "size_min": 0, "size_mean": 2.0, "size_p50": 2, "size_p99": 4, "size_max": 4,
        "gap_mean_s": 1.0, "gap_max_s": 1.5,
    }  # fmt: skip


def test_one_message_has_no_rate() -> None:
    row = tallied([batch([("t", 0, b"")])])["t", 0].row(("t", 0))
    assert (row["per_s"], row["gap_mean_s"], row["gap_max_s"]) == (None, None, None)
