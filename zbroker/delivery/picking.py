"""Which messages of a batch a subscription wants: by topic, by content, within a span. Pure.

What a filter finds in a batch is kept with the block, so that all subscriptions with the same
filter look once; payloads are decoded once for all filters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence

from zbroker.delivery.blocks import (
    PLAIN_MAX_BYTES,
    Block,
    Span,
    counting,
    picks_of,
    time_of,
    topic_of,
)
from zbroker.filters import Filter, Payloads
from zbroker.ids import format_bookmark
from zbroker.journal.format import FLAG_ZSTD, Batch
from zbroker.topics import Matcher
from zbroker.wire import bodies


class Wish:
    """Topics and content that are wanted. text: of the filter, "" without one."""

    __slots__ = ("_filter", "text", "topics")

    def __init__(self, topics: Matcher, content: Filter | None = None) -> None:
        self.topics = topics
        self._filter = content
        self.text = content.text if content is not None else ""

    def wanted(self, batch: Batch) -> tuple[bool, ...]:
        """For each topic of the batch."""
        return tuple(map(self.topics, batch.topics))

    def picks(
        self, block: Block, at: int, span: Span, type_of: Callable[[str], str]
    ) -> tuple[Sequence[int], Hashable]:
        """The messages of `span` in batch `at`; and a key, if they are all that the batch has."""
        batch = block.batch(at)
        wanted = self.wanted(batch)
        if True not in wanted:
            return (), None
        whole = counting(batch)
        key = (at, wanted, self.text) if span == whole else None
        if self._filter is None:
            return picks_of(batch, span, wanted), key
        name = (at, wanted, self.text)
        found = block.picks.get(name)
        if found is None:
            found = _found(block, at, picks_of(batch, whole, wanted), self._filter, type_of)
            block.picks[name] = found
        return (found if key is not None else cut(found, span)), key


def cut(picks: Sequence[int], span: Span) -> Sequence[int]:
    """Those of `picks` that stand in `span`."""
    return picks[bisect_left(picks, span.first) : bisect_left(picks, span.last)]


def _found(
    block: Block, at: int, picks: Sequence[int], content: Filter, type_of: Callable[[str], str]
) -> list[int]:
    """Those of `picks` that a filter is true for."""
    batch = block.batch(at)
    kinds = {type_of(topic) for topic in batch.topics}
    if len(kinds) == 1:
        return _of_type(block, at, picks, content, kinds.pop())
    found: list[int] = []
    for kind in kinds:
        same = [pick for pick in picks if type_of(topic_of(batch, pick)) == kind]
        found += _of_type(block, at, same, content, kind)
    return sorted(found)


def _of_type(block: Block, at: int, picks: Sequence[int], content: Filter, kind: str) -> list[int]:
    batch, test = block.batch(at), content.test(kind)
    if not picks:
        return []
    payloads = block.payloads.get((at, kind))
    if payloads is None:
        if not test.maybe(_plain(batch)):
            return []
        payloads = block.payloads[at, kind] = Payloads(kind, block.unpacked(at))
    return test.picks(payloads, picks, _About(batch))


def _plain(batch: Batch) -> bytes | memoryview:
    if not batch.flags & FLAG_ZSTD:
        return batch.body
    return bodies.inflate(batch.body, bodies.CODEC_ZSTD, PLAIN_MAX_BYTES)


class _About:
    """What a filter may ask about a message itself."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def topic(self, i: int) -> str:
        return topic_of(self._batch, i)

    def time_ns(self, i: int) -> int:
        return time_of(self._batch, i)

    def bookmark(self, i: int) -> str:
        """Nothing that is not recorded has one."""
        batch = self._batch
        if not batch.position:
            return ""
        return format_bookmark(batch.publisher, batch.sequence + i - batch.skip)
