"""Dead letters: a queue publishes the messages that it gives up, with the reason. Pure.

    outcome with a letter --read--> [messages to the dead letter topic, Gone] --landed--> gone
                              \\--cannot be read--> Gone, unreadable

A dead letter is the message as it was, with headers of ours: see HEADERS. So a crash leaves either
the message in its queue or its letter in the log, never both and never none.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pyroaring import BitMap64

from zbroker.checksums import crc32c
from zbroker.engine.contract import Now
from zbroker.ids import format_bookmark
from zbroker.limits import EXTRA_MAX_BYTES, MIB
from zbroker.log.format import KIND_PUBLISH
from zbroker.log.records import AnyFact, MessagesGone, pack_positions
from zbroker.queues.commits import Body
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import Inspect, Inspected, InspectedMessage
from zbroker.queues.queue_state import Entry, QueueState
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome
from zbroker.wire import bodies, codec
from zbroker.wire.messages import Columns
from zbroker.wire.units import UnitPart

LETTERS_MAX: Final = 100  # of one unit
LETTERS_MAX_BYTES: Final = 1 * MIB  # of one unit, besides the largest
READ_MAX: Final = 1_000  # of one queue that are being read

QUEUE: Final = "zb-queue"
REASON: Final = "zb-reason"  # time_limit, max_deliveries, max_cancels, rejected or forced
TEXT: Final = "zb-text"  # what the consumer said
TOPIC: Final = "zb-topic"
BOOKMARK: Final = "zb-bookmark"  # of the original
POSITION: Final = "zb-position"
DELIVERIES: Final = "zb-deliveries"
FAILURES: Final = "zb-failures"
HEADERS: Final = (QUEUE, REASON, TEXT, TOPIC, BOOKMARK, POSITION, DELIVERIES, FAILURES)


class DeadLetters:
    """Publishes dead letters of all queues."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def begin(self, one: QueueState) -> None:
        """Has the messages read that are to be dead letters now."""
        taken: list[Entry] = []
        letters = [entry for entry in one.entries if entry[0].letter]
        others = [entry for entry in one.entries if not entry[0].letter]
        while letters and one.letters_read < READ_MAX and not self._shared.manager.commits.full:
            outcome, ending = letters.pop(0)
            first, rest = _cut(outcome)
            taken.append((first, None if rest is not None else ending))
            one.letters_read += len(first.positions)
            if rest is not None:
                letters.insert(0, (rest, ending))
        one.entries = others + letters
        for entry in taken:
            self._shared.read(Inspect, partial(self._read, one, entry), entry[0].positions)

    def _read(self, one: QueueState, entry: Entry, done: Inspected) -> None:
        (outcome, ending), rows = entry, done.rows
        one.letters_read -= len(outcome.positions)
        lost = outcome.positions - BitMap64([row.position for row in rows])
        if lost:
            unreadable = Outcome(lost, "gone", "unreadable")
            one.entries.append((unreadable, ending if not rows else None))
            self._shared.touch(one)
        units = _by_size(rows)
        for number, part in enumerate(units):
            positions = BitMap64([row.position for row in part])
            buried = Outcome(positions, "gone", outcome.why, 0, outcome.letter)
            facts: list[AnyFact] = [MessagesGone(pack_positions(positions), outcome.why)]
            last = ending if number == len(units) - 1 else None
            self._shared.manager.add(
                one, facts, [(buried, last)], letters=_letters(one, outcome, part, self._shared.now)
            )


def _cut(outcome: Outcome) -> tuple[Outcome, Outcome | None]:
    """The first LETTERS_MAX of an outcome, and the rest."""
    if len(outcome.positions) <= LETTERS_MAX:
        return outcome, None
    first, rest = outcome.positions[:LETTERS_MAX], outcome.positions[LETTERS_MAX:]
    return outcome._replace(positions=first), outcome._replace(positions=rest)


def _by_size(rows: list[InspectedMessage]) -> list[list[InspectedMessage]]:
    units: list[list[InspectedMessage]] = []
    size = 0
    for row in rows:
        if not units or size + len(row.data) > LETTERS_MAX_BYTES:
            units.append([])
            size = 0
        units[-1].append(row)
        size += len(row.data) + EXTRA_MAX_BYTES // 16
    return units


def _letters(
    one: QueueState, outcome: Outcome, rows: list[InspectedMessage], now: Now
) -> tuple[UnitPart, Body]:
    """The dead letters of messages, as one part of a unit."""
    body = bodies.pack([row.data for row in rows])
    columns = Columns(
        keys=codec.encode([row.key for row in rows]) if any(row.key for row in rows) else None,
        headers=codec.encode([_headers(one, outcome, row, now) for row in rows]),
    )
    topics = [one.definition.config.dead_letter]
    return UnitPart(KIND_PUBLISH, crc32c(body), topics, len(rows), columns), body


def _headers(one: QueueState, outcome: Outcome, row: InspectedMessage, now: Now) -> dict[str, Any]:
    assert isinstance(one.queue, Queue)
    standing = one.queue.where(row.position, now)
    ours = {
        QUEUE: one.name, REASON: outcome.why, TEXT: outcome.letter, TOPIC: row.topic,
        BOOKMARK: format_bookmark(row.publisher, row.sequence), POSITION: row.position,
        DELIVERIES: standing.deliveries, FAILURES: standing.failures,
    }  # fmt: skip
    both = {**(row.headers or {}), **ours}
    size = len(codec.encode(both)) + len(row.key or b"")
    return both if size <= EXTRA_MAX_BYTES else ours
