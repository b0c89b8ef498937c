"""The part of a batch that a link with topics or a filter carries. Pure.

    no message is wanted   nothing
    all are                the batch as it is
    some are               each run of wanted messages as a batch of its own, with these messages
                           only, at their positions and sequences

A batch without messages of its own is wanted by its topics. A run keeps the CRC of the whole body
as its origin wrote it (content CRC), so every instance can compare it. A batch with more runs than
PARTS_MAX, with columns that are not known here, or with a body that cannot be read, goes as it is:
then a destination gets more than it wants.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from zbroker.checksums import crc32c
from zbroker.errors import ClientError
from zbroker.exchanges import route_column
from zbroker.link_topics import LinkTopics
from zbroker.log.format import (
    COLUMN_CONTENT_CRC,
    COLUMN_ORIGIN_TIME,
    COLUMN_ROUTES,
    FLAG_SHOWS,
    FLAG_UNIT,
    FLAG_ZSTD,
    KIND_PUBLISH,
    KIND_STAGED,
    OF_ALL_TOPICS,
    Batch,
    content_column,
)
from zbroker.replication.link_filter import LinkFilter, UnpackedBody
from zbroker.wire import bodies
from zbroker.wire.messages import Columns

PARTS_MAX: Final = 10_000  # each costs a record of its own
UNIT_PARTS_MAX: Final = 250  # of a batch in a unit, which is one message
_TIME_BYTES: Final = 8
_KNOWN: Final = frozenset({COLUMN_CONTENT_CRC, COLUMN_ORIGIN_TIME, COLUMN_ROUTES})


def wanted_parts(batch: Batch, wants: LinkTopics, content: LinkFilter | None = None) -> list[Batch]:
    """What of a batch is wanted, in order; its body is there. content: the filter of `wants`."""
    topics = batch.topics
    if batch.kind == KIND_STAGED or batch.kind in OF_ALL_TOPICS:
        return []  # staged messages come where they are committed; a copy has topics, not queues
    all_topics = wants.all_of(topics)
    if not all_topics and not wants.any_of(topics):
        return []
    if batch.kind != KIND_PUBLISH or batch.flags & FLAG_SHOWS or (all_topics and content is None):
        return [batch]
    body = UnpackedBody(batch)
    try:
        picks = _on_topics(batch, wants)
        if content is not None and picks:
            picks = content.picks(batch, picks, body)
        if all_topics and len(picks) == batch.taken:
            return [batch]
        if picks and not all(tag in _KNOWN for tag, _ in batch.extra):
            return [batch]
        runs = list(_runs(picks))
        if len(runs) > (UNIT_PARTS_MAX if batch.flags & FLAG_UNIT else PARTS_MAX):
            return [batch]
        return _cut(batch, runs, body) if runs else []
    except ClientError:
        return [batch]  # a body that cannot be read is sent as it is stored


def _on_topics(batch: Batch, wants: LinkTopics) -> Sequence[int]:
    """The messages that count and whose topic is wanted, by their places in the body."""
    places = range(batch.skip, batch.count - batch.cut)
    wanted = [wants(topic) for topic in batch.topics]
    if False not in wanted:
        return places
    index = bodies.topic_indexes(batch.columns, batch.count)
    return [place for place in places if wanted[index[place]]]


def _runs(picks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and end of each run of places that follow on each other."""
    first = end = -1
    for place in picks:
        if place != end:
            if end >= 0:
                yield first, end
            first = place
        end = place + 1
    if end >= 0:
        yield first, end


def _cut(batch: Batch, runs: Sequence[tuple[int, int]], body: UnpackedBody) -> list[Batch]:
    """Raises: ClientError, if the body or a column cannot be read."""
    messages = body.messages
    index = bodies.topic_indexes(batch.columns, batch.count)
    extras = bodies.extras(batch.columns, batch.count)
    parts: list[Batch] = []
    for first, end in runs:
        packed = bodies.pack(messages[first:end])
        ahead = first - batch.skip
        topics, columns, last_ns = _columns(batch, index, first, end)
        if extras is not None:
            columns = columns or Columns()
            extras.put(columns, range(first, end))
        parts.append(
            replace(
                batch, position=batch.position + ahead, sequence=batch.sequence + ahead,
                prev=batch.sequence + ahead - 1 if ahead else batch.prev, count=end - first,
                skip=0, cut=0, log_time=last_ns, topics=topics, body=packed,
                body_crc=crc32c(packed), body_length=len(packed), flags=batch.flags & ~FLAG_ZSTD,
                origin_position=batch.origin_position + ahead,
                columns=None if columns == Columns() else columns,
                extra=[
                    *_times(batch, first, end), content_column(batch.content_crc),
                    *route_column.part(batch.extra, batch.count, first, end),
                ],
            )
        )  # fmt: skip
    return parts


def _columns(
    batch: Batch, index: Sequence[int], first: int, end: int
) -> tuple[list[str], Columns | None, int]:
    """Topics, columns without keys and headers, and log time of a run."""
    used = list(dict.fromkeys(index[first:end]))
    topics = [batch.topics[number] for number in used]
    found, last_ns = Columns(), batch.log_time
    if len(used) > 1:
        places = {number: place for place, number in enumerate(used)}
        found.index = bodies.to_little(array("H", [places[one] for one in index[first:end]]))
    if batch.columns is not None and batch.columns.time is not None:
        times = bodies.times(batch.columns.time)[first:end]
        found.time, last_ns = bodies.to_little(times), times[-1]
    return topics, None if found == Columns() else found, last_ns


def _times(batch: Batch, first: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The column with times at the origin: one for each message, or one for all."""
    for tag, data in batch.extra:
        if tag == COLUMN_ORIGIN_TIME:
            each = len(data) == _TIME_BYTES * batch.count and batch.count > 1
            yield tag, data[_TIME_BYTES * first : _TIME_BYTES * end] if each else data
