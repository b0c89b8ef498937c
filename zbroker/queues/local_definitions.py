"""Definitions of local queues, as their records have them. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import convert

from zbroker.config import QueueConfig
from zbroker.definitions import Definition, compile_queue
from zbroker.ids import Origin
from zbroker.log.records import DefinitionRecord
from zbroker.topics import TopicType

NAMED_CHARS: Final = 100  # of a type in a line of the log: one may hold its whole schema
NOW: Final = -1  # as DefinitionRecord.begins: right after the record


def compiled(record: DefinitionRecord) -> Definition:
    """The queue that a record defines."""
    config = convert(record.definition, QueueConfig)
    lives = [record.routes] if record.routes is not None else []
    return compile_queue(
        config, record.life, record.created, record.source, record.types or (), lives
    )


def types_kept(record: DefinitionRecord, now: list[TopicType]) -> str:
    """Says that a queue reads payloads otherwise than the config has it now."""
    types = [
        ", ".join(f"{one.topic} as {one.type[:NAMED_CHARS]}" for one in each) or "all as auto"
        for each in (record.types or (), now)
    ]
    return (
        f"queue {record.name!r} reads {types[0]}, as when it was made; [[record]] says {types[1]} "
        "now: its messages stay; delete and make it again to have it read so"
    )


def placed(record: DefinitionRecord, position: int) -> DefinitionRecord:
    """A record that is at `position`."""
    record.created = record.created or position
    if record.begins == NOW:
        record.begins = position
    return record


def routed(
    made: DefinitionRecord, before: DefinitionRecord | None, here: Origin, wall_ns: int
) -> DefinitionRecord:
    """The record of a bound queue that is made now. before: of the last one of its name."""
    before_ns = before.routes[0] if before is not None and before.routes is not None else 0
    made.routes = (max(wall_ns, before_ns + 1), *here)
    made.begins = NOW  # nothing names it before it is there
    return made
