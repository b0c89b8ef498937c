"""Which messages of a batch a range wants: by position, topic and content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from zbroker import topics
from zbroker.errors import ClientError
from zbroker.formats import reader
from zbroker.limits import STORED_MAX_BYTES
from zbroker.log.batch_index import BatchMetadata, plain_of
from zbroker.log.format import Batch
from zbroker.topics import Matcher
from zbroker.wire import bodies

if TYPE_CHECKING:
    from zbroker.filters import Test
    from zbroker.spark.ranges import LogRange


def matcher(topic: str | None, regex: bool) -> Matcher | None:
    """None for all topics. Raises: ClientError bad_topic, bad_filter."""
    return None if topic is None else topics.matcher(topic, regex=regex)


def check_filter(text: str, type_: str) -> None:
    """Raises: ClientError bad_filter, bad_field."""
    try:
        reader(type_)
    except ValueError as error:
        raise ClientError("bad_field", str(error)) from None
    if text:
        _test(text, type_)


@lru_cache(maxsize=16)
def _test(text: str, type_: str) -> Test:
    from zbroker.filters import compile_filter  # most ranges have none

    return compile_filter(text).test(type_)


class PickedMessages(NamedTuple):
    """Indexes of messages in a body, rising; and its payloads, if they had to be looked at."""

    at: Sequence[int]
    payloads: list[bytes] | None


class RangeSelection:
    """What a range wants of the batches it is made of."""

    def __init__(self, part: LogRange) -> None:
        """Raises: ClientError bad_topic, bad_filter, bad_field."""
        self.topics = matcher(part.topic, part.regex)
        self._first, self._end = part.first, part.end
        check_filter(part.filter, part.filter_type)
        self._test = _test(part.filter, part.filter_type) if part.filter else None
        self._type = part.filter_type

    def picks(self, batch: Batch) -> PickedMessages:
        """The messages of `batch` that are wanted."""
        first = batch.skip + max(self._first - batch.position, 0)
        last = batch.count - batch.cut - max(batch.end_position - self._end, 0)
        at: Sequence[int] = range(first, last)
        if self.topics is not None and not all(map(self.topics, batch.topics)):
            at = _of_topics(batch, at, self.topics)
        return (
            PickedMessages(at, None)
            if self._test is None
            else self._matching(batch, at, self._test)
        )

    def _matching(self, batch: Batch, at: Sequence[int], test: Test) -> PickedMessages:
        from zbroker.filters import Payloads

        plain = plain_of(batch)
        if not at or not test.maybe(plain):
            return PickedMessages((), None)
        payloads = bodies.unpack(plain, None, batch.count, STORED_MAX_BYTES)
        return PickedMessages(
            test.picks(Payloads(self._type, payloads), at, BatchMetadata(batch)), payloads
        )


def _of_topics(batch: Batch, at: Sequence[int], wants: Callable[[str], bool]) -> Sequence[int]:
    wanted = list(map(wants, batch.topics))
    if batch.columns is None or batch.columns.index is None:
        return at if any(wanted[:1]) else ()
    index = bodies.indexes(batch.columns.index)
    return [i for i in at if wanted[index[i]]]
