"""Finds the state snapshots in a log, from its newest segment back.

A snapshot is written after the group that began its segment, so the beginnings of segments are
looked at first. After a crash one may be anywhere, and it may end in the next segment.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from zbroker.ids import Origin
from zbroker.journal import snapshot
from zbroker.log.format import KIND_STATE, Batch
from zbroker.log.reader import Cursor, Gap, Log


class FoldStart(NamedTuple):
    """Where to fold from: a position, and the serial of its segment."""

    position: int
    serial: int


HEAD_BATCHES: Final = 1_000  # a snapshot is after the group that began its segment


def newest(log: Log, limit: int) -> FoldStart | None:
    """The beginning of a complete snapshot, from the newest segment that has one.

    Looks at the beginnings of segments first, which is where snapshots are; only after a crash one
    may be anywhere. A log that begins at position 1 needs none, so it is not searched through.
    """
    found = _search(log, limit, HEAD_BATCHES)
    if found is None and log.first_position > 1:
        found = _search(log, limit, limit)
    return found


def _search(log: Log, limit: int, patience: int) -> FoldStart | None:
    seen, end = snapshot.SnapshotParts(), limit
    for start in reversed(log.starts):
        if start.position < limit:
            _collect(log, start, end, patience, seen)
            if seen.complete:
                return _at(log, seen.complete)
        end = min(end, start.position)
    return None


def _collect(
    log: Log, start: Cursor, end: int, patience: int, seen: snapshot.SnapshotParts
) -> None:
    """Takes the parts in one segment; not beyond `patience` batches if none was among them."""
    for number, (batch, cursor) in enumerate(_batches(log, start, end)):
        if batch.kind == KIND_STATE:
            patience = end  # all of this segment: what begins here may end anywhere in it
            body = part_at(log, batch, cursor)
            if body is not None:
                seen.add(body)
        if seen.complete or number >= patience:
            return


def _batches(log: Log, start: Cursor, end: int) -> Iterator[tuple[Batch, Cursor]]:
    return (item for item in log.headers(start, end) if not isinstance(item, Gap))


def _at(log: Log, position: int) -> FoldStart:
    serial = max(start.serial for start in log.starts if start.position <= position)
    return FoldStart(position, serial)


def part_at(log: Log, batch: Batch, cursor: Cursor) -> snapshot.Body | None:
    """The part of a snapshot in this batch. Raises: StorageError unknown_version."""
    body = log.body(batch, cursor)
    return snapshot.decode(body) if body is not None else None


class SnapshotHead(NamedTuple):
    """What a first part says of origins: these vectors cover every message below a position.

    seen: below `position`, its own one. begun: below the first one of its segment, None if that
    is not known. stored, stored_begun: the same without ties, so it covers them by the origin that
    they are stored with.
    """

    serial: int
    position: int
    seen: dict[Origin, int]
    begun: dict[Origin, int] | None
    stored: dict[Origin, int]
    stored_begun: dict[Origin, int] | None


def origins_at_heads(log: Log, limit: int) -> Iterator[SnapshotHead]:
    """What the first parts at the beginnings of segments say, newest first."""
    end = limit
    for start in reversed(log.starts):
        if start.position < limit:
            head = origins_at(log, start, end)
            if head is not None:
                yield head
        end = min(end, start.position)


def origins_at(log: Log, start: Cursor, end: int) -> SnapshotHead | None:
    """What the first part at the beginning of one segment says, if there is one below `end`."""
    heads = islice(_batches(log, start, end), HEAD_BATCHES)
    states = (part_at(log, *found) for found in heads if found[0].kind == KIND_STATE)
    body = next((body for body in states if body is not None and body.part == 0), None)
    rows = snapshot.origins(body) if body is not None else None
    if body is None or rows is None:
        return None
    seen = {Origin(row.instance, row.generation): row.messages for row in rows}
    stored = {Origin(row.instance, row.generation): row.of_stored for row in rows}
    begun = snapshot.begun(body, start.position)
    return SnapshotHead(
        start.serial, body.through, seen, begun and begun.messages, stored, begun and begun.stored
    )
