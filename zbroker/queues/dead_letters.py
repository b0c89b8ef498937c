"""Dead letters: a queue publishes the messages that it gives up, with the reason. Pure.

    outcome with a letter --read--> [messages to the dead letter topic, Gone] --landed--> gone
                              \\--cannot be read--> Gone, unreadable

A dead letter is the message as it was, with headers of ours: see HEADERS. So a crash leaves either
the message in its queue or its letter in the log, never both and never none.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

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
        units = by_size([Letter(one, outcome.why, outcome.letter, row) for row in rows])
        for number, part in enumerate(units):
            positions = BitMap64([letter.row.position for letter in part])
            buried = Outcome(positions, "gone", outcome.why, 0, outcome.letter)
            facts: list[AnyFact] = [MessagesGone(pack_positions(positions), outcome.why)]
            last = ending if number == len(units) - 1 else None
            self._shared.manager.add(
                one, facts, [(buried, last)], letters=part_of(part, self._shared.now)
            )


def _cut(outcome: Outcome) -> tuple[Outcome, Outcome | None]:
    """The first LETTERS_MAX of an outcome, and the rest."""
    if len(outcome.positions) <= LETTERS_MAX:
        return outcome, None
    first, rest = outcome.positions[:LETTERS_MAX], outcome.positions[LETTERS_MAX:]
    return outcome._replace(positions=first), outcome._replace(positions=rest)


class Letter(NamedTuple):
    """A message that a queue gives up. why, text: of its headers."""

    one: QueueState
    why: str
    text: str
    row: InspectedMessage


def by_size(letters: Sequence[Letter]) -> list[list[Letter]]:
    """Those that are in one part of a unit each: at most LETTERS_MAX."""
    parts: list[list[Letter]] = []
    size = 0
    for letter in letters:
        data = len(letter.row.data)
        if not parts or size + data > LETTERS_MAX_BYTES or len(parts[-1]) == LETTERS_MAX:
            parts.append([])
            size = 0
        parts[-1].append(letter)
        size += data + EXTRA_MAX_BYTES // 16
    return parts


def part_of(letters: Sequence[Letter], now: Now) -> tuple[UnitPart, Body] | None:
    """They are published, as one part of a unit; None: their queues have no topic for them any
    more."""
    letters = [letter for letter in letters if letter.one.definition.config.dead_letter]
    if not letters:
        return None
    body = bodies.pack([letter.row.data for letter in letters])
    to = [letter.one.definition.config.dead_letter for letter in letters]
    topics, keys = sorted(set(to)), [letter.row.key for letter in letters]
    columns = Columns(
        index=bodies.to_little(array("H", map(topics.index, to))) if len(topics) > 1 else None,
        keys=codec.encode(keys) if any(keys) else None,
        headers=codec.encode([_headers(letter, now) for letter in letters]),
    )
    return UnitPart(KIND_PUBLISH, crc32c(body), topics, len(letters), columns), body


def _headers(letter: Letter, now: Now) -> dict[str, Any]:
    one, row = letter.one, letter.row
    assert isinstance(one.queue, Queue)
    standing = one.queue.where(row.position, now)
    ours = {
        QUEUE: one.name, REASON: letter.why, TEXT: letter.text, TOPIC: row.topic,
        BOOKMARK: format_bookmark(row.publisher, row.sequence), POSITION: row.position,
        DELIVERIES: standing.deliveries, FAILURES: standing.failures,
    }  # fmt: skip
    both = {**(row.headers or {}), **ours}
    size = len(codec.encode(both)) + len(row.key or b"")
    return both if size <= EXTRA_MAX_BYTES else ours
