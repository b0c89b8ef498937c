"""What a subscription must be sent, in ten lines over a list of messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import groupby
from typing import Any

from tests.delivery.world import Seen


def replay(
    log: Iterable[Seen],
    *,
    wants: Callable[[Seen], bool] = lambda seen: True,
    first: int = 1,
    end: int = 1 << 62,
    interval_ns: int | None = None,
    key: Callable[[Seen], Hashable] = lambda seen: (),
    limit: int | None = None,
) -> list[Seen]:
    """Filters, slices and conflates; `key` None: never merged with another."""
    found = [seen for seen in log if first <= seen.position < end and wants(seen)]
    if interval_ns is not None:
        found = [
            one
            for _, interval in groupby(found, key=lambda seen: seen.time_ns // interval_ns)
            for one in _conflated(interval, key)
        ]
    return found[:limit]


def _conflated(interval: Iterable[Seen], key: Callable[[Seen], Any]) -> list[Seen]:
    held: dict[Hashable, tuple[Seen, Seen]] = {}
    for seen in interval:
        name = (seen.topic, key(seen)) if key(seen) is not None else seen.position
        held[name] = (held[name][0] if name in held else seen, seen)
    return [
        newest._replace(publisher=one.publisher, seq=one.seq, position=one.position)
        for one, newest in held.values()
    ]
