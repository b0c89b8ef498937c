"""Splits the log between two positions by bytes: what Spark plans its partitions with.

The first WALK_MAX batch headers are walked, so small ranges are split at batches. Beyond that a few
headers at the start of each segment are a sample of its density, so the bytes are estimates there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from itertools import islice, pairwise
from typing import Final, NamedTuple

from zbroker.delivery.points import Point
from zbroker.log.format import DATA_AT, Batch
from zbroker.log.reader import Cursor, Gap, Log

WALK_MAX: Final = 20_000  # headers read for one plan, about 0.2 s in slices
SAMPLE: Final = 64  # headers from which the density of a segment is estimated
SLICE: Final = 32  # headers between two breaks

Ranges = list[tuple[int, int, int]]


class RangeMark(NamedTuple):
    """`total` bytes are between the start and `position`. exact: no batch begins in between."""

    position: int
    total: int
    exact: bool


def plan(log: Log, start: Point, end: int, parts: int) -> Generator[None, None, Ranges]:
    """Half-open ranges [from, to, bytes] that cover `start` to `end`, at most `parts` of them.

    Takes a break at each `yield`, so that the caller can do other things.
    """
    log.refresh()
    if start.position >= end:
        return []
    marks = [RangeMark(start.position, 0, True)]
    cursor = yield from _walk(log, log.seek(start.position, start.serial, start.offset), end, marks)
    yield from _leap(log, cursor, end, marks)
    return split(marks, parts)


def _walk(
    log: Log, cursor: Cursor, end: int, marks: list[RangeMark]
) -> Generator[None, None, Cursor]:
    """Adds a mark after each batch; returns where it stopped."""
    for count, item in enumerate(log.headers(cursor, end)):
        if isinstance(item, Gap):
            continue
        batch, cursor = item
        if count >= WALK_MAX:
            break
        size = batch.header_length + batch.body_length
        marks.append(RangeMark(min(batch.end_position, end), marks[-1].total + size, True))
        if count % SLICE == 0:
            yield
    return cursor


def _leap(
    log: Log, cursor: Cursor, end: int, marks: list[RangeMark]
) -> Generator[None, None, None]:
    """Adds a mark at the start of each further segment, and at the end."""
    sample = _sample(log, cursor, end)
    while marks[-1].position < end:
        cursor = Cursor(cursor.serial + 1, DATA_AT, marks[-1].position)
        following = _sample(log, cursor, end)
        upto = following[0].position if following else end
        marks.append(_estimate(marks[-1], upto, sample))
        sample = following
        yield


def _sample(log: Log, cursor: Cursor, end: int) -> list[Batch]:
    """The first batches from `cursor` on, if there are any in its segment."""
    items = islice(log.headers(cursor, end), SAMPLE)
    pairs = [item for item in items if not isinstance(item, Gap)]
    return [batch for batch, at in pairs if at.serial == cursor.serial]


def _estimate(mark: RangeMark, upto: int, sample: list[Batch]) -> RangeMark:
    size = sum(batch.header_length + batch.body_length for batch in sample)
    per_position = size / max(1, sum(batch.taken for batch in sample))
    return RangeMark(upto, mark.total + int((upto - mark.position) * per_position), False)


def split(marks: list[RangeMark], parts: int) -> Ranges:
    """Ranges of about the same number of bytes between the first mark and the last."""
    first, last = marks[0], marks[-1]
    cuts = [first, *(_cut(marks, last.total * part // parts) for part in range(1, parts)), last]
    return [
        (low.position, high.position, high.total - low.total)
        for low, high in pairwise(cuts)
        if low.position < high.position
    ]


def _cut(marks: list[RangeMark], total: int) -> RangeMark:
    """The place with about `total` bytes before it: after a batch where those are known."""
    at = bisect_left(marks, total, key=lambda mark: mark.total)
    mark = marks[at]
    if at == 0 or mark.exact or mark.total == total:
        return mark
    before = marks[at - 1]
    share = (total - before.total) / (mark.total - before.total)
    return RangeMark(before.position + int((mark.position - before.position) * share), total, False)
