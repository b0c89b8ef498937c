"""Describes a part of the log: counts, topics, publishers, times. By headers; no body is read."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

from zbroker.cli.progress import Step, silent
from zbroker.clock import format_time
from zbroker.journal import snapshot_finder
from zbroker.log.archive import summary
from zbroker.log.format import KIND_PUBLISH, Batch, SegmentHeader
from zbroker.log.reader import Gap, Log, first_time, last_time

TOPICS_MAX: Final = 100_000  # counted by name; the rest together
_STEP_BATCHES: Final = 10_000  # between two looks at the progress bar


@dataclass
class Described:
    """The findings. Times are those of messages."""

    first_time: int | None = None
    last_time: int | None = None
    batches: int = 0
    messages: int = 0
    control_records: int = 0
    body_bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)
    publishers: set[int] = field(default_factory=set)
    topics: dict[str, int] = field(default_factory=dict)
    other_topics: int = 0  # messages of topics beyond TOPICS_MAX

    def as_dict(self) -> dict[str, Any]:
        """With stable keys, for JSON."""
        topics = sorted(self.topics.items(), key=lambda item: (-item[1], item[0]))
        return vars(self) | {
            "first_time": time_text(self.first_time),
            "last_time": time_text(self.last_time),
            "gaps": [gap._asdict() for gap in self.gaps],
            "publishers": len(self.publishers),
            "topics": dict(topics),
        }

    def add(self, batch: Batch) -> None:
        """Counts one batch."""
        self.batches += 1
        self.body_bytes += batch.body_length
        if batch.kind != KIND_PUBLISH:
            self.control_records += batch.taken
            return
        self.messages += batch.taken
        self.publishers.add(batch.publisher)
        self.last_time = last_time(batch)
        if self.first_time is None:
            self.first_time = first_time(batch)
        self._count_topics(batch)

    def _count_topics(self, batch: Batch) -> None:
        columns = batch.columns
        if columns is None or columns.index is None:
            self._count(batch.topics[0], batch.taken)
            return
        for at in array("H", columns.index)[batch.skip : batch.skip + batch.taken]:
            self._count(batch.topics[at], 1)

    def _count(self, topic: str, messages: int) -> None:
        if topic in self.topics or len(self.topics) < TOPICS_MAX:
            self.topics[topic] = self.topics.get(topic, 0) + messages
        else:
            self.other_topics += messages


def describe(log: Log, span: tuple[int, int], step: Step = silent) -> Described:
    """Describes positions [first, end)."""
    first, end = span
    found = Described()
    if first >= end:
        return found
    for item in log.headers(log.seek(first), end):
        if isinstance(item, Gap):
            found.gaps.append(item)
            continue
        found.add(item[0])
        if found.batches % _STEP_BATCHES == 0:
            step("reading headers", item[0].position - first, end - first)
    return found


def times(log: Log, serial: int) -> tuple[int | None, int | None]:
    """Log time of the first and of the last message of a segment; None where there is none."""
    kept = summary(log, serial)
    if kept is not None:
        return kept.first_time, kept.last_time
    start = next((cursor for cursor in log.starts if cursor.serial == serial), None)
    if start is None:
        return None, None
    found = describe(log, (start.position, log.end()))
    return found.first_time, found.last_time


def segment_rows(log: Log) -> list[dict[str, Any]]:
    """A row per segment, oldest first; the same as the admin answers to GET /journal."""
    places = log.places.list()
    headers = [log.places.header(place) for place in places]
    firsts = [one.first_position if isinstance(one, SegmentHeader) else None for one in headers]
    rows = []
    for place, first, end in zip(places, firsts, [*firsts[1:], None], strict=True):
        first_time, last_time = times(log, place.serial)
        rows.append({
            "serial": place.serial,
            "place": "archive" if place.archived else "journal",
            "packed": place.packed,
            "first": first,
            "end": end,
            "first_time": time_text(first_time),
            "last_time": time_text(last_time),
            "bytes": place.file_bytes,
            "size": log.places.size(place),
            "open": place is places[-1],
        })  # fmt: skip
    return rows


def newest_snapshot(log: Log, end: int) -> int | None:
    """The newest segment with a complete state snapshot before the position `end`."""
    found = snapshot_finder.newest(log, end)
    return found.serial if found is not None else None


def time_text(ns: int | None) -> str | None:
    """A time as it is in JSON."""
    return format_time(ns) if ns is not None else None
