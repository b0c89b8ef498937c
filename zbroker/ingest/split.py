"""Cuts a batch of recorded and unrecorded messages into runs of one kind. Pure.

Mostly there is nothing to cut: clients publish one topic at a time, or all of them are recorded.
Where there is, this is the one place where a body is packed anew on its way to the log: the log's
batches have consecutive sequences, and what is not recorded must not be in them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from google_crc32c import value as crc32c
from msgspec.structs import replace

from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire.internal import Entry
from zbroker.wire.messages import Columns


class Part(NamedTuple):
    """Consecutive messages that are all recorded, or all not."""

    recorded: bool
    entry: Entry
    body: bytes


def split(entry: Entry, body: bytes, recording: Recording, max_bytes: int) -> list[Part]:
    """The runs of a checked batch, in order; a batch of one kind as it is.

    max_bytes: of the body without its compression. `prev` of a recorded run is the last recorded
    message before it, as far as that is in this batch.
    """
    kinds = [recording(topic) for topic in entry.topics]
    if len(set(kinds)) == 1 or entry.columns is None or entry.columns.index is None:
        return [Part(kinds[0], entry, body)]
    index = bodies.indexes(entry.columns.index)
    runs = [(kind, len(list(run))) for kind, run in groupby(map(kinds.__getitem__, index))]
    if len(runs) == 1:
        return [Part(runs[0][0], entry, body)]
    messages = bodies.unpack(body, entry.codec, entry.count, max_bytes)
    times = bodies.times(entry.columns.time) if entry.columns.time is not None else None
    parts, first, prev = [], 0, entry.prev
    for recorded, count in runs:
        end = first + count
        plain = bodies.pack(messages[first:end])
        topics, columns = _columns(entry.topics, index[first:end], times and times[first:end])
        part = replace(
            entry, seq=entry.seq + first, count=count, prev=prev, crc=crc32c(plain), codec=None,
            topics=topics, columns=columns,
        )  # fmt: skip
        parts.append(Part(recorded, part, plain))
        if recorded and prev is not None:
            prev = entry.seq + end - 1
        first = end
    return parts


def _columns(
    names: list[str], index: Sequence[int], times: array[int] | None
) -> tuple[list[str], Columns | None]:
    """The topics that are left, in order of appearance, and the columns that go with them."""
    place = {old: new for new, old in enumerate(dict.fromkeys(index))}
    columns = Columns()
    if len(place) > 1:
        columns.index = bodies.to_little(array("H", [place[at] for at in index]))
    if times is not None:
        columns.time = bodies.to_little(times)
    return [names[at] for at in place], columns if columns != Columns() else None
