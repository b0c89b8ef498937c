"""Named records of the log: per name the newest one, its position and its body. Pure.

    wiring   definitions; also of deleted ones, since one that is made again must begin a new epoch,
             unless their records say that none is
    points   named places of this log; those that were removed are forgotten
    shared points   of all instances, see shared_points.py. A name is that of one point: while there
                    is a shared one it is meant, and a local one that had the name is gone
    definitions   of replicated queues: of each life the one with the highest version, or its end.
                  Instances read the records in different orders, and keep the same one

All are folded from the log, like publishers, and are in state snapshots, so they outlive the
segments that they were written in. A body is kept as it was written: what it says besides its name
is for its reader to know. A record whose body is damaged, or has no name, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import DecodeError, Raw, Struct, msgpack

from zbroker.ids import POINT, Origin
from zbroker.journal.shared_points import SharedPoints
from zbroker.log.format import KIND_DEFINITION, KIND_POINT, KIND_SHARED_POINT, KIND_WIRING, Batch
from zbroker.log.point_records import SharedPointRow
from zbroker.log.queue_records import (
    DEFINITION,
    QueueDeclaration,
    ReplicatedDefinition,
    decoded,
    newer,
)
from zbroker.wire.units import NamedRow

KINDS: Final = frozenset({KIND_WIRING, KIND_POINT, KIND_DEFINITION, KIND_SHARED_POINT})


class _OfName(Struct):
    """What this release must understand of such a body."""

    name: str


class _OfPoint(Struct):
    """What decides whether a point is still there."""

    removed: Any = False


class _OfDefinition(Struct):
    """What decides whether a deleted definition has to be known."""

    forgotten: Raw = Raw()  # as it was written: nothing of a definition is decoded
    definition: Raw = Raw()


_NAME: Final = msgpack.Decoder(_OfName)
_TRUE, _NIL = msgpack.encode(True), msgpack.encode(None)
_POINT: Final = msgpack.Decoder(_OfPoint)
_DELETION: Final = msgpack.Decoder(_OfDefinition)


def name_of(body: bytes | memoryview) -> str:
    """The name in the body of such a record, "" if there is none."""
    try:
        return _NAME.decode(body).name
    except (DecodeError, UnicodeDecodeError):
        return ""


def is_removal(kind: int, body: bytes | memoryview) -> bool:
    """True for the record that removes a point, or a definition for good. The body has a name, so
    it can be decoded."""
    if kind == KIND_WIRING:
        found = _DELETION.decode(body)
        return bytes(found.forgotten) == _TRUE and bytes(found.definition) in (b"", _NIL)
    return kind == KIND_POINT and _POINT.decode(body).removed is True


class NewestRows(dict[str, NamedRow]):
    """The newest row of each name."""

    def learn(self, row: NamedRow) -> None:
        """It replaces what is known of its name."""
        self[row.name] = row

    def rows(self) -> Iterator[NamedRow]:
        """By name, each as of the moment it is asked for."""
        for name in sorted(self):
            row = self.get(name)
            if row is not None:  # it may have been forgotten since the first one was asked for
                yield row


class DefinitionRows:
    """The row that holds of each life of a replicated queue. changes: how often one did."""

    def __init__(self) -> None:
        self.changes = 0
        self._rows: dict[tuple[str, QueueDeclaration], tuple[ReplicatedDefinition, NamedRow]] = {}

    def learn(self, row: NamedRow) -> None:
        """It replaces what is known of its life, unless that is newer, or its end."""
        record = decoded(DEFINITION, row.body)
        if record is None or not record.name:
            return
        key = record.name, record.life
        before = self._rows.get(key)
        if before is None or newer(record, before[0]):
            self._rows[key] = record, row
            self.changes += 1

    def rows(self) -> Iterator[NamedRow]:
        """By name and life, each as of the moment it is asked for."""
        for key in sorted(self._rows):
            yield self._rows[key][1]


class NamedRecords:
    """The named rows of one log."""

    def __init__(self, reached: Callable[[Origin], int] = lambda _origin: 0) -> None:
        """reached: how far the log has an origin."""
        self.wiring = NewestRows()
        self.points = NewestRows()
        self.definitions = DefinitionRows()
        self.shared = SharedPoints(reached)

    @property
    def changes(self) -> int:
        """How often what all instances have in common became different."""
        return self.definitions.changes + self.shared.changes

    def fold(self, batch: Batch) -> None:
        """Learns from one record of these KINDS, in log order."""
        if batch.kind == KIND_DEFINITION:
            self.definitions.learn(NamedRow("", batch.position, bytes(batch.body)))
            return
        if batch.kind == KIND_SHARED_POINT:
            self.points.pop(self.shared.fold(batch), None)
            return
        name = name_of(batch.body)
        rows = self.wiring if batch.kind == KIND_WIRING else self.points
        if name and is_removal(batch.kind, batch.body):
            rows.pop(name, None)
        elif name and not (batch.kind == KIND_POINT and self.shared.meant(name)):
            rows.learn(NamedRow(name, batch.position, bytes(batch.body)))

    def learn_shared(self, row: SharedPointRow) -> None:
        """Learns a shared point from a snapshot."""
        self.points.pop(self.shared.learn(row), None)

    def vector_named(self, text: str) -> str:
        """The vector of a shared point that is named like `"point:NAME"`; other texts as they
        are."""
        row = self.shared.meant(text.removeprefix(POINT)) if text.startswith(POINT) else None
        return row.covers if row is not None else text
