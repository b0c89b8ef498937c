"""What is wrong with queues: too much, nobody who takes it, dead letters. Pure.

One finding per code, which names the queues; what a queue may hold and how long it may lie idle is
part of its definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from zbroker.admin import words
from zbroker.admin.alarms import AlarmFinding
from zbroker.admin.queue_document import setting
from zbroker.clock import format_time
from zbroker.wire.queue_surveys import QueueRow

NAMED_MAX: Final = 3  # in one finding; `queue ls` names all
_NS_PER_MS: Final = 1_000_000


class QueueObservation(NamedTuple):
    """What rows are judged by.

    known_ms: for how long a queue that nobody ever took from is known to be so, by name. dead: dead
    letters of late, by name. now_ns: wall clock. ago_ms: how long ago a row was told, by name.
    """

    rows: Sequence[QueueRow]
    known_ms: Mapping[str, int]
    dead: Mapping[str, int]
    now_ns: int
    ago_ms: Mapping[str, int] = {}


def found(seen: QueueObservation) -> list[AlarmFinding]:
    """One for each thing that is wrong now."""
    return [*_size(seen.rows), *_idle(seen), *_dead(seen)]


def keeper(rows: Sequence[QueueRow]) -> tuple[str, int] | None:
    """The queue that needs most of the log, and so many bytes of it."""
    most = max(rows, key=lambda row: row.bytes, default=None)
    return None if most is None or not most.bytes else (most.name, most.bytes)


def _size(rows: Sequence[QueueRow]) -> Iterator[AlarmFinding]:
    over = [row for row in rows if 0 < setting(row, "size_alarm") < row.bytes]
    if over:
        yield AlarmFinding(
            "queue_size",
            _named([_large(row) for row in sorted(over, key=lambda row: -row.bytes)]),
            "nothing is lost; the log is kept from there on, and the disk may fill up",
            "more consumers, or zbroker-admin queue explain; a replayable queue is emptied by "
            "zbroker-admin queue purge",
        )


def _large(row: QueueRow) -> str:
    limit = words.size(setting(row, "size_alarm"))
    return (
        f"{row.name} holds {words.size(row.bytes)} of the log from position {row.holding} on, "
        f"its size_alarm is {limit}"
    )


def _idle(seen: QueueObservation) -> Iterator[AlarmFinding]:
    idle = [(ms, row) for row in seen.rows if (ms := _idle_ms(row, seen)) is not None]
    if idle:
        told = [_lying(row, ms, seen) for ms, row in sorted(idle, key=lambda one: -one[0])]
        yield AlarmFinding(
            "queue_idle",
            _named(told),
            "nothing is lost; the log is kept for these messages, and the disk may fill up",
            "start its consumers; zbroker-admin queue explain says why nothing is delivered; "
            "zbroker-admin queue delete, if nobody wants it any more",
        )


def _idle_ms(row: QueueRow, seen: QueueObservation) -> int | None:
    """For how long messages that somebody could take lie there; None: not too long.

    What is leased or delayed waits for nobody. A message that has just come does not wait long,
    however long nobody took one before. A replayable queue is there to be read some day.
    """
    limit = setting(row, "idle_alarm")
    waiting = row.depth - row.leased - row.delayed - row.going
    if row.kind != "work" or not limit or waiting <= 0:
        return None
    if row.idle_ms is None:
        idle = seen.known_ms.get(row.name, 0)
    else:
        idle = row.idle_ms + seen.ago_ms.get(row.name, 0)
    if row.oldest_ns is not None:
        idle = min(idle, (seen.now_ns - row.oldest_ns) // _NS_PER_MS)
    return idle if idle >= limit else None


def _lying(row: QueueRow, idle_ms: int, seen: QueueObservation) -> str:
    since = format_time(seen.now_ns - idle_ms * _NS_PER_MS)
    if row.idle_ms is None:
        what = f"was never consumed since {since}"
    else:
        what = f"has messages, and nobody takes any since {since}"
    return (
        f"{row.name} {what} ({words.duration(idle_ms)}): {row.depth} messages; "
        f"it holds the log from position {row.holding} on"
    )


def _dead(seen: QueueObservation) -> Iterator[AlarmFinding]:
    rows = [row for row in seen.rows if seen.dead.get(row.name)]
    if rows:
        rows.sort(key=lambda row: -seen.dead[row.name])
        yield AlarmFinding(
            "dead_letters",
            _named([_given_up(row, seen.dead[row.name]) for row in rows]),
            "these messages are given up by their queues; in the log they stay",
            "read the reasons there; zbroker-admin queue requeue brings them back",
        )


def _given_up(row: QueueRow, count: int) -> str:
    topic = setting(row, "dead_letter")
    where = f"they are in {topic}" if topic else "it has no dead_letter topic: only counted"
    return f"{row.name}: {count} dead letter{'' if count == 1 else 's'} lately, {where}"


def _named(told: list[str]) -> str:
    more = len(told) - NAMED_MAX
    return "; ".join([*told[:NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
