"""Cuts a batch of recorded and unrecorded messages into runs of one kind. Pure.

Mostly there is nothing to cut: clients publish one topic at a time, or all of them are recorded.
Where there is, this is the one place where a body is packed anew on its way to the log: the log's
batches have consecutive sequences, and what is not recorded must not be in them.

Where content decides, it is looked at here, and only here: each message alone, whatever batch it
came in.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from google_crc32c import value as crc32c
from msgspec.structs import replace

from zbroker.ingest.content import Contents, Messages
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns

_NONE: Final = Columns()


class BatchPart(NamedTuple):
    """Consecutive messages that are all recorded, or all not."""

    recorded: bool
    entry: Entry
    body: bytes


class Splitter:
    """Cuts batches by what is recorded."""

    def __init__(self, recording: Recording, max_bytes: int) -> None:
        """max_bytes: of a body without its compression."""
        self.contents = Contents(recording)
        self._kind = recording.kind
        self._max_bytes = max_bytes

    def split(
        self, entry: Entry, body: bytes, messages: list[bytes] | None = None
    ) -> list[BatchPart]:
        """The runs of a checked batch, in order; a batch of one kind as it is.

        `prev` of a recorded run is the last recorded message before it, as far as that is in this
        batch. messages: those of `body`, for who has them.
        """
        kinds = [self._kind(topic) for topic in entry.topics]
        column = entry.columns.index if entry.columns is not None else None
        if None not in kinds and (column is None or len(set(kinds)) == 1):
            return [BatchPart(bool(kinds[0]), entry, body)]
        index = bodies.indexes(column) if column is not None else bytes(entry.count)
        opened = Messages(entry, body, self._max_bytes, messages)
        recorded = [kinds[at] for at in index]
        if None in kinds:
            self.contents.decide(recorded, index, entry, opened)
        runs = [(bool(kind), len(list(run))) for kind, run in groupby(recorded)]
        if len(runs) == 1:
            return [BatchPart(runs[0][0], entry, body)]
        return _cut(entry, opened.all, index, runs)


def _cut(
    entry: Entry, messages: list[bytes], index: Sequence[int], runs: list[tuple[bool, int]]
) -> list[BatchPart]:
    """The batch in pieces. runs: (recorded, number of messages)."""
    column = entry.columns.time if entry.columns is not None else None
    times = bodies.times(column) if column is not None else None
    extras = bodies.extras(entry.columns, entry.count)
    parts, first, prev = [], 0, entry.prev
    for recorded, count in runs:
        end = first + count
        plain = bodies.pack(messages[first:end])
        topics, columns = _columns(entry.topics, index[first:end], times and times[first:end])
        if extras is not None:
            extras.put(columns, range(first, end))
        part = replace(
            entry, seq=entry.seq + first, count=count, prev=prev, crc=crc32c(plain), codec=None,
            topics=topics, columns=columns if columns != _NONE else None,
        )  # fmt: skip
        parts.append(BatchPart(recorded, part, plain))
        if recorded:
            prev = entry.seq + end - 1
        first = end
    return parts


def _columns(
    names: list[str], index: Sequence[int], times: array[int] | None
) -> tuple[list[str], Columns]:
    """The topics that are left, in order of appearance, and the columns that go with them."""
    if len(names) == 1 and times is None:
        return names, Columns()
    place = {old: new for new, old in enumerate(dict.fromkeys(index))}
    columns = Columns()
    if len(place) > 1:
        columns.index = bodies.to_little(array("H", [place[at] for at in index]))
    if times is not None:
        columns.time = bodies.to_little(times)
    return [names[at] for at in place], columns
