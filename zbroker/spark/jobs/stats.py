"""Counts what is in a log: messages by topic and hour, and what became of messages of queues.

Queues are told of their records, which only a directory gives.

    spark-submit .../zbroker/spark/jobs/stats.py SOURCE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zbroker.spark.jobs.job_runner import Step, collected
from zbroker.spark.jobs.stretch import Stretch
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import replay_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zbroker.spark.jobs.queue_ages import RangeFacts
    from zbroker.spark.jobs.tallies import Tallies


class StatsReport(NamedTuple):
    """Rows with stable keys: by hour and topic; by queue."""

    topics: list[dict[str, Any]]
    queues: list[dict[str, Any]]


def stats(spark: SparkSession, stretch: Stretch, step: Step, parts: int = 1) -> StatsReport:
    """Of the whole stretch. Raises: ZBrokerError, as `plan_ranges` and `replay`."""
    from zbroker.spark.jobs import queue_ages, tallies

    ranges = stretch.sized(parts)
    with held(ranges):
        counted = collected(spark, ranges, count, step, "ranges")
    found: Tallies = {}
    for part, _ in counted:
        tallies.join(found, part)
    topics = [found[group].row(group) for group in sorted(found, key=lambda one: (one[1], one[0]))]
    told = queue_ages.queues([facts for _, facts in counted if facts is not None])
    return StatsReport(topics, [queue.row(name) for name, queue in told.items()])


def count(part: LogRange) -> tuple[Tallies, RangeFacts | None]:
    """In an executor. Raises: ZBrokerError."""
    from zbroker.spark.jobs import queue_ages, tallies

    found = tallies.tallied(replay_arrow(part, tallies.COLUMNS))
    return found, None if part.is_live else queue_ages.facts(part)
