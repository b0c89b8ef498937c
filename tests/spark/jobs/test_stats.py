"""Claims about stats: topics by hour, and what became of messages of a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.cli.main import main
from zbroker.spark import plan_ranges
from zbroker.spark.jobs.queue_ages import QueueRuns, RangeFacts, facts, queues

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
