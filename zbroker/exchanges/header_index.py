"""Bindings of a headers exchange, indexed by what they ask of headers. Pure.

Each distinct (name, value) that bindings mention is a *condition* with a number; an argument
without a value is the condition that there is such a header. The headers of a message are projected
on the conditions that they fulfil, so headers that no binding mentions, such as trace ids, cost one
look-up each, and messages that differ only in these share one entry of a cache. A message is
compared with the bindings that have one of its conditions, not with all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Generic, TypeVar

from zbroker.exchanges.exchange import Comparable, Conditions, comparable
from zbroker.wire.bodies import Scalar

T = TypeVar("T")

#: The numbers of the conditions that the headers of a message fulfil.
Fulfilled = tuple[int, ...]


class HeaderIndex(Generic[T]):
    """Targets by conditions. The same pair may be added several times, and is counted."""

    def __init__(self) -> None:
        self._names: dict[str, dict[Comparable, int]] = {}  # name -> value -> number of a condition
        self._next = 0
        #: bindings by condition; those without conditions are in `_always`
        self._asking: defaultdict[int, dict[tuple[Conditions, T], int]] = defaultdict(dict)
        self._always: Counter[T] = Counter()

    def add(self, conditions: Conditions, target: T) -> None:
        """`target` gets messages whose headers fulfil all of these conditions, or any of them."""
        if conditions.all and not conditions.of:
            self._always[target] += 1
        for name, value in conditions.of:
            values = self._names.setdefault(name, {})
            number = values.get(value)
            if number is None:
                number = values[value] = self._next
                self._next += 1
            asking = self._asking[number]
            asking[conditions, target] = asking.get((conditions, target), 0) + 1

    def remove(self, conditions: Conditions, target: T) -> None:
        """Takes back one `add` of the same pair."""
        if conditions.all and not conditions.of:
            self._always[target] -= 1
            if not self._always[target]:
                del self._always[target]
        for name, value in conditions.of:
            values = self._names[name]
            asking = self._asking[values[value]]
            asking[conditions, target] -= 1
            if asking[conditions, target]:
                continue
            del asking[conditions, target]
            if not asking:
                del self._asking[values.pop(value)]
            if not values:
                del self._names[name]

    def project(self, headers: Mapping[str, Scalar] | None) -> Fulfilled:
        """The conditions that the headers of a message fulfil."""
        if not headers:
            return ()
        names = self._names
        found = []
        for name, value in headers.items():
            values = names.get(name)
            if values is None:
                continue
            if None in values:
                found.append(values[None])
            if value is not None:
                number = values.get(comparable(value))
                if number is not None:
                    found.append(number)
        return tuple(found)

    def match(self, fulfilled: Fulfilled) -> set[T]:
        """The targets that have a binding for a message with these conditions."""
        found = set(self._always)
        counts: Counter[tuple[Conditions, T]] = Counter()
        for number in fulfilled:
            counts.update(self._asking[number].keys())
        for (conditions, target), count in counts.items():
            if not conditions.all or count == len(conditions.of):
                found.add(target)
        return found
