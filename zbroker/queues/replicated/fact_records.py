"""Records of a replicated queue: by origin, for all instances, or of this log alone. Pure.

gone, failed, locked, noted, purged  KIND_OUTCOMES, by origin: to all instances
horizon, barrier, early      KIND_QUEUE, by position: they are about this log alone
granted                      KIND_OWNERSHIP
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pyroaring import BitMap64

from zbroker.ids import Vector
from zbroker.log.format import KIND_OUTCOMES, KIND_OWNERSHIP, KIND_QUEUE
from zbroker.log.queue_records import (
    AnyQueueFact,
    Moved,
    OriginSet,
    OriginsFailed,
    OriginsGone,
    OriginsLocked,
    OriginsNoted,
    OutcomesRecord,
    Purged,
    VectorEntry,
    packed,
    steps_of,
)
from zbroker.log.records import (
    AnyFact,
    Failed,
    Locked,
    MessagesGone,
    Noted,
    QueueRecord,
    encode,
    unpack_positions,
)
from zbroker.queues.replicated.declarations import entries
from zbroker.queues.replicated.origin_facts import OriginFacts
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable


class UnitStamp(NamedTuple):
    """By which process, and the number of its unit."""

    by: int
    unit: int


def records_of(
    one: OriginFacts, facts: Iterable[AnyFact], written: UnitStamp
) -> list[tuple[int, bytes]]:
    """Kinds and bodies of the records that say these facts; at least one."""
    here: list[AnyFact] = []
    everywhere: list[AnyQueueFact] = []
    for fact in facts:
        if isinstance(fact, Noted):
            everywhere.append(OriginsNoted(_named(one, fact.where)))
        elif isinstance(one, ReplicatedReplayable):
            here.append(fact)  # what cannot be read here may be read at another instance
        elif isinstance(fact, MessagesGone):
            everywhere.append(OriginsGone(_named(one, fact.where), fact.why))
        elif isinstance(fact, Failed):
            where = _named(one, fact.where)
            everywhere.append(OriginsFailed(where, fact.why, fact.due_ns, fact.delay_ms))
        elif isinstance(fact, Locked):
            everywhere.append(OriginsLocked(_named(one, fact.where), fact.branch, fact.reject))
        else:
            here.append(fact)
    made = []
    if here or not everywhere:
        record = QueueRecord(one.view.name, one.view.declaration, *written, here)
        made.append((KIND_QUEUE, encode(record)))
    if everywhere:
        made.append((KIND_OUTCOMES, _outcomes(one, everywhere, written)))
    return made


def purge_of(one: ReplicatedReplayable, vector: Vector, written: UnitStamp) -> tuple[int, bytes]:
    """Kind and body of the record that all which this covers was purged."""
    covered = entries(VectorEntry(*origin, at) for origin, at in vector.items() if at)
    return KIND_OUTCOMES, _outcomes(one, [Purged([], covered)], written)


class Move(NamedTuple):
    """Messages change their owner. seen: those of them that may have been delivered; takeover,
    back: see zbroker.log.queue_records.Moved."""

    positions: BitMap64
    to: int
    seen: BitMap64
    takeover: bool = False
    back: bool = False


def moves_of(one: ReplicatedQueue, move: Move, written: UnitStamp) -> tuple[int, bytes]:
    """Kind and body of the record that says so."""
    facts = []
    for number, held in sorted(one.ownership.numbers(move.positions).items()):
        for part, flagged in ((held - move.seen, False), (held & move.seen, True)):
            if part:
                where = origins_of(one, part)
                facts.append(Moved(where, move.to, number + 1, move.takeover, flagged, move.back))
    return KIND_OWNERSHIP, _outcomes(one, facts, written)


def _outcomes(one: OriginFacts, facts: Iterable[AnyQueueFact], written: UnitStamp) -> bytes:
    record = OutcomesRecord(one.view.name, one.view.life, *written, packed(facts))
    return encode(record)


def _named(one: OriginFacts, where: bytes) -> list[OriginSet]:
    return origins_of(one, unpack_positions(where))


def origins_of(one: OriginFacts, positions: BitMap64) -> list[OriginSet]:
    """Messages of this log by origin."""
    named = one.runs.names(positions)
    return [OriginSet(*origin, steps_of(part)) for origin, part in sorted(named.items())]
