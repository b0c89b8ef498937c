"""Dead letters: a queue publishes the messages that it gives up, with the reason. Pure.

    outcome with a letter --read--> [messages to the dead letter topic, Gone] --landed--> gone
                              \\--cannot be read--> Gone, unreadable

A dead letter is the message as it was, with headers of ours: see HEADERS. So a crash leaves either
the message in its queue or its letter in the log, never both and never none. Letters to an exchange
are routed when their unit is made, see letter_routes.py.
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
from zbroker.queues.known_exchanges import KnownExchanges
from zbroker.queues.letter_routes import (
    PASSED,
    SAID,
    RoutableLetter,
    passed_by,
    routed,
    text_of,
)
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
REASON: Final = (
    "zb-reason"  # time_limit, max_deliveries, max_cancels, max_length, rejected or forced
)
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
        self._shared.manager.exchanges.when_known(lambda: self._bury(one, entry, done.rows))

    def _bury(self, one: QueueState, entry: Entry, rows: list[InspectedMessage]) -> None:
        outcome, ending = entry
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
            letters = parts_of(part, self._shared.manager.exchanges, self._shared.now)
            self._shared.manager.add(one, facts, [(buried, last)], letters=letters)


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


def parts_of(
    letters: Sequence[Letter], exchanges: KnownExchanges, now: Now
) -> list[tuple[UnitPart, Body]]:
    """They are published, as one part of a unit: several where they go to too many queues for one;
    none of those whose queues have no topic for them any more."""
    made = [_letter(letter, now) for letter in letters if letter.one.definition.config.dead_letter]
    return [_part(*each) for each in routed(made, exchanges)]


def _letter(letter: Letter, now: Now) -> RoutableLetter:
    config, row = letter.one.definition.config, letter.row
    key = config.dead_letter_key.encode() or row.key
    headers, passed = _headers(letter, key, now), row.headers or {}
    by_itself = letter.why not in SAID
    return RoutableLetter(
        config.dead_letter, row.data, key, headers,
        passed_by(passed.get(PASSED), letter.one.name) if by_itself else [],
    )  # fmt: skip


def _part(letters: Sequence[RoutableLetter], routes: bytes) -> tuple[UnitPart, Body]:
    body = bodies.pack([letter.data for letter in letters])
    to, keys = [letter.topic for letter in letters], [letter.key for letter in letters]
    topics = sorted(set(to))
    columns = Columns(
        index=bodies.to_little(array("H", map(topics.index, to))) if len(topics) > 1 else None,
        keys=codec.encode(keys) if any(keys) else None,
        headers=codec.encode([letter.headers for letter in letters]),
    )
    part = UnitPart(KIND_PUBLISH, crc32c(body), topics, len(letters), columns, routes)
    return part, body


def _headers(letter: Letter, key: bytes | None, now: Now) -> dict[str, Any]:
    one, row = letter.one, letter.row
    assert isinstance(one.queue, Queue)
    standing = one.queue.where(row.position, now)
    ours = {
        QUEUE: one.name, REASON: letter.why, TEXT: letter.text, TOPIC: row.topic,
        BOOKMARK: format_bookmark(row.publisher, row.sequence), POSITION: row.position,
        DELIVERIES: standing.deliveries, FAILURES: standing.failures,
    }  # fmt: skip
    before = {name: value for name, value in (row.headers or {}).items() if name != PASSED}
    if letter.why not in SAID:
        ours[PASSED] = text_of(passed_by((row.headers or {}).get(PASSED), one.name))
    both = {**before, **ours}
    size = len(codec.encode(both)) + len(key or b"")
    return both if size <= EXTRA_MAX_BYTES else ours
