"""Looks through a log for what should not be there, or should be; or compares it with another.

one log     each task reads the headers of its range (over a URL: the messages) and gives runs
            of sequences; sequences.py judges them together
two logs    each task gives digests, so equal messages are read once and never leave their task:
            a message has the checksum of topic and payload, mixed with its sequence; 1,024
            sequences of a publisher have a count and the sum of these, so order and cuts do not
            matter; where these differ, the messages are compared in a second pass

spark-submit .../zbroker/cli/spark/audit.py SOURCE [--against OTHER]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import closing
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, SEQUENCED, Batch
from zbroker.log.reader import Gap, Log
from zbroker.spark.directories import seek
from zbroker.spark.jobs.job_runner import Step, Stretch, collected
from zbroker.spark.jobs.sequences import Kind, SequenceFinding, SequenceRun, joined, judge
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import live_batches, replay_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zbroker.client.message import MessageBatch


BUCKET: Final = 1_024  # sequences
COLUMNS: Final = ("publisher", "sequence", "position", "topic", "payload")
LOOKED_INTO: Final = 4_096  # buckets: four million messages, of which the driver holds few bytes

Bucket = tuple[int, int]  # publisher, sequence // BUCKET
Digests = dict[Bucket, tuple[int, int]]  # messages, sum of their checksums


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


def _runs(messages: MessageBatch) -> Iterator[SequenceRun]:
    publisher = messages.head.publisher
    sequences, positions = messages.sequences, messages.positions
    if sequences[-1] - sequences[0] == len(messages) - 1:
        yield SequenceRun(publisher, sequences[0], sequences[-1], positions[0])
        return
    for sequence, position in zip(sequences, positions, strict=True):
        yield SequenceRun(publisher, sequence, sequence, position)


def _scan_directory(part: LogRange) -> ScannedRange:
    runs: list[SequenceRun] = []
    damaged: list[SequenceFinding] = []
    count, done = 0, part.first
    with closing(part.open()) as log:
        _check(log, part)
        for found in log.headers(seek(log, part.first), part.end):
            if isinstance(found, Gap):
                damaged.append(_damage(found.first, found.end))
                done = max(done, found.end)
                continue
            batch = found[0]
            if batch.position > done:
                damaged.append(_damage(done, batch.position))
            done = max(done, batch.end_position)
            if batch.kind in SEQUENCED and batch.position >= part.first:  # else the range before
                runs.append(_run(batch))
                count += batch.taken if batch.kind == KIND_PUBLISH else 0
    if done < part.end:
        damaged.append(_damage(done, part.end))
    return ScannedRange(joined(runs), count, damaged)


def _damage(first: int, end: int) -> SequenceFinding:
    return SequenceFinding("damaged", 0, first, end - 1, first)


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
    ours, theirs = here.sized(parts), there.sized(parts)
    with held(ours), held(theirs):
        found = collected(spark, [*ours, *theirs], digest, step, "digests")
        mine = merged(found[: len(ours)])
        others = merged(found[len(ours) :])
        buckets = unlike(mine, others)
        look = partial(look_into, wanted=frozenset(buckets[:LOOKED_INTO]))
        pairs = collected(spark, [*ours, *theirs], look, step, "details") if buckets else []
    left, right = map(chain.from_iterable, (pairs[: len(ours)], pairs[len(ours) :]))
    findings = [*compared(left, right), *rough(buckets[LOOKED_INTO:])]
    publishers = {publisher for publisher, _ in [*mine, *others]}
    return AuditReport(_count(mine), _count(others), len(publishers), findings)


def digest(part: LogRange) -> Digests:
    """In an executor. Raises: ZBrokerError."""
    return digests(replay_arrow(part, COLUMNS))


def look_into(part: LogRange, wanted: frozenset[Bucket]) -> list[MessageDigest]:
    """Likewise: the messages of some buckets."""
    return seen(replay_arrow(part, COLUMNS), wanted)


def _count(found: Digests) -> int:
    return sum(count for count, _ in found.values())


class MessageDigest(NamedTuple):
    """A message by its name (publisher, sequence) with the checksum of its content."""

    publisher: int
    sequence: int
    position: int
    checksum: int


def digests(batches: Iterable[pa.RecordBatch]) -> Digests:
    """The digests of all these messages."""
    return merged(_digests_of(*messages) for messages in _checked(batches))


def _digests_of(publisher: int, rows: pa.RecordBatch, sums: Any) -> Digests:  # noqa: ANN401
    sequences = rows.column("sequence").to_numpy()
    order = np.argsort(sequences, kind="stable")
    buckets = sequences[order] // BUCKET
    starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
    totals = np.add.reduceat(_mixed(sequences, sums)[order], starts)
    counts: Any = np.diff([*starts, len(buckets)])
    mine = zip(buckets[starts].tolist(), counts.tolist(), totals.tolist(), strict=True)
    return {(publisher, bucket): (count, total) for bucket, count, total in mine}


def merged(parts: Iterable[Digests]) -> Digests:
    """The digests of all parts together."""
    found: Digests = {}
    for part in parts:
        for bucket, (count, total) in part.items():
            before = found.get(bucket, (0, 0))
            found[bucket] = (before[0] + count, (before[1] + total) % (1 << 64))
    return found


def unlike(here: Digests, there: Digests) -> list[Bucket]:
    """Where they differ, in order."""
    return sorted(
        bucket for bucket in here.keys() | there.keys() if here.get(bucket) != there.get(bucket)
    )


def seen(batches: Iterable[pa.RecordBatch], wanted: Set[Bucket]) -> list[MessageDigest]:
    """The messages of some buckets."""
    found: list[MessageDigest] = []
    for publisher, rows, sums in _checked(batches):
        sequences = rows.column("sequence").to_pylist()
        positions = rows.column("position").to_pylist()
        all_of = map(MessageDigest, repeat(publisher), sequences, positions, sums.tolist())
        found += [one for one in all_of if (publisher, one.sequence // BUCKET) in wanted]
    return found


def _checked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch, Any]]:
    """The messages of each publisher, with their checksums."""
    for batch in batches:
        names = batch.column("publisher").dictionary_encode()
        codes = names.indices.to_numpy()
        for code, publisher in enumerate(names.dictionary.to_pylist()):
            one = len(names.dictionary) == 1
            rows = batch if one else batch.take(pa.array(np.flatnonzero(codes == code)))
            yield int(publisher), rows, _checksums(rows)


def _checksums(rows: pa.RecordBatch) -> Any:  # noqa: ANN401 - an array
    """CRC32C of topic and payload."""
    topics = rows.column("topic").dictionary_encode()
    seeds = [crc32c(topic.encode()) for topic in topics.dictionary.to_pylist()]
    payloads = rows.column("payload").to_pylist()
    codes = topics.indices.to_pylist()
    sums = (crc32c(data, seeds[code]) for code, data in zip(codes, payloads, strict=True))
    return np.fromiter(sums, np.uint64, len(payloads))


def _mixed(sequences: Any, sums: Any) -> Any:  # noqa: ANN401 - arrays
    """64 bits that depend on all bits of both: the finalizer of SplitMix64."""
    mixed = (sequences.astype(np.uint64) << np.uint64(32)) ^ sums
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def compared(
    here: Iterable[MessageDigest], there: Iterable[MessageDigest]
) -> list[SequenceFinding]:
    """What one has and the other lacks, or has differently; neighbours are one finding."""
    mine, others = _by_name(here), _by_name(there)
    found: list[SequenceFinding] = []
    for name in sorted(mine.keys() | others.keys()):
        kind = _kind(mine.get(name), others.get(name))
        if kind is None:
            continue
        publisher, sequence = name
        position = min(mine.get(name) or others[name])[0]
        before = found[-1] if found else None
        if before and before[:2] == (kind, publisher) and before.last == sequence - 1:
            found[-1] = before._replace(last=sequence)
        else:
            found.append(SequenceFinding(kind, publisher, sequence, sequence, position))
    return found


def _by_name(messages: Iterable[MessageDigest]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Position and checksum of each message with this (publisher, sequence)."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one in messages:
        found.setdefault((one.publisher, one.sequence), []).append((one.position, one.checksum))
    return found


def _kind(mine: list[tuple[int, int]] | None, others: list[tuple[int, int]] | None) -> Kind | None:
    if others is None:
        return "only_here"
    if mine is None:
        return "only_there"
    same = sorted(sum_ for _, sum_ in mine) == sorted(sum_ for _, sum_ in others)
    return None if same else "different"


def rough(buckets: Iterable[Bucket]) -> list[SequenceFinding]:
    """Findings for buckets that were not looked into: they differ somewhere."""
    return [
        SequenceFinding("unlike", publisher, bucket * BUCKET, (bucket + 1) * BUCKET - 1, 0)
        for publisher, bucket in buckets
    ]
