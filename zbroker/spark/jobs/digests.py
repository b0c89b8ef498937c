"""Compares two logs by digests: what is equal is read once, and never leaves its task.

message   -> checksum of topic and payload, mixed with its sequence
1024 sequences of a publisher -> a count and the sum of these: order and cuts do not matter
where these differ -> the messages themselves, in a second pass
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import extend as crc_extend
from google_crc32c import value as crc32c

from zbroker.spark.jobs.sequences import Kind, SequenceFinding

BUCKET: Final = 1_024  # sequences
COLUMNS: Final = ("publisher", "sequence", "position", "topic", "payload")

Bucket = tuple[int, int]  # publisher, sequence // BUCKET
Digests = dict[Bucket, tuple[int, int]]  # messages, sum of their checksums


class MessageDigest(NamedTuple):
    """A message by its name (publisher, sequence) with the checksum of its content."""

    publisher: int
    sequence: int
    position: int
    checksum: int


def digests(batches: Iterable[pa.RecordBatch]) -> Digests:
    """Of all these messages."""
    found: Digests = {}
    for publisher, rows, sums in _checked(batches):
        sequences = rows.column("sequence").to_numpy()
        order = np.argsort(sequences, kind="stable")
        buckets = sequences[order] // BUCKET
        starts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist()]
        totals = np.add.reduceat(_mixed(sequences, sums)[order], starts)
        counts: Any = np.diff([*starts, len(buckets)])
        mine = zip(buckets[starts].tolist(), counts.tolist(), totals.tolist(), strict=True)
        _add(found, {(publisher, bucket): (count, total) for bucket, count, total in mine})
    return found


def merged(parts: Iterable[Digests]) -> Digests:
    """Of all parts together."""
    found: Digests = {}
    for part in parts:
        _add(found, part)
    return found


def _add(found: Digests, more: Digests) -> None:
    for bucket, (count, total) in more.items():
        before = found.get(bucket, (0, 0))
        found[bucket] = (before[0] + count, (before[1] + total) % (1 << 64))


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
        found += (
            MessageDigest(publisher, sequence, position, checksum)
            for sequence, position, checksum in zip(
                sequences, positions, sums.tolist(), strict=True
            )
            if (publisher, sequence // BUCKET) in wanted
        )
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
    sums = (crc_extend(seeds[code], data) for code, data in zip(codes, payloads, strict=True))
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
    """Of each (publisher, sequence) what stands there: position and checksum."""
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
    """Of buckets that nobody looked into: somewhere in these sequences there is a difference."""
    return [
        SequenceFinding("unlike", publisher, bucket * BUCKET, (bucket + 1) * BUCKET - 1, 0)
        for publisher, bucket in buckets
    ]
