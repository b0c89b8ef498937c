"""Which messages of a topic are permitted where filters decide. Pure.

It fails closed: no filter that names a field permits a payload that is not of its type, and every
deny that names one applies to it. The same holds for a payload of type `auto` that is not JSON, and
for every one of type `binary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zbroker.filters import Filter, MessageMetadata, Payloads

_MAYBE_NOTHING: Final = frozenset({"auto", "binary"})  # these read as None what they cannot read


class Clause:
    """The filter of a grant."""

    __slots__ = ("_filter", "looks", "text")

    def __init__(self, text: str) -> None:
        """Raises: ClientError bad_filter."""
        # most access files have no filter, and this import doubles the time of reading one
        from zbroker.filters.content_filter import Filter
        from zbroker.filters.nodes import fields_of
        from zbroker.filters.parser import parse
        from zbroker.filters.vocabulary import FIXED

        tree = parse(text, FIXED)
        self.text = text
        self.looks = bool(fields_of(tree))  # into payloads; not so at topics, headers, times
        self._filter: Filter = Filter(text, tree)

    def picks(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        """Those of `at` that can be read and that the filter is true for."""
        found = self._filter.test(payloads.type).picks(payloads, at, about)
        return _readable(payloads, found) if self.looks else found

    def refuses(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> set[int]:
        """Those of `at` that the filter is true for, and those that cannot be read."""
        if not self.looks:
            return set(self._filter.test(payloads.type).picks(payloads, at, about))
        readable = _readable(payloads, at)
        found = self._filter.test(payloads.type).picks(payloads, readable, about)
        return set(at).difference(readable).union(found)


class TopicFilters:
    """The filters that decide over one topic: one of `allow` (None: all), and none of `deny`."""

    __slots__ = ("_allow", "_deny", "_key")

    def __init__(self, allow: Sequence[Clause] | None, deny: Sequence[Clause]) -> None:
        self._allow = allow
        self._deny = deny
        allowed = None if allow is None else frozenset(clause.text for clause in allow)
        self._key = (allowed, frozenset(clause.text for clause in deny))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicFilters) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def picks(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        """Which of the messages `at` (ascending, each once) are permitted, ascending."""
        kept = self._allowed(payloads, at, about)
        for clause in self._deny:
            if not kept:
                break
            refused = clause.refuses(payloads, kept, about)
            kept = [i for i in kept if i not in refused]
        return kept

    def _allowed(self, payloads: Payloads, at: Sequence[int], about: MessageMetadata) -> list[int]:
        if self._allow is None:
            return list(at)
        if len(self._allow) == 1:
            return self._allow[0].picks(payloads, at, about)
        found: set[int] = set()
        for clause in self._allow:
            left = [i for i in at if i not in found]
            if not left:
                break
            found.update(clause.picks(payloads, left, about))
        return sorted(found)


def _readable(payloads: Payloads, at: Sequence[int]) -> list[int]:
    """Those of `at` whose payloads can be looked into."""
    if not at:
        return []
    good, values = payloads.values(at)
    if payloads.type not in _MAYBE_NOTHING:
        return list(good)
    return [i for i, value in zip(good, values, strict=True) if value is not None]
