"""Messages of the queues process to the journal, besides those of all readers (internal). Pure.

    queues                                          journal
        Commit{ordinal, units} + bodies   ->
                                          <-  Receipt{items, persisted}           after the sync
        AskNamed{cid}                     ->
                                          <-  Named{wiring, points}               after the sync

The parts of a unit must be written together: they are consecutive, in one group, or none of them is
written. A Commit that belongs to an older journal is dropped, like an Append; its sender reads the
log up to the end in the Welcome, finds there which of its units were written (each queue record
names its unit), and sends the others again. So the journal compares nothing.
"""

from __future__ import annotations

from msgspec import Struct, field

from zbroker.wire.internal import Batches, Correlated, JournalRequest
from zbroker.wire.messages import Columns

UNIT_PARTS_MAX = 200  # a unit is never split, and a group has so many buffers
FOR_NOW = frozenset({"disk_full", "not_ready"})  # refusals of a unit that time can mend


class UnitPart(Struct, array_like=True, gc=False):
    """One batch of a unit; its body is the frame with the same index after the header.

    kind: KIND_PUBLISH: `count` messages that the broker itself publishes, under the name
    BROKER_NAME, with the next sequences of it; else a control record. crc covers the body frame.
    routes: of messages, where those to exchanges go, as in an Entry.
    """

    kind: int
    crc: int
    topics: list[str] = []
    count: int = 1
    columns: Columns | None = None
    routes: bytes = b""


class CommitUnits(Batches, tag="commit"):
    """queues -> journal. Unit i has ordinal `ordinal + i`.

    There is one item in a Receipt for each unit: `position` is that of its last part, `high` that
    of its first one; or it is refused as a whole, with `code`. Units are written also while
    publishers are refused `disk_full`: records that end work free space. If a unit is refused with
    a code of FOR_NOW, so is every one of its sort (with messages or without) after it, up to a
    Commit whose `confirmed` covers these refusals.
    """

    units: list[list[UnitPart]]


class AskNamed(JournalRequest, tag="ask_named"):
    """queues -> journal. Asks for everything with a name in the log. Answered by Named."""


class NamedRow(Struct, array_like=True, gc=False):
    """The newest record of one name: its position, and its body as it was written.

    The name of a replicated queue is in the body of its definition alone.
    """

    name: str
    position: int
    body: bytes


class NamedRows(Correlated, tag="named"):
    """journal -> queues: durable. wiring: of KIND_WIRING, points: of KIND_POINT, by name.
    definitions: of KIND_DEFINITION, by life. shared: points of all instances, as rows of their own
    form (zbroker.log.point_records).

    position: everything before it is in here; records from there on are in the log.
    """

    position: int
    wiring: list[NamedRow]
    points: list[NamedRow]
    definitions: list[NamedRow] = field(default_factory=list)
    shared: list[NamedRow] = field(default_factory=list)


ToJournal = CommitUnits | AskNamed
BROKER_NAME = "$broker"  # the publisher of the broker's own messages: dead letters
