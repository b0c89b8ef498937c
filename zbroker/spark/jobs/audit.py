"""Looks through a log for what should not be there, or should be; or compares it with another.

one log     each task reads the headers of its range (over a URL: the messages) and gives runs
            of sequences; sequences.py judges them together
two logs    each task gives digests; digests.py finds where they differ

spark-submit .../zbroker/spark/jobs/audit.py SOURCE [--against OTHER]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, SEQUENCED, Batch
from zbroker.log.reader import Gap, Log
from zbroker.spark.directories import seek
from zbroker.spark.jobs.job_runner import Step, collected
from zbroker.spark.jobs.sequences import SequenceFinding, SequenceRun, joined, judge
from zbroker.spark.jobs.stretch import Stretch
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import live_batches, replay_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zbroker.client.message import Message
    from zbroker.spark.jobs.digests import Bucket, Digests, MessageDigest

LOOKED_INTO: Final = 4_096  # buckets: four million messages, of which the driver holds few bytes


class AuditReport(NamedTuple):
    """Messages that were looked at, here and (if there is one) in the other log."""

    messages: int
    others: int
    publishers: int
    findings: list[SequenceFinding]


class ScannedRange(NamedTuple):
    """What one task found in its range; `damaged`: what could not be read."""

    runs: list[SequenceRun]
    messages: int
    damaged: list[SequenceFinding]


def audit(spark: SparkSession, stretch: Stretch, step: Step, parts: int = 1) -> AuditReport:
    """The sequences of all publishers. Raises: ZBrokerError, as `plan_ranges` and `replay`."""
    if stretch.topic is not None or stretch.filter:
        text = "sequences run over all topics, so part of them has gaps"
        raise ClientError("bad_field", text, "leave topic and filter out, or compare two logs")
    ranges = stretch.sized(parts)
    with held(ranges):
        found = collected(spark, ranges, scan, step, "ranges")
    runs = [run for part in found for run in part.runs]
    damaged = [finding for part in found for finding in part.damaged]
    messages = sum(part.messages for part in found)
    return AuditReport(messages, 0, len({run.publisher for run in runs}), [*judge(runs), *damaged])


def scan(part: LogRange) -> ScannedRange:
    """In an executor. Raises: ZBrokerError."""
    return _scan_live(part) if part.is_live else _scan_directory(part)


def _scan_live(part: LogRange) -> ScannedRange:
    runs: list[SequenceRun] = []
    count = 0
    for messages in live_batches(part):
        runs += _runs(messages)
        count += len(messages)
    return ScannedRange(joined(runs), count, [])


def _runs(messages: list[Message]) -> Iterator[SequenceRun]:
    first, last = messages[0], messages[-1]
    if last.sequence - first.sequence == len(messages) - 1:
        yield SequenceRun(first.publisher, first.sequence, last.sequence, first.position)
        return
    for one in messages:
        yield SequenceRun(one.publisher, one.sequence, one.sequence, one.position)


def _scan_directory(part: LogRange) -> ScannedRange:
    runs: list[SequenceRun] = []
    damaged: list[SequenceFinding] = []
    count, done = 0, part.first
    with closing(Log(Path(part.source), Path(part.archive) if part.archive else None)) as log:
        _check(log, part)
        for found in log.headers(seek(log, part.first), part.end):
            if isinstance(found, Gap):
                damaged.append(
                    SequenceFinding("damaged", 0, found.first, found.end - 1, found.first)
                )
                done = max(done, found.end)
                continue
            batch = found[0]
            if batch.position > done:
                damaged.append(SequenceFinding("damaged", 0, done, batch.position - 1, done))
            done = max(done, batch.end_position)
            if batch.kind in SEQUENCED and batch.position >= part.first:  # else the range before
                runs.append(_run(batch))
                count += batch.taken if batch.kind == KIND_PUBLISH else 0
    if done < part.end:
        damaged.append(SequenceFinding("damaged", 0, done, part.end - 1, done))
    return ScannedRange(joined(runs), count, damaged)


def _check(log: Log, part: LogRange) -> None:
    """Raises: ClientError bookmark_not_found, bookmark_expired."""
    if (log.instance, log.generation) != (part.instance, part.generation):
        text = f"{part.source} has the log of {log.instance:016x}.{log.generation} now"
        raise ClientError("bookmark_not_found", text)
    if part.first < log.first_position:
        raise ClientError("bookmark_expired", f"{log.first_position} is the oldest position kept")


def _run(batch: Batch) -> SequenceRun:
    last = batch.sequence + batch.taken - 1
    late = bool(batch.flags & FLAG_LATE)
    return SequenceRun(batch.publisher, batch.sequence, last, batch.position, batch.prev, late)


# -- two logs ---------------------------------------------------------------------------------


def compare(
    spark: SparkSession, here: Stretch, there: Stretch, step: Step, parts: int = 1
) -> AuditReport:
    """What one has and the other lacks, or has differently: by publisher and sequence.

    Raises: ZBrokerError, as `plan_ranges` and `replay`.
    """
    from zbroker.spark.jobs import digests

    ours, theirs = here.sized(parts), there.sized(parts)
    with held(ours), held(theirs):
        found = collected(spark, [*ours, *theirs], digest, step, "digests")
        mine = digests.merged(found[: len(ours)])
        others = digests.merged(found[len(ours) :])
        buckets = digests.unlike(mine, others)
        look = partial(look_into, wanted=frozenset(buckets[:LOOKED_INTO]))
        pairs = collected(spark, [*ours, *theirs], look, step, "details") if buckets else []
    left = [one for some in pairs[: len(ours)] for one in some]
    right = [one for some in pairs[len(ours) :] for one in some]
    findings = [*digests.compared(left, right), *digests.rough(buckets[LOOKED_INTO:])]
    publishers = {publisher for publisher, _ in [*mine, *others]}
    return AuditReport(_count(mine), _count(others), len(publishers), findings)


def digest(part: LogRange) -> Digests:
    """In an executor. Raises: ZBrokerError."""
    from zbroker.spark.jobs import digests

    return digests.digests(replay_arrow(part, digests.COLUMNS))


def look_into(part: LogRange, wanted: frozenset[Bucket]) -> list[MessageDigest]:
    """Likewise: the messages of some buckets."""
    from zbroker.spark.jobs import digests

    return digests.seen(replay_arrow(part, digests.COLUMNS), wanted)


def _count(found: Digests) -> int:
    return sum(count for count, _ in found.values())
