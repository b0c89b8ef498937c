"""Logs in memory whose admins answer with digests, a few batches at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from zbroker.admin.content_digests import ContentDigests
from zbroker.admin.digest_reports import document_of, scope_of
from zbroker.admin.requests import DigestsQuery, parse_query
from zbroker.control.log_comparison import ComparedLog
from zbroker.log.format import KIND_PUBLISH, KIND_TIE, Batch, content_column

A, B = 0xA, 0xB


def published(
    first: int, count: int = 1, *, origin: tuple[int, int] = (A, 1), publisher: int = 7,
    sequence: int = 0, crc: int = 99, skip: int = 0, cut: int = 0,
) -> Batch:  # fmt: skip
    """Messages that count: `count` from position `first` at the origin."""
    return Batch(
        KIND_PUBLISH, 0, publisher, 1, sequence or first, 0, count + skip + cut, 0, ["t"], b"",
        crc, 10, skip, 0, *origin, first, cut=cut,
    )  # fmt: skip


def tied(
    first: int, count: int = 1, *, origin: tuple[int, int] = (A, 1), publisher: int = 7,
    sequence: int = 0, crc: int = 99,
) -> Batch:  # fmt: skip
    """The same messages as a tie: they are here with another origin."""
    sequence, last = sequence or first, first + count - 1
    return Batch(
        KIND_TIE, 0, publisher, 1, sequence + count - 1, 0, count, 0, [], b"", 0, 0, count - 1, 0,
        *origin, last, extra=[content_column(crc)],
    )  # fmt: skip


class FakeLog:
    """The admin of an instance with these batches; `chunk` of them for each answer."""

    def __init__(self, instance: int, batches: list[Batch], chunk: int = 3) -> None:
        self.instance, self.chunk, self.asked = instance, chunk, 0
        self.log_start, position = 1, 1
        self.batches = []
        for batch in batches:
            batch.position, position = position, position + batch.taken
            self.batches.append(batch)
        self.persisted = position
        self.damaged: list[list[int]] = []
        self.change: Callable[[dict[str, Any]], dict[str, Any]] = lambda found: found

    def remove(self, through: int) -> None:
        """As retention does."""
        self.batches = [one for one in self.batches if one.position > through]
        self.log_start = through + 1

    def ask(self, path: str) -> dict[str, Any]:
        """GET `path`."""
        asked = parse_query(DigestsQuery, path.partition("?")[2])
        assert dict(parse_qsl(path.partition("?")[2]))["seed"], path
        self.asked += 1
        digests = ContentDigests(asked.size, bytes.fromhex(asked.seed), scope_of(asked))
        limit = min(self.persisted, asked.limit or self.persisted)
        first, last = (
            bisect_left(self.batches, position, key=lambda one: one.position)
            for position in (asked.position, limit)
        )
        there = self.batches[first:last]
        digests.take(there[: self.chunk], 1)
        done = len(there) <= self.chunk
        end = limit if done else there[self.chunk].position
        return self.change({
            "instance": f"{self.instance:016x}", "log_start": self.log_start,
            "persisted": self.persisted, "done": done, "damaged": self.damaged,
            "next": {"serial": 1, "offset": 8192, "position": end},
            "ranges": [
                document_of(origin, number * asked.size, one)
                for (origin, number), one in digests.found.items()
            ],
        })  # fmt: skip

    def compared(self) -> ComparedLog:
        """For compare_logs; its name is a letter."""
        return ComparedLog("abcdefghijk"[self.instance - A], self.ask)
