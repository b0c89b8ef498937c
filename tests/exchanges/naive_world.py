"""A slow reading of the rows of exchanges, written from the rules: what tables and routers are
compared with. It shares rows with the package, and nothing of how it counts and remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.exchanges.naive_matching import headers_match, is_same, topic_matches
from zbroker.exchanges import (
    Binding,
    BindingRow,
    BoundQueue,
    DeclaredQueue,
    Exchange,
    ExchangeRow,
    Row,
)
from zbroker.log.queue_records import QueueDeclaration

FIXED = {"": "direct", "amq.direct": "direct", "amq.fanout": "fanout"} | {
    "amq.match": "headers", "amq.topic": "topic",
}  # fmt: skip
ALWAYS = QueueDeclaration(0, 0, 0)


class NaiveWorld:
    """What a set of rows means; it looks at all of them for each message."""

    def __init__(self, rows: Iterable[Row]) -> None:
        rows = list(rows)
        self.exchanges = [row for row in rows if isinstance(row, ExchangeRow)]
        self.queues = [row for row in rows if isinstance(row, DeclaredQueue)]
        self.newest: list[BindingRow] = []
        bindings = [row for row in rows if isinstance(row, BindingRow)]
        for row in sorted(bindings, key=lambda row: row.version, reverse=True):
            if not any(_is_same_binding(row.binding, other.binding) for other in self.newest):
                self.newest.append(row)

    def live(self, name: str) -> dict[QueueDeclaration, list[ExchangeRow]]:
        lives: dict[QueueDeclaration, list[ExchangeRow]] = {}
        for row in self.exchanges:
            if row.name == name:
                lives.setdefault(row.life, []).append(row)
        return {
            life: rows
            for life, rows in lives.items()
            if all(row.definition is not None for row in rows)
        }

    def definition(self, name: str) -> Exchange | None:
        if name in FIXED:
            return Exchange(name, FIXED[name])
        rows = [row for rows in self.live(name).values() for row in rows]
        return max(rows, key=lambda row: row.version).definition if rows else None

    def bound(self, exchange: str) -> list[Binding]:
        """The bindings that are made and not taken back, whose lives are there."""
        lives = {ALWAYS} if exchange in FIXED else set(self.live(exchange))
        return [
            row.binding
            for row in self.newest
            if row.bound and row.binding.exchange == exchange and row.binding.exchange_life in lives
        ]  # fmt: skip

    def queue(self, name: str, life: QueueDeclaration) -> BoundQueue | None:
        known = {row.life for row in self.queues if row.name == name}
        ended = {row.life for row in self.queues if row.name == name and row.ended}
        if life in ended:
            return None
        return BoundQueue(name, min(known - ended) if life in known else life)

    def route(
        self, exchange: str, key: bytes | None, headers: Mapping[str, Any] | None, hops: int = 1
    ) -> set[BoundQueue]:
        """The queues of one message."""
        try:
            text = (key or b"").decode()
        except UnicodeDecodeError:
            return set()
        definition = self.definition(exchange)
        if len(key or b"") > 255 or definition is None:
            return set()
        found = {
            self.queue(one.queue, one.queue_life)
            for one in self.bound(exchange)
            if _asks_for(one, definition.kind, text, headers)
        }
        if exchange == "":
            found = {self.queue(row.name, row.life) for row in self.queues if row.name == text}
        found.discard(None)
        if not found and definition.alternate and hops:
            return self.route(definition.alternate, key, headers, hops - 1)
        return {one for one in found if one is not None}

    def route_all(
        self, exchange: str, keys: Sequence[bytes | None], headers: Sequence[Any]
    ) -> list[set[BoundQueue]]:
        return [self.route(exchange, *each) for each in zip(keys, headers, strict=True)]


def _is_same_binding(one: Binding, other: Binding) -> bool:
    def names(binding: Binding) -> tuple[Any, ...]:
        return (binding.exchange, binding.exchange_life, binding.queue, binding.queue_life,
                binding.key, set(binding.arguments))  # fmt: skip

    return names(one) == names(other) and all(
        is_same(value, other.arguments[name]) for name, value in one.arguments.items()
    )


def _asks_for(
    binding: Binding, kind: str, key: str, headers: Mapping[str, Any] | None
) -> bool:  # fmt: skip
    if kind == "headers":
        return "x-match" in binding.arguments and headers_match(binding.arguments, headers)
    if binding.arguments:
        return False
    if kind == "topic":
        return topic_matches(binding.key, key)
    return kind == "fanout" or (kind == "direct" and binding.key == key)
