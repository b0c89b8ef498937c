"""The batches of one range of a directory, and the messages that its selection picks of them.

Everything that the range selects is read, or there is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker import topics
from zbroker.errors import ClientError
from zbroker.formats import reader
from zbroker.limits import MIB, STORED_MAX_BYTES
from zbroker.log.batch_index import BatchMetadata, plain_of
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Item, Log, Skipped
from zbroker.spark.directories import gap_error, seek
from zbroker.topics import Matcher
from zbroker.wire import bodies

if TYPE_CHECKING:
    from zbroker.filters import Test
    from zbroker.spark.ranges import LogRange

READ_BYTES: Final = 1 * MIB  # a few batches: what one call of the reader returns


def batches(part: LogRange) -> Iterator[tuple[Batch, PickedMessages]]:
    """Each batch with something of the range in it, and what that is.

    Raises: ZBrokerError gap, bookmark_expired, bookmark_not_found, bad_frame.
    """
    selection = RangeSelection(part)
    with closing(part.open()) as log:
        _check(log, part)
        for batch in _read(log, part, selection.topics):
            picked = selection.picks(batch)
            if picked.at:
                yield batch, picked


def _check(log: Log, part: LogRange) -> None:
    if log.instance != part.instance:
        text = f"{part.source} has the log of {log.instance:016x}, not {part.instance:016x}"
        raise ClientError("bookmark_not_found", text)
    if part.first < log.first_position:
        text = f"the range begins at {part.first}, the oldest position kept is {log.first_position}"
        raise ClientError("bookmark_expired", text)


def _read(log: Log, part: LogRange, wants: Matcher | None) -> Iterator[Batch]:
    cursor = seek(log, part.first)
    done = part.first
    while done < part.end:
        found, cursor = log.read_wanted(cursor, part.end, READ_BYTES, wants)
        for item in found:
            done = _follows(item, done)
            if isinstance(item, Batch) and item.kind == KIND_PUBLISH:
                yield item
        if not found and done < part.end:
            raise ClientError("gap", f"the log ends at position {done}, the range at {part.end}")


def _follows(item: Item, done: int) -> int:
    """The position after `item`, which must go on where the one before it ended."""
    if isinstance(item, Gap):
        raise gap_error(item)
    if isinstance(item, Skipped):
        first, end = item.first, item.end
    else:
        first, end = item.position, item.end_position
    if first > done:
        raise ClientError("gap", f"positions {done} to {first - 1} are not in the log")
    return end


def matcher(topic: str | None, regex: bool) -> Matcher | None:
    """None for all topics. Raises: ClientError bad_topic, bad_filter."""
    return None if topic is None else topics.matcher(topic, regex=regex)


@lru_cache(maxsize=16)
def content_test(text: str, type_: str) -> Test | None:
    """The filter of this text, None for "". Raises: ClientError bad_filter, bad_field."""
    try:
        reader(type_)
    except ValueError as error:
        raise ClientError("bad_field", str(error)) from None
    if not text:
        return None
    from zbroker.filters import compile_filter  # most ranges have none

    return compile_filter(text).test(type_)


class PickedMessages(NamedTuple):
    """Indexes of messages in a body, rising; and its payloads, if they had to be looked at."""

    at: Sequence[int]
    payloads: list[bytes] | None


class RangeSelection:
    """Which messages of its batches a range selects: by position, topic and content."""

    def __init__(self, part: LogRange) -> None:
        """Raises: ClientError bad_topic, bad_filter, bad_field."""
        self.topics = matcher(part.topic, part.regex)
        self._first, self._end = part.first, part.end
        self._test = content_test(part.filter, part.filter_type)
        self._type = part.filter_type

    def picks(self, batch: Batch) -> PickedMessages:
        """The messages of `batch` that are wanted."""
        first = batch.skip + max(self._first - batch.position, 0)
        last = batch.count - batch.cut - max(batch.end_position - self._end, 0)
        at: Sequence[int] = range(first, last)
        if self.topics is not None and not all(map(self.topics, batch.topics)):
            at = _of_topics(batch, at, self.topics)
        if self._test is None:
            return PickedMessages(at, None)
        return self._matching(batch, at, self._test)

    def _matching(self, batch: Batch, at: Sequence[int], test: Test) -> PickedMessages:
        from zbroker.filters import Payloads

        plain = plain_of(batch)
        if not at or not test.maybe(plain):
            return PickedMessages((), None)
        payloads = bodies.unpack(plain, None, batch.count, STORED_MAX_BYTES)
        found = test.picks(Payloads(self._type, payloads), at, BatchMetadata(batch))
        return PickedMessages(found, payloads)


def _of_topics(batch: Batch, at: Sequence[int], wants: Callable[[str], bool]) -> Sequence[int]:
    wanted = list(map(wants, batch.topics))
    if batch.columns is None or batch.columns.index is None:
        return at if any(wanted[:1]) else ()
    index = bodies.indexes(batch.columns.index)
    return [i for i in at if wanted[index[i]]]
