"""Which messages of a batch a subscription wants and may have: by topic, content, span. Pure.

The matches of a filter are kept with the block, so that all subscriptions with the same filter look
once; payloads are decoded once for all filters. Messages that a client may not have are left out
like those it does not want; a body with any of them in it never goes out as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence

from zbroker.access.core import Permit
from zbroker.blocks.frame_builder import Block, MessageSpan, counting, picks_of
from zbroker.filters import Filter, Payloads
from zbroker.filters.limits import STEP_BYTES_MAX
from zbroker.log.batch_index import plain_of
from zbroker.log.format import Batch
from zbroker.topics import Matcher
from zbroker.wire import bodies

TypeOf = Callable[[str], str]  # the type of the payloads of a topic


class StartSelection:
    """Topics and content that are wanted. text: of the filter, "" without one.

    permit: what of it may be had; None: everything.
    """

    __slots__ = ("_filter", "_key", "permit", "steps", "text", "topics")

    def __init__(self, topics: Matcher, content: Filter | None = None) -> None:
        self.topics, self._filter = topics, content
        self.text = content.text if content is not None else ""
        self.steps = content.steps if content is not None else 0  # for each byte that it looks at
        self.allow(None)

    def allow(self, permit: Permit | None) -> bool:
        """Only what `permit` says goes out from now on; True if that is not what it was."""
        before = getattr(self, "_key", None)
        self.permit = None if permit is None or permit.everything else permit
        content = self._filter.key if self._filter is not None else ""
        self._key = (content, self.permit.key if self.permit is not None else None)
        return self._key != before

    def wanted(self, batch: Batch) -> tuple[bool, ...]:
        """For each topic of the batch."""
        if self.permit is None:
            return tuple(map(self.topics, batch.topics))
        verdict = self.permit.verdict
        return tuple([self.topics(topic) and verdict(topic) != "no" for topic in batch.topics])

    def sees_all(self, batch: Batch) -> bool:
        """True if every message of the batch may be had, so that its body may go out as it is."""
        permit = self.permit
        return permit is None or all(permit.verdict(topic) == "all" for topic in batch.topics)

    def _looks_into(self, batch: Batch) -> bool:
        """True if content decides what of the batch may be had."""
        permit = self.permit
        return permit is not None and any(permit.verdict(t) == "some" for t in batch.topics)

    def _is_dear(self, messages: Sequence[bytes]) -> bool:
        """True if only what is asked for now is looked at, and the rest of a batch later."""
        return self.steps * sum(map(len, messages)) > STEP_BYTES_MAX

    def picks(
        self, block: Block, at: int, span: MessageSpan, type_of: TypeOf
    ) -> tuple[Sequence[int], Hashable]:
        """The messages of `span` in batch `at`; and a key, if they are all that the batch has."""
        batch = block.batch(at)
        wanted = self.wanted(batch)
        if True not in wanted:
            return (), None
        whole, name = counting(batch), (at, wanted, self._key)
        key = name if span == whole else None
        permit = self.permit if self._looks_into(batch) else None
        if self._filter is None and permit is None:
            return picks_of(batch, span, wanted), key
        found = block.picks.get(name)
        if found is None:
            some = span != whole and self._is_dear(block.unpacked(at))
            looked_at = span if some else whole
            found = list(picks_of(batch, looked_at, wanted))
            if permit is not None:
                found = _permitted(block, at, found, permit, type_of)
            if self._filter is not None:
                found = _found(block, at, found, self._filter, type_of)
            if some:
                return found, None
            block.picks[name] = found
        return (found if key is not None else cut(found, span)), key


def slice_of(block: Block, at: int, first: int, cost: tuple[int, int]) -> tuple[int, int]:
    """The message of batch `at` before which to make a break, and what is left of a turn's work.

    It goes on from `first`, by one message at least. cost: what all filters together do for each
    byte, and what is left of the turn's work.
    """
    steps, left = cost
    data = block.unpacked(at)
    if (most := steps * sum(map(len, data[first:]))) <= left:
        return len(data), left - most
    for i in range(first, len(data)):
        left -= steps * len(data[i])
        if left <= 0:
            return i + 1, left
    return len(data), left


def cut(picks: Sequence[int], span: MessageSpan) -> Sequence[int]:
    """Those of `picks` that are in `span`."""
    return picks[bisect_left(picks, span.first) : bisect_left(picks, span.last)]


def _permitted(
    block: Block, at: int, picks: Sequence[int], permit: Permit, type_of: TypeOf
) -> list[int]:
    """Those of `picks`, on topics of which some may be had, that may be."""
    batch = block.batch(at)
    index = bodies.topic_indexes(batch.columns, batch.count)
    permitted: list[int] = []
    for number, topic in enumerate(batch.topics):
        same = [pick for pick in picks if index[pick] == number]
        if same and permit.verdict(topic) == "some":
            payloads = _payloads(block, at, type_of(topic))
            same = permit.content(topic).picks(payloads, same, block.about(at))
        permitted += same
    return sorted(permitted)


def _found(
    block: Block, at: int, picks: Sequence[int], content: Filter, type_of: TypeOf
) -> list[int]:
    """Those of `picks` that a filter is true for."""
    batch = block.batch(at)
    types = [type_of(topic) for topic in batch.topics]
    kinds = set(types)
    if len(kinds) == 1:
        return _of_type(block, at, picks, content, kinds.pop())
    index, found = bodies.topic_indexes(batch.columns, batch.count), []
    for kind in kinds:
        same = [pick for pick in picks if types[index[pick]] == kind]
        found += _of_type(block, at, same, content, kind)
    return sorted(found)


def _of_type(block: Block, at: int, picks: Sequence[int], content: Filter, kind: str) -> list[int]:
    batch, test = block.batch(at), content.test(kind)
    if not picks:
        return []
    if (at, kind) not in block.payloads and not test.maybe(plain_of(batch)):
        return []
    return test.picks(_payloads(block, at, kind), picks, block.about(at))


def _payloads(block: Block, at: int, kind: str) -> Payloads:
    """What the messages of a batch hold, decoded once for all filters."""
    payloads = block.payloads.get((at, kind))
    if payloads is None:
        payloads = block.payloads[at, kind] = Payloads(kind, block.unpacked(at))
    return payloads
