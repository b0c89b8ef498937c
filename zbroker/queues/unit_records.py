"""The control records that facts about one queue make. Pure."""

from __future__ import annotations

from zbroker.log import records as r
from zbroker.log.format import KIND_QUEUE
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.fact_records import UnitStamp, records_of


def unit_records(
    one: QueueState, facts: list[r.AnyFact], written: UnitStamp
) -> list[tuple[int, bytes]]:
    """Kind and body of each. written: the unit that they are of."""
    if one.replicated is not None:
        return records_of(one.replicated, facts, written)
    record = r.QueueRecord(one.name, one.definition.declaration, *written, facts)
    return [(KIND_QUEUE, r.encode(record))]
